"""The fields of dataclasses and pydantic models, each with the docstring that stands below it."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, get_type_hints

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

NO_DEFAULT = ""
_QUALIFIED = re.compile(
    r"\b(?:[A-Za-z_]\w*\.)+_?(?=[A-Za-z])"
)  # the modules before a name, and the underscore of a private one


@dataclass(frozen=True)
class DocumentedField:
    """A field. kind: its type. default: as code, empty where a value has to be given."""

    name: str
    kind: str
    default: str
    text: str


def documented(record: type) -> Iterator[DocumentedField]:
    """Yield the fields of a dataclass or model that may be set, those of its base classes first."""
    texts: dict[str, str] = {}
    for base in reversed(record.__mro__):
        if base.__module__.split(".")[0] in ("beamer", "controller", "hostagent", "topologies"):
            texts |= attribute_docstrings(base)
    for name, default in _defaults(record):
        yield DocumentedField(name, kind_of(record, name), default, " ".join(texts.get(name, "").split()))


def attribute_docstrings(record: type) -> dict[str, str]:
    """Return the docstrings below a class's own attributes."""
    (tree,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(record))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for one, after in zip(tree.body, tree.body[1:], strict=False):
        target = one.target if isinstance(one, ast.AnnAssign) else one.targets[0] if isinstance(one, ast.Assign) else None
        text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        if isinstance(target, ast.Name) and isinstance(text, str):
            found[target.id] = text
    return found


def _defaults(record: type) -> Iterator[tuple[str, str]]:
    if issubclass(record, BaseModel):
        for name, field in record.model_fields.items():
            yield name, NO_DEFAULT if field.default is PydanticUndefined else shown(field.default)
    elif is_dataclass(record):
        for one in fields(record):
            if one.init:
                yield one.name, _default(one)


def _default(field: "Field[Any]") -> str:
    if field.default is not MISSING:
        return shown(field.default)
    return NO_DEFAULT if field.default_factory is MISSING else shown(field.default_factory())


def kind_of(record: type, name: str) -> str:
    """Return the type of a field as it is written, without what restricts it."""
    hint = get_type_hints(record).get(name)
    text = hint.__name__ if isinstance(hint, type) and not getattr(hint, "__args__", ()) else str(hint)
    return re.sub(r"Optional\[([^\[\]]*)\]", r"\1 | None", _QUALIFIED.sub("", text)).replace("NoneType", "None")


def shown(value: object) -> str:
    """Return a default as it is written in a file or a call."""
    return repr(value.value) if isinstance(value, Enum) else repr(value)
