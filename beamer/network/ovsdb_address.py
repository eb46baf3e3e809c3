"""Where the database of an Open vSwitch is, in the notation of ovsdb(7): `ssl:IP:PORT`, `tcp:IP:PORT` or `unix:FILE`."""

import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal

from beamer.errors import InputError

OVSDB_PORT = 6640  # The registered one.
_EXPECTED = (
    f"'ssl:10.0.0.5:{OVSDB_PORT}', 'tcp:10.0.0.5:{OVSDB_PORT}', with an IP address, of IPv6 in brackets, "
    "or 'unix:/run/openvswitch/db.sock'"
)
_REACHED = re.compile(r"(ssl|tcp):(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)):([0-9]{1,5})")
_MOST = 107  # So many bytes has the name of a socket in Linux.


@dataclass(frozen=True)
class OvsdbAddress:
    """The address of a database. host: an IP address, or the file of a socket, whose port is 0."""

    scheme: Literal["ssl", "tcp", "unix"]
    host: str
    port: int = 0

    @property
    def is_local(self) -> bool:
        """Whether nothing but this machine is between the database and whoever connects."""
        return self.scheme == "unix" or ip_address(self.host).is_loopback


def parse_ovsdb_address(text: str, field: str) -> OvsdbAddress:
    """Return an address as the network's file has it. Raises `InputError`."""
    if text.startswith("unix:/") and "\0" not in text and len(text[5:].encode()) <= _MOST:
        return OvsdbAddress("unix", text[5:])
    found = _REACHED.fullmatch(text)
    if found is None or not 1 <= int(found[4]) <= 65535:
        raise InputError(field, text, _EXPECTED)
    try:
        host = ip_address(found[2] or found[3])
    except ValueError:
        raise InputError(field, text, _EXPECTED) from None
    if (host.version == 6) != (found[2] is not None):
        raise InputError(field, text, _EXPECTED)
    return OvsdbAddress("ssl" if found[1] == "ssl" else "tcp", str(host), int(found[4]))
