"""Whether a controller could listen on an address, and who listens there instead."""

import errno
import os
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from beamer.doctor.findings import Finding, fault, ok, warning
from beamer.errors import InputError
from controller.address import parse_address

_LISTENING = "0A"  # TCP_LISTEN of net/tcp_states.h
_TABLES = ("tcp", "tcp6")
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_OURS = ("beamer-controller", "controller.cli")
_MAX_SHOWN = 100


@dataclass(frozen=True)
class Holder:
    """A process that listens. command: as it was started."""

    pid: int
    command: str

    @property
    def is_controller(self) -> bool:
        """Whether it is one of Beamer's controllers."""
        return any(name in self.command for name in _OURS)


@dataclass(frozen=True)
class AddressFacts:
    """An address to listen on.

    option: that has it. problem: the error number of an attempt, 0 where it is free. not_found: why its name has no address,
    empty where it has one.
    """

    option: str
    address: str
    problem: int = 0
    holder: Holder | None = None
    not_found: str = ""


def try_address(option: str, address: str) -> AddressFacts:
    """Return whether this machine can listen on an address, which is tried and left at once.

    Raises `InputError` for what is not written as an address.
    """
    host, port = parse_address(address, option)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        socket.create_server((host, port), family=family).close()
    except (socket.gaierror, UnicodeError) as error:  # A name with an empty part is a UnicodeError.
        return AddressFacts(option, address, not_found=getattr(error, "strerror", None) or str(error))
    except OSError as error:
        holder = holder_of(port) if error.errno == errno.EADDRINUSE else None
        return AddressFacts(option, address, error.errno or errno.EIO, holder)
    return AddressFacts(option, address)


def judge_addresses(addresses: Iterable[AddressFacts]) -> Iterator[Finding]:
    """Yield whether a controller could listen on each address."""
    for one in addresses:
        named = f"{one.address} ({one.option})"
        if one.not_found:
            fix = f"give {one.option} an address that `ip address` shows, or add the name to /etc/hosts or the name service"
            yield fault(f"{named}: the name is not found ({one.not_found})", fix)
        elif not one.problem:
            yield ok(f"{named} is free")
        elif one.holder is not None and one.holder.is_controller:
            yield ok(f"{named}: a controller listens there, process {one.holder.pid}")
        elif one.problem == errno.EADDRINUSE:
            who = f"process {one.holder.pid} ({one.holder.command})" if one.holder else "a process that only root may see"
            end = f"end it (kill {one.holder.pid})" if one.holder else f"find it as root: ss -ltnp 'sport = :{_port(one)}'"
            yield fault(f"{named}: {who} listens there", f"{end}, or give another address with {one.option}")
        elif one.problem == errno.EADDRNOTAVAIL:
            fix = f"give {one.option} one that `ip address` shows, or add it: ip address add ADDRESS/PREFIX dev INTERFACE"
            yield fault(f"{named} is no address of this machine", fix)
        else:
            yield fault(f"{named}: {os.strerror(one.problem)}", f"give another address with {one.option}")


def holder_of(port: int, proc: Path = Path("/proc")) -> Holder | None:
    """Return who listens on a port of this network namespace, None where that cannot be seen."""
    inodes = set(_inodes(port, proc))
    if not inodes:
        return None
    for entry in proc.iterdir():
        if entry.name.isdecimal() and inodes & set(_sockets(entry)):
            return Holder(int(entry.name), _command(entry))
    return None


def judge_exposure(refused: InputError | None) -> Iterator[Finding]:
    """Yield whether credentials are there where others than this machine reach an address."""
    if refused is None:
        yield ok("whoever reaches the controller has to show who they are, or is on this machine")
    else:
        yield fault(
            f"{refused.field} {refused.value} is reached from other machines, without credentials", f"give {refused.expected}"
        )


def judge_time(synchronised: bool) -> Iterator[Finding]:
    """Yield whether this machine's clock is synchronised."""
    if synchronised:
        yield ok("the clock is synchronised")
    else:
        yield warning("the clock is not synchronised: tokens and certificates expire by it", "timedatectl set-ntp true")


def _inodes(port: int, proc: Path) -> Iterator[str]:
    for table in _TABLES:
        try:
            lines = (proc / "thread-self" / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _sockets(entry: Path) -> Iterator[str]:
    try:
        for descriptor in (entry / "fd").iterdir():
            if match := _SOCKET.fullmatch(os.readlink(descriptor)):
                yield match[1]
    except OSError:  # The process is another user's, or has ended.
        return


def _command(entry: Path) -> str:
    try:
        words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "that has ended"
    return " ".join(words).strip()[:_MAX_SHOWN]


def _port(one: AddressFacts) -> str:
    return one.address.rpartition(":")[2]
