"""Network namespaces with a cable between them, for tests of host agents."""

import ctypes
import os
import re
import signal
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from topologies.emulation.socket_tables import CHILD_TABLES, TABLE_ENTRIES

_Result = TypeVar("_Result")
_CLONE_NEWNET = 0x40000000
_PATIENCE_S = 60  # a machine may be overloaded
_OWNED = re.compile(r"beamer-t(\d+)-")


class Namespace:
    """A network namespace with its loopback up."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, *command: str) -> str:
        """Run a command inside and return what it printed. Raises `CalledProcessError` if it fails."""
        return subprocess.run(
            ["ip", "netns", "exec", self.name, *command], check=True, capture_output=True, text=True, timeout=_PATIENCE_S
        ).stdout

    def popen(self, *command: str, **options: Any) -> "subprocess.Popen[str]":
        """Start a command inside."""
        return subprocess.Popen(["ip", "netns", "exec", self.name, *command], text=True, **options)

    def call(self, function: Callable[[], _Result]) -> _Result:
        """Call `function` in a thread that has entered the namespace; sockets made there stay in it."""
        outcome: list[_Result] = []
        failure: list[BaseException] = []

        def inside() -> None:
            try:
                with entered(self.name):
                    outcome.append(function())
            except BaseException as error:  # noqa: BLE001 - raised to the caller below
                failure.append(error)

        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
        if failure:
            raise failure[0]
        return outcome[0]


@contextmanager
def entered(name: str) -> Iterator[None]:
    """Have this thread in a network namespace; sockets made, threads and processes started there stay in it."""
    with open("/proc/thread-self/ns/net") as before, open(f"/run/netns/{name}") as wanted:
        _enter(wanted)
        try:
            yield
        finally:
            _enter(before)


def _enter(namespace: IO[str]) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def namespace_prefix() -> str:
    """Return what the names of a test's namespaces begin with: it names this process, so that others know when it has gone."""
    return f"beamer-t{os.getpid()}-{uuid.uuid4().hex[:6]}-"


def remove_abandoned_namespaces() -> None:
    """Remove the namespaces whose tests were killed, and end what still runs in them."""
    for path in Path("/run/netns").glob("beamer-t*"):
        owner = _OWNED.match(path.name)
        if owner and not Path("/proc", owner[1]).exists():
            inside = subprocess.run(["ip", "netns", "pids", path.name], check=False, capture_output=True, text=True).stdout
            for pid in inside.split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", path.name], check=False, capture_output=True)


def add_namespace(name: str) -> None:
    """Make a network namespace with a small table of TCP sockets, as emulated hosts have."""
    table = f"if [ -e {CHILD_TABLES} ]; then echo {TABLE_ENTRIES} > {CHILD_TABLES}; fi"
    subprocess.run(["unshare", "--net", "sh", "-ec", f'{table}; exec ip netns add "$1"', "sh", name], check=True)


@contextmanager
def cabled_namespaces(*names: str) -> Iterator[tuple[Namespace, ...]]:
    """Make a namespace per name and join the first two by a veth pair: interface `data`, addresses 10.77.0.1 and .2."""
    remove_abandoned_namespaces()
    prefix = namespace_prefix()
    spaces = tuple(Namespace(prefix + name) for name in names)
    try:
        for space in spaces:
            add_namespace(space.name)
            space.run("ip", "link", "set", "lo", "up")
        first, second = spaces[:2]
        first.run("ip", "link", "add", "data", "type", "veth", "peer", "name", "data", "netns", second.name)
        for number, space in enumerate((first, second), 1):
            space.run("ip", "addr", "add", f"10.77.0.{number}/24", "dev", "data")
            space.run("ip", "link", "set", "data", "up")
        yield spaces
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space.name], check=False, capture_output=True)
