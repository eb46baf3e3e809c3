"""Pure acknowledgements leave a host in class 0, whatever class their connection has.

In a class that is seldom served they would wait for seconds on a busy link, and what they acknowledge would stand still on
links that are free. They are small, and carry no data that could overtake any. The kernel marks packets by socket, so netfilter
tells them from data: packets with a class's codepoint that end with their TCP header. An interface's rules are a table of its
own, which also clears the codepoint of acknowledgements from whatever else carries it.
"""

import json
import logging
import re
import zlib
from typing import Any

from beamer.errors import PlatformError
from beamer.network.codepoints import LOCAL, Codepoints
from hostagent.marks.nftables import MAX_WITHOUT_DATA, WITHOUT_DATA, nft, removal
from hostagent.queues.tree import class_id
from hostagent.rate_limited_log import RateLimitedLog

_NAME = re.compile(r"[A-Za-z0-9_.-]+")  # Other characters that an interface's name may have would be read as a command.
_CLASS = f"{class_id(0) >> 16:x}:{class_id(0) & 0xFFFF:x}"


class Acknowledgements:
    """Keeps the rules of this network namespace's interfaces. Belongs to a thread inside it."""

    def __init__(self) -> None:
        self._limited_log = RateLimitedLog()

    def reconcile(self, interface: str, codepoints: Codepoints = LOCAL) -> int:
        """Have acknowledgements leave `interface` in class 0, read that back, and return how many tables were changed for it.

        Where that is not possible they keep their job's class, which is logged.
        """
        try:
            if _is_whole(interface, codepoints):
                return 0
            nft("-f", "-", script=_script(interface, codepoints))
            if not _is_whole(interface, codepoints):
                raise PlatformError(f"{_table(interface)} did not take effect", "let no other program manage it")
        except PlatformError as error:
            self._limited_log.add("acknowledgements keep their job's class", error, logging.WARNING)
            return 0
        return 1

    def remove(self, interface: str) -> None:
        """Remove an interface's rules, if there are any. Raises `PlatformError`."""
        if not _NAME.fullmatch(interface):  # An interface with another name never had any rules.
            return
        try:
            nft("-f", "-", script=removal(_table(interface)))
        except PlatformError:
            if _listed(interface) is not None:
                raise


def _chains(interface: str, codepoints: Codepoints) -> dict[str, tuple[str, ...]]:
    """Return what an interface's table holds, by chain."""
    return {
        "acknowledgement": (f"ip dscp set {codepoints.acknowledgement} meta priority set {_CLASS}",),
        "leaving": (
            f'oifname != "{interface}" accept',
            f"ip dscp {codepoints.acknowledgement} ip dscp set 0",
            f"ip length > {MAX_WITHOUT_DATA} accept",
            f"ip dscp != {{ {', '.join(map(str, codepoints.classes))} }} accept",
            "tcp flags fin,syn,rst accept",
            *(f"{each} goto acknowledgement" for each in WITHOUT_DATA),
        ),
    }


def table_name(interface: str) -> str:
    """Return the name of an interface's table."""
    return f"beamer-{interface}"


def _table(interface: str) -> str:
    return f"table ip {table_name(interface)}"


def _script(interface: str, codepoints: Codepoints) -> str:
    """Return the commands that make an interface's table, in place of any before, in one step."""
    content = _content(interface, codepoints, _digest(interface, codepoints))
    return f"{removal(_table(interface))}{_table(interface)} {{\n{content}}}\n"


def _content(interface: str, codepoints: Codepoints, digest: str) -> str:
    hooks = {"leaving": "type filter hook postrouting priority mangle\n"}
    return "".join(
        f"chain {chain} {{\n{hooks.get(chain, '')}" + "".join(f'{rule} comment "{digest}"\n' for rule in rules) + "}\n"
        for chain, rules in _chains(interface, codepoints).items()
    )


def _digest(interface: str, codepoints: Codepoints) -> str:
    """Return what every rule of an interface's table has as its comment, by which the table is known again."""
    return f"{zlib.crc32(_content(interface, codepoints, '').encode()):08x}"


def _is_whole(interface: str, codepoints: Codepoints) -> bool:
    """Say whether an interface has its rules. Raises `PlatformError` for a name that nftables does not take."""
    if not _NAME.fullmatch(interface):
        raise PlatformError(f"nftables takes no name like {interface}", "give the interface another one")
    found = [each["rule"].get("comment") for each in _listed(interface) or () if "rule" in each]
    return found == [_digest(interface, codepoints)] * sum(map(len, _chains(interface, codepoints).values()))


def _listed(interface: str) -> list[dict[str, Any]] | None:
    """Return the objects of an interface's table; None where there is none, or nothing can be listed."""
    try:
        listed: list[dict[str, Any]] = json.loads(nft("-j", "list", *_table(interface).split()))["nftables"]
    except (PlatformError, ValueError, LookupError):
        return None
    return listed
