"""Pure acknowledgements leave a host in class 0, whatever class their connection has.

In a class that is seldom served they would wait for seconds on a busy link, and what they acknowledge would stand still on
links that are free. They are small, and carry no data that could overtake any. The kernel marks packets by socket, so netfilter
tells them from data: packets with a class's codepoint that end with their TCP header. An interface's rules are a table of its
own for each family of addresses, which also clears the codepoint of acknowledgements from whatever else carries it.
"""

import json
import logging
import re
import zlib
from collections.abc import Iterable
from typing import Any

from beamer.errors import PlatformError
from beamer.network.codepoints import LOCAL, Codepoints
from hostagent.marks.nftables import FAMILIES, Family, max_without_data, nft, removable_tables, removal, without_data
from hostagent.queues.tree import class_id
from hostagent.rate_limited_log import RateLimitedLog

_NAME = re.compile(r"[A-Za-z0-9_.-]+")  # Other characters that an interface's name may have would be read as a command.
_CLASS = f"{class_id(0) >> 16:x}:{class_id(0) & 0xFFFF:x}"


class Acknowledgements:
    """Keeps the rules of this network namespace's interfaces. Belongs to a thread inside it."""

    def __init__(self) -> None:
        self._limited_log = RateLimitedLog()
        self._without_ipv6: set[str] = set()  # The interfaces that have no rules for IPv6, as far as this object knows.

    def reconcile(self, interface: str, codepoints: Codepoints = LOCAL, *, ipv6: bool = False) -> int:
        """Have acknowledgements leave `interface` in class 0, read that back, and return how many tables were changed for it.

        ipv6: also those over IPv6, whose rules are else removed. Where that is not possible they keep their job's class, which
        is logged. Raises `PlatformError` for rules that cannot be removed.
        """
        changes = 0
        if ipv6:
            self._without_ipv6.discard(interface)
        elif interface not in self._without_ipv6:
            changes += self._remove(interface, FAMILIES[1:])
            self._without_ipv6.add(interface)
        for family in FAMILIES if ipv6 else FAMILIES[:1]:
            try:
                if _is_whole(interface, codepoints, family):
                    continue
                nft("-f", "-", script=_script(interface, codepoints, family))
                if not _is_whole(interface, codepoints, family):
                    raise PlatformError(f"{_table(interface, family)} did not take effect", "let no other program manage it")
            except PlatformError as error:
                self._limited_log.add("acknowledgements keep their job's class", error, logging.WARNING)
            else:
                changes += 1
        return changes

    def remove(self, interface: str) -> None:
        """Remove an interface's rules, if there are any. Raises `PlatformError`.

        Where nftables does not say what there is, that is logged.
        """
        self._remove(interface, FAMILIES)

    def _remove(self, interface: str, families: Iterable[Family]) -> int:
        """Remove an interface's tables of some families, and return how many there were. Raises `PlatformError`."""
        if not _NAME.fullmatch(interface):  # An interface with another name never had any rules.
            return 0
        found = removable_tables(self._limited_log)
        present = [table for family in families if (table := _table(interface, family)) in found]
        if present:
            nft("-f", "-", script="".join(map(removal, present)))
        return len(present)


def _chains(interface: str, codepoints: Codepoints, family: Family) -> dict[str, tuple[str, ...]]:
    """Return what an interface's table holds, by chain."""
    return {
        "acknowledgement": (f"{family} dscp set {codepoints.acknowledgement} meta priority set {_CLASS}",),
        "leaving": (
            f'oifname != "{interface}" accept',
            f"{family} dscp {codepoints.acknowledgement} {family} dscp set 0",
            f"{family} length > {max_without_data(family)} accept",
            f"{family} dscp != {{ {', '.join(map(str, codepoints.classes))} }} accept",
            "tcp flags fin,syn,rst accept",
            *(f"{each} goto acknowledgement" for each in without_data(family)),
        ),
    }


def table_name(interface: str) -> str:
    """Return the name of an interface's tables, of each family one."""
    return f"beamer-{interface}"


def _table(interface: str, family: Family) -> str:
    return f"table {family} {table_name(interface)}"


def _script(interface: str, codepoints: Codepoints, family: Family) -> str:
    """Return the commands that make an interface's table, in place of any before, in one step."""
    table = _table(interface, family)
    content = _content(interface, codepoints, _digest(interface, codepoints, family), family)
    return f"{removal(table)}{table} {{\n{content}}}\n"


def _content(interface: str, codepoints: Codepoints, digest: str, family: Family) -> str:
    hooks = {"leaving": "type filter hook postrouting priority mangle\n"}
    return "".join(
        f"chain {chain} {{\n{hooks.get(chain, '')}" + "".join(f'{rule} comment "{digest}"\n' for rule in rules) + "}\n"
        for chain, rules in _chains(interface, codepoints, family).items()
    )


def _digest(interface: str, codepoints: Codepoints, family: Family) -> str:
    """Return what every rule of an interface's table has as its comment, by which the table is known again."""
    return f"{zlib.crc32(_content(interface, codepoints, '', family).encode()):08x}"


def _is_whole(interface: str, codepoints: Codepoints, family: Family) -> bool:
    """Say whether an interface has its rules. Raises `PlatformError` for a name that nftables does not take."""
    if not _NAME.fullmatch(interface):
        raise PlatformError(f"nftables takes no name like {interface}", "give the interface another one")
    found = [each["rule"].get("comment") for each in _listed(interface, family) or () if "rule" in each]
    rules = sum(map(len, _chains(interface, codepoints, family).values()))
    return found == [_digest(interface, codepoints, family)] * rules


def _listed(interface: str, family: Family) -> list[dict[str, Any]] | None:
    """Return the objects of an interface's table; None where there is none, or nothing can be listed."""
    try:
        listed: list[dict[str, Any]] = json.loads(nft("-j", "list", *_table(interface, family).split()))["nftables"]
    except (PlatformError, ValueError, LookupError):
        return None
    return listed
