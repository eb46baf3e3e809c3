"""What trainers pass, in forms that the controller takes: what is certain is understood, all else is left to be refused."""

import itertools
import math
import socket
from contextlib import suppress
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

from beamer.studies.model import Worker
from beamer.units import whole

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ADDRESSES = Path("/proc/net/fib_trie")  # The kernel's IPv4 routing table: its local entries are this machine's addresses.
_IPV6_ADDRESSES = Path("/proc/net/if_inet6")  # address, interface's number, prefix, scope, flags and interface of each
_GLOBAL_SCOPE = "00"
MAX_ADDRESSES = 256  # A controller takes so many of a machine.


def count(value: Any) -> Any:
    """Return a number without a fraction, such as `1.0` or `1e8`, as an integer, those of NumPy and PyTorch too."""
    number = value
    if hasattr(value, "item"):
        with suppress(Exception):  # A tensor of several numbers raises an exception of its own kind.
            number = value.item()
    known = whole(number)
    return known if known is not number else value


def finite_or_name(loss: Any) -> Any:
    """Return a loss as a number, or as its name where it is not finite, which JSON does not have."""
    try:
        number = float(loss)
    except Exception:  # noqa: BLE001  A tensor of several numbers raises an exception of its own kind.
        return loss
    return number if math.isfinite(number) else str(number)


def listed(values: Any) -> Any:
    """Return a sequence as a list."""
    try:
        return list(values)
    except Exception:  # noqa: BLE001  The values are the trainer's.
        return values


def workers_of(workers: Any) -> Any:
    """Return workers with their ranks: a bare host is the worker whose rank is its position, one host alone the only one."""
    found = [workers] if isinstance(workers, str | Worker) else listed(workers)
    if not isinstance(found, list):
        return workers
    return [Worker(rank, one) if isinstance(one, str) else one for rank, one in enumerate(found)]


def this_machine(workers: Any) -> dict[str, list[str]] | None:
    """Return by which names and addresses this machine is known, None where no worker is said to run on it by such a name."""
    try:
        own = socket.gethostname()
        names = [*_LOOPBACK, own, own.partition(".")[0]]
        hosts = {one.host for one in workers if isinstance(one, Worker)}
        if hosts.isdisjoint(names):
            return None
        return {"names": [*dict.fromkeys(names)], "addresses": _own_addresses()}
    except Exception:  # noqa: BLE001  The workers are the trainer's.
        return None


def _own_addresses() -> list[str]:
    """Return the addresses of this machine but for loopback and link-local ones, those that can be read."""
    found: list[str] = []
    with suppress(OSError, IndexError):
        lines = _ADDRESSES.read_text().splitlines()
        local = [before.split()[-1] for before, line in itertools.pairwise(lines) if "/32 host LOCAL" in line]
        found += [address for address in dict.fromkeys(local) if not address.startswith("127.")]
    with suppress(OSError, ValueError):
        rows = [line.split() for line in _IPV6_ADDRESSES.read_text().splitlines()]
        found += [str(IPv6Address(int(address, 16))) for address, _, _, scope, *_ in rows if scope == _GLOBAL_SCOPE]
    return found[:MAX_ADDRESSES]
