"""YAML and JSON files that people write, read in one way: whatever keeps one from being read is bad input, named by its field.

Values are those of YAML 1.2's core schema [YAML 1.2.2, section 10.3], of which JSON is a part; PyYAML by itself reads YAML 1.1.
`1e8` is a number, `010` is ten, `0o10` is 8 and `0x10` is 16. `yes`, `1:30`, `1_000` and dates are text. Merge keys (`<<`) are
YAML 1.1's and are kept, as configurations use them. A key that a mapping has twice is an error, as one of its values would be
lost. So is a number that a float of 64 bits does not hold.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from beamer.errors import InputError, shortened

_TAGS = "tag:yaml.org,2002:"
_NULL, _BOOL, _INT, _FLOAT, _STR, _MERGE = (_TAGS + name for name in ("null", "bool", "int", "float", "str", "merge"))
# PyYAML would build values of these tags where a file has them.
_OF_OTHER_SCHEMAS = ("binary", "omap", "pairs", "set", "timestamp")

_FORMS: dict[str, tuple[re.Pattern[str], str]] = {
    _NULL: (re.compile(r"(?:~|null|Null|NULL|)\Z"), "~nN"),
    _BOOL: (re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), "tTfF"),
    _INT: (re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"), "-+0123456789"),
    _FLOAT: (
        re.compile(r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"),
        "-+.0123456789",
    ),
}
"""What a plain scalar of each type looks like, and the characters that it may begin with."""

EVERY_KEY = "*"
KeyPath = Sequence[str]
"""Keys from a file's outermost mapping inwards; `EVERY_KEY` stands for each key of a mapping."""


class _CoreLoader(Reader, Scanner, Parser, Composer, SafeConstructor, BaseResolver):
    """PyYAML's safe loader with the schema of YAML 1.2."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        SafeConstructor.__init__(self)
        BaseResolver.__init__(self)

    def read(self, as_written: Sequence[KeyPath]) -> Any:
        """Return the value of the only document. Raises `ValueError` and `yaml.YAMLError`."""
        root = self.get_single_node()
        if root is None:
            return None
        for node in _nodes(root):
            if isinstance(node, MappingNode):
                self._check_keys(node)
        for path in as_written:
            self._keep_written(root, path)
        return self.construct_document(root)

    def _check_keys(self, mapping: MappingNode) -> None:
        """Raise `ValueError` for a key that is there twice; it runs before merge keys bring others' keys in."""
        seen: dict[Any, ScalarNode] = {}
        for key, _ in mapping.value:
            if isinstance(key, ScalarNode):
                identity = (_MERGE,) if key.tag == _MERGE else self.construct_object(key)
                first = seen.setdefault(identity, key)
                if first is not key:
                    raise ValueError(f"{_shown(first)} and {_shown(key)} are one key; remove or rename one of them")

    def _keep_written(self, node: Node, path: KeyPath) -> None:
        """Make text of the numbers and truth values below a path, each as the file has it."""
        if not isinstance(node, MappingNode):
            return
        self.flatten_mapping(node)
        for i, (key, value) in enumerate(node.value):
            if path[0] == EVERY_KEY or (key.tag == _STR and key.value == path[0]):
                if len(path) > 1:
                    self._keep_written(value, path[1:])
                    continue
                own = deepcopy(value)  # An anchor may also make the node a part of a value that is read as numbers.
                for inner in _nodes(own):
                    if isinstance(inner, ScalarNode) and inner.tag in (_BOOL, _INT, _FLOAT):
                        inner.tag = _STR
                node.value[i] = (key, own)

    def scalar(self, node: ScalarNode) -> Any:
        """Return the value of a scalar by its tag, which may stand in the file: `!!int "1_000"` is as wrong as `1_000`."""
        text = str(self.construct_scalar(node))
        if not _FORMS[node.tag][0].match(text):
            raise ConstructorError(None, None, f"{text!r} is no {node.tag.removeprefix(_TAGS)} of YAML 1.2", node.start_mark)
        try:
            return _VALUES[node.tag](text)
        except ValueError as error:
            raise ConstructorError(None, None, f"{shortened(text, 50)} is {error}", node.start_mark) from error

    def text(self, node: ScalarNode) -> str:
        """Return a text; JSON's escapes of a character beyond 16 bits are two, which become one."""
        text = str(self.construct_scalar(node))
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as error:
            raise ConstructorError(None, None, "half of a pair of surrogates is no character", node.start_mark) from error


def _int(text: str) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    try:
        return int(text, base)
    except ValueError:
        raise ValueError("a number with more digits than Python reads") from None


def _float(text: str) -> float:
    name = text.lstrip("+-").lower()
    if name in (".inf", ".nan"):
        return float(text.replace(".", ""))
    value = float(text)
    if math.isinf(value) or (value == 0 and re.search("[1-9]", re.split("[eE]", text)[0])):
        raise ValueError("beyond the numbers that a float of 64 bits holds")
    return value


