"""Which version of Beamer's protocols a program speaks, and how it deals with a peer that speaks another one.

One number counts for all protocols: HTTP, agents, engines, supervisors, attaching. Version 1 is that of 0.1.0, which says none.

    peer of the same version   what it says is checked as ever: what is unknown is refused
    older by one               the same, and it is sent nothing that it does not know (`Since`)
    newer by one               what it says beyond this program's version is not used, and is named once
    further away               refused, with what is to be upgraded first

Peers that talk over HTTP, WebSockets included, say their version in the header `HEADER`, before any message. A controller adds
what it takes at most: `2;body_bytes=524288` (an item with parameters, RFC 8941, section 3.3). Only the standard library is
imported here.
"""

import json
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from beamer.errors import InputError

FIRST_VERSION = 1
"""The version of a peer that says none."""
PROTOCOL_VERSION = 2
"""The version that this program speaks: it grows by one with a release that changes any of the protocols."""
REACH = 1
"""How many versions a peer may be away."""
HEADER = "Beamer-Protocol"
LINE_KEY = "protocol"
"""Where peers that exchange lines of JSON say their version: supervisors, and clients that attach at an agent."""

_MAX_HEADER_CHARACTERS = 1024
_ITEM = re.compile(r"[1-9]\d{0,5}(;\s*[a-z][a-z0-9_.*-]*=\d{1,15})*")


@dataclass(frozen=True)
class Since:
    """Annotates a field of a message with the version that it came with: `Annotated[int, Since(2)]`, which has a default."""

    version: int


@dataclass(frozen=True)
class PeerProtocol:
    """What a peer says of itself before any message. limits: by name, what it takes at most."""

    version: int = FIRST_VERSION
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_newer(self) -> bool:
        """Whether the peer may say what this program does not know."""
        return self.version > PROTOCOL_VERSION


@lru_cache(maxsize=64)  # A client says the same with every request.
def parse_header(text: str | None) -> PeerProtocol:
    """Return what a header says, version 1 where there is none. Raises `InputError` for another text."""
    if text is None:
        return PeerProtocol()
    if len(text) > _MAX_HEADER_CHARACTERS or not _ITEM.fullmatch(text):
        raise InputError(HEADER, text, "a version such as 2, or one with limits such as 2;body_bytes=524288")
    version, *limits = text.split(";")
    return PeerProtocol(int(version), {name: int(value) for name, _, value in (one.strip().partition("=") for one in limits)})


def version_of_line(line: str | bytes) -> int:
    """Return the version that a line of JSON says in `LINE_KEY`, the first one where it says none that there can be."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return FIRST_VERSION
    version = values.get(LINE_KEY) if isinstance(values, dict) else None
    return version if type(version) is int and version >= FIRST_VERSION else FIRST_VERSION


def format_header(limits: Mapping[str, int] | None = None) -> str:
    """Return what this program says in its header. limits: what it takes at most, by name."""
    return "".join((str(PROTOCOL_VERSION), *(f";{name}={value}" for name, value in (limits or {}).items())))


def check_version(version: int, peer: str, own: str) -> None:
    """Check that a peer is served. peer, own: what the programs are. Raises `InputError` that says what to upgrade first."""
    least, most = max(PROTOCOL_VERSION - REACH, FIRST_VERSION), PROTOCOL_VERSION + REACH
    if not least <= version <= most:
        program, needed = (own, version - REACH) if version > most else (peer, least)
        expected = f"version {least} to {most}: upgrade the {program} to protocol version {needed} first"
        raise InputError("protocol", version, expected)


@cache
def newer_fields(kind: Hashable, version: int) -> frozenset[str]:
    """Return the fields of a class that a peer of a version does not know."""
    return frozenset(name for name, hint in get_type_hints(kind, include_extras=True).items() if since(hint) > version)


def since(hint: Any) -> int:
    """Return the version that an annotated field came with."""
    metadata = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((one.version for one in metadata if isinstance(one, Since)), FIRST_VERSION)
