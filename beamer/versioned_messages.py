"""Messages in pydantic's models, to and from peers of other versions of a protocol: see `beamer.protocol_version`.

A field is annotated with `Since`; a message of its own kind names its version in a class variable `since`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError

from beamer.errors import shortened
from beamer.protocol_version import FIRST_VERSION, PROTOCOL_VERSION, newer_fields
from beamer.validation import UNKNOWN_KEY

T = TypeVar("T")

MAX_NAMED = 20  # At most so many unknown fields of a message are named.
MAX_NAME_CHARACTERS = 100  # The limit applies to each name, as the peer has chosen it and logs remember it.
_UNKNOWN_KIND = "union_tag_invalid"
_ALL = "__all__"  # pydantic's name for each element


@dataclass(frozen=True)
class Decoded(Generic[T]):
    """A message as far as it is known. message: None for one of an unknown kind. unused: names of what is not known."""

    message: T | None
    unused: tuple[str, ...] = ()


def is_known(kind: type, version: int) -> bool:
    """Return whether this program and a peer of a version both know messages of a class."""
    since: int = getattr(kind, "since", FIRST_VERSION)
    return since <= min(version, PROTOCOL_VERSION)


def encode(message: BaseModel, version: int) -> str:
    """Return a message as JSON for a peer of a version, without the fields that it does not know."""
    if version >= PROTOCOL_VERSION:
        return message.model_dump_json()
    return message.model_dump_json(exclude=_newer(type(message), version) or None)


def decode(adapter: TypeAdapter[T], text: str | bytes, version: int) -> Decoded[T]:
    """Return the message that a peer of a version has sent. Raises pydantic's `ValidationError`.

    What is unknown is refused unless the peer is newer.
    """
    try:
        return Decoded(adapter.validate_json(text))
    except ValidationError as error:
        unused = unknown_names(error) if version > PROTOCOL_VERSION else ()
        if not unused:
            raise
        if any(finding["type"] == _UNKNOWN_KIND and not finding["loc"] for finding in _findings(error)):
            return Decoded(None, unused)
    return Decoded(adapter.validate_json(text, extra="ignore"), unused)


def unknown_names(error: ValidationError) -> tuple[str, ...]:
    """Return the names of the fields and kinds that are unknown in a message, each once, at most `MAX_NAMED`.

    Of a long name there is the beginning.
    """
    return tuple(dict.fromkeys(shortened(name, MAX_NAME_CHARACTERS) for name in _names(error)))[:MAX_NAMED]


def _names(error: ValidationError) -> Iterable[str]:
    for finding in _findings(error):
        if finding["type"] in UNKNOWN_KEY:
            yield ".".join(part for part in finding["loc"] if isinstance(part, str))
        elif finding["type"] == _UNKNOWN_KIND:
            yield ".".join((*(part for part in finding["loc"] if isinstance(part, str)), str(finding["ctx"]["tag"])))


def _findings(error: ValidationError) -> list[Any]:
    return error.errors(include_url=False, include_input=False)


@cache
def _newer(kind: Any, version: int) -> dict[Any, Any]:
    """Return what pydantic is to exclude of a type so that a peer of a version knows all that is left."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _newer(arguments[0], version)
    if origin is tuple and arguments[-1:] != (Ellipsis,):
        return {number: inner for number, one in enumerate(arguments) if (inner := _newer(one, version))}
    if origin in (tuple, list, dict):
        element = arguments[0] if origin is tuple else arguments[-1]
        return {_ALL: inner} if (inner := _newer(element, version)) else {}
    if origin is not None:
        return {name: inner for one in arguments for name, inner in _newer(one, version).items()}
    if not isinstance(kind, type) or not (issubclass(kind, BaseModel) or is_dataclass(kind)):
        return {}
    unknown = newer_fields(kind, version)
    hints = get_type_hints(kind, include_extras=True)
    names = kind.model_fields if issubclass(kind, BaseModel) else hints
    nested = {name: _newer(hints[name], version) for name in names if name not in unknown}
    return {**dict.fromkeys(sorted(unknown), True), **{name: inner for name, inner in nested.items() if inner}}
