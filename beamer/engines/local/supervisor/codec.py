"""Dataclasses as JSON and back, checked: what is missing, unknown or of another type is named with its place.

Fields may be of the types str, int, float, bool, of enumerations of strings, dataclasses, tuples of these, and optional ones.
Only the standard library is imported here.
"""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from beamer.errors import InputError, nearest
from beamer.protocol_version import PROTOCOL_VERSION, newer_fields

T = TypeVar("T")


def encode(value: Any, version: int = PROTOCOL_VERSION) -> str:
    """Return a dataclass, or JSON with dataclasses in it, as a line of JSON that a peer of a version can read."""
    return json.dumps(value, default=vars if version >= PROTOCOL_VERSION else lambda one: values(one, version))


def values(value: Any, version: int) -> dict[str, Any]:
    """Return a dataclass's fields, without those that a peer of a version does not know."""
    content: dict[str, Any] = vars(value)
    if version >= PROTOCOL_VERSION:
        return content
    unknown = newer_fields(cast("Hashable", type(value)), version)
    return {name: inner for name, inner in content.items() if name not in unknown}


def decode(kind: type[T], value: Any, where: str = "") -> T:
    """Return the dataclass of a parsed JSON object. where: its name in errors. Raises `InputError` naming the field."""
    try:
        found: T = _decoder(cast("Hashable", kind))(value)
    except InputError as error:
        raise InputError(_path(where, error.field), error.value, error.expected) from error
    return found


def known_part(kind: Any, value: Any, where: str = "") -> tuple[Any, tuple[str, ...]]:
    """Return what a newer peer has sent, without the fields that a type lacks, and the names of these.

    Whatever is not of the type stays as it is, for `decode` to refuse.
    """
    if get_origin(kind) is UnionType:
        # The other kind is found as by `_optional`, which decodes it.
        (kind,) = (one for one in get_args(kind) if one is not NoneType)
    if get_origin(kind) is tuple and isinstance(value, list):
        inner = get_args(kind)
        kinds = [inner[0]] * len(value) if inner[-1:] == (Ellipsis,) else [*inner, *[None] * len(value)]
        return _merged([known_part(one, item, where) for one, item in zip(kinds, value, strict=False)])
    if not is_dataclass(kind) or not isinstance(value, dict):
        return value, ()
    hints = _hints(cast("Hashable", kind))
    known = {name: known_part(hints[name], item, _path(where, name)) for name, item in value.items() if name in hints}
    content, unused = _merged(list(known.values()))
    return dict(zip(known, content, strict=True)), (*(_path(where, name) for name in value if name not in hints), *unused)


def _merged(parts: Sequence[tuple[Any, tuple[str, ...]]]) -> tuple[Any, tuple[str, ...]]:
    return [part for part, _ in parts], tuple(dict.fromkeys(name for _, names in parts for name in names))


def _path(where: str, inner: str) -> str:
    return where + ("." if where and inner and not inner.startswith("[") else "") + inner


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _decoder(kind: Any) -> Callable[[Any], Any]:
    """Return what turns JSON into a type: made once per type, as answers hold thousands of reports."""
    if get_origin(kind) is tuple:
        return _tuple(get_args(kind))
    if get_origin(kind) is UnionType:
        return _optional(kind)
    if is_dataclass(kind):
        return _dataclass(kind)
    if issubclass(kind, StrEnum):
        return _enum(kind)
    return _plain(kind)


def _optional(kind: Any) -> Callable[[Any], Any]:
    (inner,) = (_decoder(one) for one in get_args(kind) if one is not NoneType)
    return lambda value: None if value is None else inner(value)


def _plain(kind: type) -> Callable[[Any], Any]:
    accepted: Any = (int, float) if kind is float else kind

    def decoded(value: Any) -> Any:
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise InputError("", value, f"a value of type {kind.__name__}")
        return float(value) if kind is float else value

    return decoded


def _enum(kind: type[StrEnum]) -> Callable[[Any], Any]:
    def decoded(value: Any) -> Any:
        try:
            return kind(value)
        except ValueError as error:
            raise InputError("", value, nearest(str(value), kind)) from error

    return decoded


def _tuple(kinds: tuple[Any, ...]) -> Callable[[Any], Any]:
    repeated = kinds[-1] is Ellipsis
    decoders = [_decoder(one) for one in kinds if one is not Ellipsis]

    def decoded(value: Any) -> Any:
        if not isinstance(value, list | tuple) or not (repeated or len(value) == len(decoders)):
            raise InputError("", value, "a list" if repeated else f"a list of {len(decoders)}")
        found = []
        for i, item in enumerate(value):
            try:
                found.append(decoders[0 if repeated else i](item))
            except InputError as error:
                raise InputError(_path(f"[{i}]", error.field), error.value, error.expected) from error
        return tuple(found)

    return decoded


def _dataclass(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    decoders = {field.name: _decoder(hints[field.name]) for field in fields(kind)}
    required = {field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING}

    def decoded(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise InputError("", value, f"an object with the fields of {kind.__name__}")
        for name in value:
            if name not in decoders:
                raise InputError(str(name), value[name], f"a field of {kind.__name__}: {nearest(str(name), decoders)}")
        found = {}
        for name, inner in decoders.items():
            if name in value:
                try:
                    found[name] = inner(value[name])
                except InputError as error:
                    raise InputError(_path(name, error.field), error.value, error.expected) from error
            elif name in required:
                raise InputError(name, None, f"a value, as {kind.__name__} requires it")
        return kind(**found)

    return decoded
