"""Who makes the queues of a switch, as a test drives each: what there should be is the same, whoever makes it."""

import asyncio
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from beamer.network.fabric import Fabric
from beamer.network.protocol import Applied, Assignment, Hello
from controller.network.targets import agent_ports
from controller.ovsdb.keeper import QueueKeeper
from hostagent.expiry.state import StateDirectory
from tests.netns.bench import end_guard, eventually
from tests.netns.lab import FABRIC, Lab
from tests.support.agent_doubles import FakeController, agent_command
from tests.support.namespaces import Namespace

CLASSES = 3
_CLASS = re.compile(r"class htb 1:(\w+) .*prio (\d+) .*?rate (\S+) ceil (\S+)")
_UNITS = {"bit": 1, "Kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9}


@dataclass(frozen=True)
class Served:
    """How HTB serves a class. rate_bps, ceil_bps: in bit/s."""

    priority: int
    rate_bps: int
    ceil_bps: int


def expected(rate_bps: int) -> dict[int | None, Served]:
    """Return the classes of a port, None for unregistered traffic: what the documentation promises."""
    managed = {k: Served(k, rate_bps // 1000, rate_bps) for k in range(CLASSES)}
    return {**managed, None: Served(7, rate_bps // 10, rate_bps)}


class QueueMaker(Protocol):
    """What makes queues at the ports of all switches of the lab, and keeps them until it is stopped."""

    minors: dict[str, int | None]
    """The classes by their minor numbers, as `tc` prints them; None for unregistered traffic."""

    def start(self) -> None:
        """Make queues."""

    def stop(self) -> None:
        """End as at the end of a controller or an agent: queues stay."""

    def named(self, interface: str) -> bool:
        """Return whether it is said of a port that another's queues are there."""


class AgentQueues:
    """An agent in the namespace of the ports."""

    minors = {f"{0x10 + k:x}": k for k in range(CLASSES)} | {"9": None}

    def __init__(self, lab: Lab, stack: ExitStack) -> None:
        space = Namespace(lab.prefix)
        self._lab, self._space, self._stack = lab, space, stack
        self._state = StateDirectory(lab.directory / "switches")
        stack.callback(end_guard, self._state)
        self._controller = stack.enter_context(FakeController(space))
        self._log = lab.directory / "agent.log"
        owned = replace(FABRIC, switches=tuple(replace(one, agent="switches") for one in FABRIC.switches))
        self._ports = agent_ports(owned)["switches"]
        self._generation = 0

    def start(self) -> None:
        after = len(self._controller.received)
        command = agent_command(sys.executable, "switches", self._controller.url, str(self._lab.directory))
        with self._log.open("ab") as log:
            self._process = self._space.popen(*command, stderr=log)
        self._stack.enter_context(self._process)
        self._stack.callback(self._process.kill)
        self._controller.wait(Hello, after=after)
        self._generation += 1
        fields = {"generation": self._generation, "ports": self._ports, "queues": CLASSES, "addresses": ("10.77.0.1",)}
        self._controller.assign(Assignment.model_validate(fields))
        self._controller.wait(Applied, after=after)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)

    def named(self, interface: str) -> bool:
        return interface in self._log.read_text()


class DatabaseQueues:
    """A controller's keeper of queues, in a thread of its own."""

    minors = {f"{k + 2:x}": k for k in range(CLASSES)} | {"1": None}

    def __init__(self, lab: Lab, stack: ExitStack) -> None:
        self._fabric = with_databases(FABRIC, f"unix:{lab.directory}/db.sock")
        self._stack = stack

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.keeper = QueueKeeper(self._fabric, CLASSES, None, lambda: None)
        self._task = self._loop.create_task(self.keeper.run())
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._stack.callback(self.stop)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def named(self, interface: str) -> bool:
        port = {link.interface: (link.src, link.port) for link in self._fabric.links}[interface]
        return any((one.kind, one.switch, one.port) == ("foreign queues", *port) for one in self.keeper.faults)


MAKERS: dict[str, Callable[[Lab, ExitStack], QueueMaker]] = {"agent": AgentQueues, "database": DatabaseQueues}


def with_databases(fabric: Fabric, address: str) -> Fabric:
    """Return a network whose switches have their databases there."""
    return replace(fabric, switches=tuple(replace(one, agent=None, ovsdb=address) for one in fabric.switches))


@contextmanager
def running(maker: str, lab: Lab) -> Iterator[QueueMaker]:
    """Have a maker of queues run."""
    with ExitStack() as stack:
        made = MAKERS[maker](lab, stack)
        made.start()
        yield made
        made.stop()


def classes(lab: Lab, interface: str, maker: QueueMaker) -> dict[int | None, Served]:
    """Return the classes of a port as `tc` shows them."""
    found = _CLASS.findall(lab.run("tc", "class", "show", "dev", interface))
    return {
        maker.minors[minor]: Served(int(priority), _bps(rate), _bps(ceil))
        for minor, priority, rate, ceil in found
        if minor in maker.minors
    }


def until_right(lab: Lab, maker: QueueMaker, interfaces: tuple[str, ...]) -> None:
    """Wait until ports have the classes that they should have."""
    rates = {link.interface: link.rate_bps for link in FABRIC.links}
    eventually(lambda: all(classes(lab, one, maker) == expected(rates[one]) for one in interfaces), every_s=0.1)


def _bps(text: str) -> int:
    found = re.fullmatch(r"([\d.]+)(\w+)", text)
    assert found is not None
    return round(float(found[1]) * _UNITS[found[2]])


def restart(lab: Lab) -> None:
    """End ovs-vswitchd as a crash does, and start it again."""
    file = lab.directory / "ovs-vswitchd.pid"
    pid = int(file.read_text())
    lab.run("kill", "-9", str(pid))
    eventually(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])
    file.unlink()
    quiet = ["--detach", "--no-chdir", "--pidfile", "--log-file", "-vconsole:off"]
    lab.run("ovs-vswitchd", f"unix:{lab.directory}/db.sock", *quiet)
