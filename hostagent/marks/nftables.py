"""Commands to nftables (nft(8)) in this network namespace, and what its rules match."""

import logging
import shutil
import subprocess
from typing import Literal

from beamer.errors import PlatformError
from hostagent.capabilities import SEE_DOCS
from hostagent.rate_limited_log import RateLimitedLog

_PATIENCE_S = 2.0
_COUNTED = {"ip": 20, "ip6": 0}  # Bytes of the header that each family's field `length` counts, too.
_WORD = 4  # TCP counts its header in words of so many bytes.
_TCP_HEADERS = range(5, 16)

Family = Literal["ip", "ip6"]
"""What nftables calls IPv4 and IPv6, in the names of tables and in what rules match."""
FAMILIES: tuple[Family, ...] = ("ip", "ip6")


def max_without_data(family: Family) -> int:
    """Return the field `length` of the longest TCP packet that has no data, without IP options."""
    return _COUNTED[family] + _WORD * _TCP_HEADERS[-1]


def without_data(family: Family) -> tuple[str, ...]:
    """Return what matches TCP packets that end with their header: a rule each.

    nftables 1.0.6 takes a set of pairs as well, but then lists no table any more. IP options or extension headers make a packet
    longer, so that these lengths leave no room for data behind them either.
    """
    return tuple(f"{family} length {_COUNTED[family] + _WORD * words} tcp doff {words}" for words in _TCP_HEADERS)


class NftTimeoutError(PlatformError):
    """nft has not answered in time."""


def nft(*arguments: str, script: str | None = None, patience_s: float = _PATIENCE_S) -> str:
    """Run nft, with the commands of `script` on its input, and return what it prints. Raises `PlatformError` with its error."""
    try:
        done = subprocess.run(("nft", *arguments), input=script, capture_output=True, text=True, timeout=patience_s)
    except subprocess.TimeoutExpired as error:
        raise NftTimeoutError(f"nft: {error}", SEE_DOCS) from error
    except OSError as error:
        raise PlatformError(f"nft: {error}", SEE_DOCS) from error
    if done.returncode:
        raise PlatformError(f"nft: {' '.join(done.stderr.split())}", SEE_DOCS)
    return done.stdout


def removal(table: str) -> str:
    """Return the commands that remove a table (`table FAMILY NAME`), whether or not there is one."""
    return f"{table} {{ }}\ndelete {table}\n"


def tables() -> frozenset[str]:
    """Return the tables of this network namespace, each as `table FAMILY NAME`. Raises `PlatformError` without nftables."""
    return frozenset(nft("list", "tables").splitlines())


def removable_tables(limited_log: RateLimitedLog) -> frozenset[str]:
    """Return the tables as `tables` does, for their removal; none where nobody can have made any, as there is no nft.

    Where nft refuses to list them, as of a kernel that has none, that is logged, and none are returned: rules may be left.
    Raises `NftTimeoutError` where it does not answer in time, so that their removal is tried again.
    """
    if shutil.which("nft") is None:
        return frozenset()
    try:
        return tables()
    except NftTimeoutError:
        raise
    except PlatformError as error:
        limited_log.add("rules of nftables may be left, as they are not listed", error, logging.WARNING)
        return frozenset()
