"""The fields of dataclasses and pydantic models, each with the docstring that stands below it."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

NO_DEFAULT = ""


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
            texts |= docstrings(base)
    for name, default in _defaults(record):
        yield DocumentedField(name, kind_of(record, name), default, " ".join(texts.get(name, "").split()))


def docstrings(record: type) -> dict[str, str]:
    """Return the docstrings below a class's own attributes."""
    (tree,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(record))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for one, after in zip(tree.body, tree.body[1:], strict=False):
        is_field = isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        if is_field and isinstance(text, str):
            found[one.target.id] = text
    return found


def _defaults(record: type) -> Iterator[tuple[str, str]]:
    if issubclass(record, BaseModel):
        for name, field in record.model_fields.items():
            yield name, NO_DEFAULT if field.default is PydanticUndefined else repr(field.default)
    elif is_dataclass(record):
        for one in fields(record):
            if one.init:
                yield one.name, _default(one)


def _default(field: "Field[Any]") -> str:
    if field.default is not MISSING:
        return repr(field.default)
    return NO_DEFAULT if field.default_factory is MISSING else repr(field.default_factory())


def kind_of(record: type, name: str) -> str:
    """Return the type of a field as it is written, without what restricts it."""
    hint = get_type_hints(record).get(name)
    text = hint.__name__ if isinstance(hint, type) and not getattr(hint, "__args__", ()) else str(hint)
    for noise in ("typing.", "collections.abc."):
        text = text.replace(noise, "")
    parts = text.replace("beamer.", "\0").split("\0")
    return parts[0] + "".join(part.rpartition(".")[2] if "." in part else part for part in parts[1:])
