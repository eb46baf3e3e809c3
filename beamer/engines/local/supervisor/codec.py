"""Dataclasses as JSON and back, checked: what is missing, unknown or of another type is named with its place.

Fields may be of the types str, int, float, bool, of enumerations of strings, dataclasses, tuples of these, and optional ones.
Only the standard library is imported here.
"""

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from beamer.errors import InputError, nearest
from beamer.protocol_version import PROTOCOL_VERSION, newer_fields

T = TypeVar("T")
Unused = list[str] | None
Decoder = Callable[[Any, Unused], Any]
"""Returns the value of some JSON; as of `decode`."""


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


def decode(kind: type[T], value: Any, where: str = "", unused: Unused = None) -> T:
    """Return the dataclass of a parsed JSON object. where: its name in errors. Raises `InputError` naming the field.

    unused: takes the names of fields that the type lacks, as what a newer peer sends may have more; None: they are refused.
    """
    below: Unused = None if unused is None else []
    try:
        found: T = _decoder(cast("Hashable", kind))(value, below)
    except InputError as error:
        raise InputError(_path(where, error.field), error.value, error.expected) from error
    if unused is not None and below:
        unused += dict.fromkeys(_path(where, name) for name in below)
    return found


def _path(where: str, inner: str) -> str:
    return where + ("." if where and inner and not inner.startswith("[") else "") + inner


@cache
def _decoder(kind: Any) -> Decoder:
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


def _optional(kind: Any) -> Decoder:
    (inner,) = (_decoder(one) for one in get_args(kind) if one is not NoneType)
    return lambda value, unused: None if value is None else inner(value, unused)


def _plain(kind: type) -> Decoder:
    accepted: Any = (int, float) if kind is float else kind

    def decoded(value: Any, unused: Unused) -> Any:
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise InputError("", value, f"a value of type {kind.__name__}")
        return float(value) if kind is float else value

    return decoded


def _enum(kind: type[StrEnum]) -> Decoder:
    def decoded(value: Any, unused: Unused) -> Any:
        try:
            return kind(value)
        except ValueError as error:
            raise InputError("", value, nearest(str(value), kind)) from error

    return decoded


def _tuple(kinds: tuple[Any, ...]) -> Decoder:
    repeated = kinds[-1] is Ellipsis
    decoders = [_decoder(one) for one in kinds if one is not Ellipsis]

    def decoded(value: Any, unused: Unused) -> Any:
        if not isinstance(value, list | tuple) or not (repeated or len(value) == len(decoders)):
            raise InputError("", value, "a list" if repeated else f"a list of {len(decoders)}")
        found = []
        for i, item in enumerate(value):
            try:
                found.append(decoders[0 if repeated else i](item, unused))
            except InputError as error:
                raise InputError(_path(f"[{i}]", error.field), error.value, error.expected) from error
        return tuple(found)

    return decoded


def _dataclass(kind: Any) -> Decoder:
    hints = get_type_hints(kind)
    decoders = {field.name: _decoder(hints[field.name]) for field in fields(kind)}
    required = {field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING}

    def decoded(value: Any, unused: Unused) -> Any:
        if not isinstance(value, Mapping):
            raise InputError("", value, f"an object with the fields of {kind.__name__}")
        for name in value:
            if name not in decoders:
                if unused is None:
                    raise InputError(str(name), value[name], f"a field of {kind.__name__}: {nearest(str(name), decoders)}")
                unused.append(str(name))
        found = {}
        for name, inner in decoders.items():
            if name in value:
                below: Unused = None if unused is None else []
                try:
                    found[name] = inner(value[name], below)
                except InputError as error:
                    raise InputError(_path(name, error.field), error.value, error.expected) from error
                if unused is not None and below:
                    unused += [_path(name, one) for one in below]
            elif name in required:
                raise InputError(name, None, f"a value, as {kind.__name__} requires it")
        return kind(**found)

    return decoded
