"""Commands to nftables (nft(8)) in this network namespace, and what its rules match."""

import subprocess

from beamer.errors import PlatformError
from hostagent.capabilities import SEE_DOCS

_PATIENCE_S = 2.0
_IP_HEADER, _WORD = 20, 4  # bytes; TCP counts its header in words
_TCP_HEADERS = range(5, 16)

MAX_WITHOUT_DATA = _IP_HEADER + _WORD * _TCP_HEADERS[-1]
"""Bytes of the longest TCP packet that has no data, without IP options."""
WITHOUT_DATA = tuple(f"ip length {_IP_HEADER + _WORD * words} tcp doff {words}" for words in _TCP_HEADERS)
"""What matches TCP packets that end with their header: a rule each.

nftables 1.0.6 takes a set of pairs as well, but then lists no table any more. An IP header with options is longer, so that
these lengths leave no room for data behind it either.
"""


def nft(*arguments: str, script: str | None = None, patience_s: float = _PATIENCE_S) -> str:
    """Run nft, with the commands of `script` on its input, and return what it prints. Raises `PlatformError` with its error."""
    try:
        done = subprocess.run(("nft", *arguments), input=script, capture_output=True, text=True, timeout=patience_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlatformError(f"nft: {error}", SEE_DOCS) from error
    if done.returncode:
        raise PlatformError(f"nft: {' '.join(done.stderr.split())}", SEE_DOCS)
    return done.stdout


def removal(table: str) -> str:
    """Return the commands that remove a table (`table ip NAME`), whether or not there is one."""
    return f"{table} {{ }}\ndelete {table}\n"


def tables() -> frozenset[str]:
    """Return the tables of this network namespace, each as `table FAMILY NAME`. Raises `PlatformError` without nftables."""
    return frozenset(nft("list", "tables").splitlines())