_VALUES: dict[str, Callable[[str], Any]] = {
    _NULL: lambda text: None,
    _BOOL: lambda text: text.lower() == "true",
    _INT: _int,
    _FLOAT: _float,
}


class _CoreDumper(yaml.SafeDumper):
    """PyYAML's safe dumper, which also quotes texts that are numbers in YAML 1.2 alone, such as 1e8."""


for _tag, (_form, _first) in _FORMS.items():
    _CoreLoader.add_implicit_resolver(_tag, _form, [*_first, *([""] if _tag == _NULL else [])])
    _CoreLoader.add_constructor(_tag, _CoreLoader.scalar)  # type: ignore[type-var]
    _CoreDumper.add_implicit_resolver(_tag, _form, list(_first))
_CoreLoader.add_implicit_resolver(_MERGE, re.compile(r"<<\Z"), ["<"])
_CoreLoader.add_constructor(_STR, _CoreLoader.text)  # type: ignore[type-var]
for _name in _OF_OTHER_SCHEMAS:
    _CoreLoader.add_constructor(_TAGS + _name, SafeConstructor.construct_undefined)  # type: ignore[type-var]


def _nodes(root: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it, each once."""
    seen: set[int] = set()
    left = [root]
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, MappingNode):
            left += [one for pair in node.value for one in pair]
        elif isinstance(node, SequenceNode):
            left += node.value


def _shown(key: ScalarNode) -> str:
    return f"{shortened(key.value, 100)!r} on line {key.start_mark.line + 1}"


def parse_yaml(text: str, field: str, shown: str | None = None, as_written: Sequence[KeyPath] = ()) -> Any:
    """Return the value of a text in YAML 1.2 or JSON.

    as_written: paths below which numbers and truth values become text, each as it is written: `1e-4` stays "1e-4". Raises
    `InputError` about `field` with `shown`, or else the text, as its value.
    """
    value = text if shown is None else shown
    try:
        return _CoreLoader(text).read(as_written)
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(field, value, f"valid YAML ({' '.join(str(error).split())})") from error
    except RecursionError as error:
        raise InputError(field, value, "YAML that is not nested as deeply as this") from error


def parse_scalar(text: str) -> bool | int | float | str:
    """Return what a plain scalar is in YAML 1.2; the text itself where that is no truth value and no finite number."""
    for tag in (_BOOL, _INT, _FLOAT):
        if _FORMS[tag][0].match(text):
            try:
                value: bool | int | float = _VALUES[tag](text)
            except ValueError:
                return text
            return value if math.isfinite(value) else text
    return text


def dump_yaml(data: Any, flow: bool | None = False, width: int = 80) -> str:
    """Return data as YAML that `parse_yaml` reads as the same. flow: PyYAML's `default_flow_style`."""
    return yaml.dump(data, Dumper=_CoreDumper, sort_keys=False, default_flow_style=flow, width=width)


def read_yaml(path: Path, field: str, as_written: Sequence[KeyPath] = ()) -> Any:
    """Return the content of a YAML or JSON file, as `parse_yaml` does.

    Raises `InputError` about `field`, the option or argument that named it.
    """
    return parse_yaml(read_text(path, field), field, str(path), as_written)


def read_mapping(path: Path, field: str, content: str) -> dict[str, Any]:
    """Return the mapping in a file, as `read_yaml` does; content: what it maps, for the message."""
    return parse_mapping(read_text(path, field), field, str(path), content)


def parse_mapping(text: str, field: str, shown: str, content: str, as_written: Sequence[KeyPath] = ()) -> dict[str, Any]:
    """Return the mapping in a text, as `parse_yaml` does; content: what it maps, for the message."""
    data = parse_yaml(text, field, shown, as_written)
    if not isinstance(data, dict):
        raise InputError(field, shown, f"a mapping {content}")
    return data


def read_json(path: Path, field: str) -> Any:
    """Return the content of a JSON file that a program wrote; NaN, Infinity and -Infinity are numbers, as Python writes them.

    Raises `InputError` about `field`, also for an object that has a key twice.
    """
    text = read_text(path, field)
    try:
        return json.loads(text, object_pairs_hook=_object)
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError):
            raise InputError(field, str(path), f"valid JSON ({error})") from error
        parse_yaml(text, field, str(path))  # The YAML parser names the lines of both keys in its error.
        raise InputError(field, str(path), f"valid JSON ({error})") from error
    except RecursionError as error:
        raise InputError(field, str(path), "JSON that is not nested as deeply as this") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        again = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {shortened(again, 100)!r} is there twice; remove or rename one of them")
    return found


def read_text(path: Path, field: str) -> str:
    """Return the text in a file. Raises `InputError` about `field`, the option or argument that named it."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise InputError(field, str(path), f"a readable file ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError(field, str(path), f"text in UTF-8 ({error.reason} at byte {error.start})") from error
