"""Messages of the Open vSwitch database protocol (RFC 7047): JSON texts that follow each other without anything between them.

The `ovs` library has a client of its own, which is not used: it waits by `select()`, which takes no descriptor
above 1023; it has one set of TLS files per process, and accepts any certificate of their authority; and it reads without bound.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MOST_BYTES = 4 << 20  # A message may be so long: the rows of 1500 ports with nine queues each; parsed in 0.2 s.

Row = Mapping[str, Any]
"""The columns of a row as the database writes them."""
Operation = dict[str, Any]

_MARK = re.compile(rb'\\.|["{}\[\]]', re.DOTALL)


class OvsdbError(Exception):
    """A database cannot be used, for the reason that the text says."""


class Splitter:
    """Splits what is received into messages; each byte is looked at once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of the message that has begun
        self._bytes = 0
        self._cut = b""  # A backslash whose other half is still to come.
        self._depth = 0
        self._in_text = False

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the messages that end within `data`. Raises `OvsdbError` for what is none."""
        data = self._cut + data
        self._cut = b"\\" if (len(data) - len(data.rstrip(b"\\"))) % 2 else b""
        data = data[: len(data) - len(self._cut)]
        at = 0
        for mark in _MARK.finditer(data):
            token = mark[0]
            if token == b'"':
                self._in_text = not self._in_text
            elif not self._in_text and len(token) == 1:
                self._depth += 1 if token in b"{[" else -1
                if self._depth <= 0:
                    text = b"".join((*self._parts, data[at : mark.end()]))
                    self._parts, self._bytes, self._depth, at = [], 0, 0, mark.end()
                    yield _message(text)
        self._parts.append(data[at:])
        self._bytes += len(data) - at
        if self._bytes > MOST_BYTES:
            raise OvsdbError(f"it sends a message of more than {MOST_BYTES} bytes")


def _message(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OvsdbError("it sends what is no JSON: is this a database's address?") from error
    if not isinstance(found, dict):
        raise OvsdbError("it sends what is no message of RFC 7047")
    return found


def request(method: str, params: Iterable[Any], number: int) -> bytes:
    """Return a request. number: names its answer."""
    return _encoded({"method": method, "params": list(params), "id": number})


def echo_reply(message: Mapping[str, Any]) -> bytes:
    """Return the answer to the peer's question whether this side is there."""
    return _encoded({"result": message.get("params"), "error": None, "id": message.get("id")})


def _encoded(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def uuid_of(value: Any) -> str | None:
    """Return what a column that refers to one row at most names."""
    found = uuids_of(value)
    return found[0] if found else None


def uuids_of(value: Any) -> list[str]:
    """Return what a column that refers to rows names."""
    return [one[1] for one in set_of(value)]


def set_of(value: Any) -> list[Any]:
    """Return the members of a set, which is written as its one member where it has no others."""
    return list(value[1]) if isinstance(value, list) and value[:1] == ["set"] else [value]


def map_of(value: Any) -> dict[Any, Any]:
    """Return a map."""
    return dict(value[1])


def as_map(values: Mapping[Any, Any]) -> list[Any]:
    """Return a map as a database reads it."""
    return ["map", [[key, item] for key, item in values.items()]]


def as_set(values: Iterable[Any]) -> list[Any]:
    """Return a set as a database reads it."""
    return ["set", list(values)]


def as_uuid(row: str) -> list[str]:
    """Return a reference to a row."""
    return ["uuid", row]


def the_row(row: str) -> list[Any]:
    """Return the condition that only this row fulfils."""
    return [["_uuid", "==", as_uuid(row)]]
