"""A rolling upgrade, and its way back, while real switches forward the traffic of workers.

The old program is this one, restricted to the first version of the protocols: it says and understands nothing that came later.
What is looked at is what `eval.faults.emulated` looks at, and in which queue every byte was.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beamer.client.controllers import NOT_LEADING
from beamer.process_stat import process_stat
from beamer.protocol_version import FIRST_VERSION, PROTOCOL_VERSION
from beamer.studies.model import split_key
from beamer.testing import postgresql as databases
from controller.commands.fabric_file import read_fabric
from eval.faults import emulated, lab
from eval.faults.base import PATIENCE_S, Fault, FaultOutcome
from eval.faults.emulated import LIFE_S, PAIRS, TAKES_OVER_S, Effects, marks_of
from eval.faults.lab import SWITCH, EmulatedController, EmulatedSite, Traffic, emulated_site
from eval.faults.load import Load
from eval.faults.site import POLL_S, site_directory
from hostagent.tree import class_id
from topologies.emulation.observation import queue_changes, read_rules, unused_rules
from topologies.emulation.sampling import queue_bytes

RESTRICTED = f"""
# Python runs this at the start of every process that finds it on its path.
import os
if os.path.exists(os.path.join(os.path.dirname(__file__), "old")):
    try:
        import beamer.protocol_version as version
        version.PROTOCOL_VERSION = {FIRST_VERSION}
    except ImportError:
        pass
"""
Queue = tuple[str, int | None]
"""An interface, and a class of it, None for unregistered traffic."""


@dataclass(frozen=True)
class Programs:
    """Which program a process is that starts from now on. directory: that every process has on its path."""

    directory: Path

    def use_old(self) -> None:
        """Have the old program started."""
        (self.directory / "old").touch()

    def use_new(self) -> None:
        """Have the new program started."""
        (self.directory / "old").unlink(missing_ok=True)


@contextmanager
def two_programs(directory: Path) -> Iterator[Programs]:
    """Have processes that start within the context be the one program or the other."""
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(RESTRICTED)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join((str(directory), *((before,) if before else ())))
    try:
        yield Programs(directory)
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before


@dataclass
class ClassBytes:
    """The bytes that left each queue of all hosts and switch ports since it was made."""

    site: EmulatedSite
    before: dict[Queue, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read what left them until now."""
        self.before = self._read()

    def grown(self) -> dict[Queue, int]:
        """Return what has left each queue since then."""
        return {queue: count - self.before.get(queue, 0) for queue, count in self._read().items()}

    def _read(self) -> dict[Queue, int]:
        fabric = read_fabric(self.site.run.run.directory / "fabric.json")
        return {
            (link.interface, one.klass): one.sent_bytes
            for link in fabric.links
            for one in queue_bytes(link.interface, self.site.run.enter(link.src if link.src in fabric.host else None))
        }


def rolled(times: int, seed: int) -> FaultOutcome:
    """Replace every controller and agent by the new program, and at every other time by the old one."""
    programs = databases.binaries()
    assert programs is not None
    with (
        databases.postgresql(programs) as server,
        site_directory() as directory,
        two_programs(directory / "programs") as both,
    ):
        both.use_old()
        with emulated_site(directory, 2, server.database()) as site, ExitStack() as stack:
            changes = [
                stack.enter_context(queue_changes(site.run, host, directory / f"queues-{host}"))
                for host in (None, *sorted({host for hosts in PAIRS.values() for host in hosts}))
            ]
            unused = stack.enter_context(unused_rules(site.run, SWITCH, directory / "rules"))
            return asyncio.run(_upgrades(site, both, times, seed, changes, unused))


async def _upgrades(
    site: EmulatedSite,
    programs: Programs,
    times: int,
    seed: int,
    queues: Sequence[Callable[[], list[str]]],
    unused: Callable[[], set[tuple[str, str, str]]],
) -> FaultOutcome:
    rng = random.Random(seed)
    leader, follower = site.controllers
    agents = sorted(name for name in site.run.parts["processes"] if name.startswith("agent-"))
    recovery_s: list[float] = []
    differing = 0
    async with (
        Load([one.url for one in site.controllers], seed, steady=PAIRS) as load,
        Traffic(site.run, PAIRS) as traffic,
    ):
        await traffic.is_marked()
        await load.pause()
        await leader.settled_plan()
        await leader.serves()
        marks = marks_of(await traffic.progress())
        effects = Effects(site, traffic, unused, read_rules(site.run, [SWITCH]), marks)
        classes = frozenset(priority - class_id(0) for priority, _ in marks)
        counted = ClassBytes(site)
        load.resume()
        for number in range(times):
            await asyncio.sleep(rng.uniform(0, LIFE_S))
            before = await _plan_of_traffic(leader)
            version = FIRST_VERSION if number % 2 else PROTOCOL_VERSION
            (programs.use_old if number % 2 else programs.use_new)()
            known = len(load.acknowledged)
            joined = follower.log.count(f"protocol={version}")
            await _replace(site, follower)
            await follower.answers(NOT_LEADING)
            await follower.is_ready()
            began_s = time.monotonic()
            await _end(site, leader.name)
            await follower.serves()
            recovery_s.append(time.monotonic() - began_s)
            leader.start()
            leader, follower = follower, leader
            await follower.answers(NOT_LEADING)
            await effects.look()
            for agent in agents:
                await _end(site, agent)
                site.run.restart(agent)
                await _until(lambda: leader.log.count(f"protocol={version}") > joined)  # noqa: B023  # awaited at once
                joined = leader.log.count(f"protocol={version}")
                await leader.serves()
                await effects.look()
            await load.verify(leader.url, known)
            differing += await _plan_of_traffic(leader) != before or not before
        await load.pause()
        await load.verify(leader.url)
        await asyncio.sleep(emulated.UNUSED_S)
        await effects.look()
        grown = counted.grown()
        changed = [line for one in queues for line in one()]
    stray = {queue: count for queue, count in grown.items() if queue[1] not in classes and count}
    failures = [*load.failures, *effects.failures, *(f"queue changed: {line}" for line in changed)]
    failures += [f"{count} bytes left {interface} in class {klass}" for (interface, klass), count in stray.items()]
    if max(recovery_s) > TAKES_OVER_S:
        failures.append(f"a follower took {max(recovery_s):.1f} s")
    counts = {
        "programs replaced": times * (len(agents) + len(site.controllers)),
        "writes repeated": load.retries,
        **effects.counts(),
        "queues changed": len(changed),
        "bytes in the connections' classes": sum(count for queue, count in grown.items() if queue[1] in classes),
        "bytes in other classes": sum(stray.values()),
    }
    acknowledged, lost = len(load.acknowledged), len(load.lost)
    return FaultOutcome(times, acknowledged, lost, times, differing, tuple(recovery_s), counts, tuple(failures))


async def _plan_of_traffic(leader: EmulatedController) -> dict[str, Any]:
    """Return what a controller has planned for the traffic's trials, whose order no other trial changes."""
    return {key: job for key, job in (await leader.plan())["jobs"].items() if split_key(key)[0] in PAIRS}


async def _replace(site: EmulatedSite, controller: EmulatedController) -> None:
    await _end(site, controller.name)
    controller.start()


async def _end(site: EmulatedSite, part: str) -> None:
    """End a part as its service manager does, by SIGTERM. Raises `TimeoutError`."""
    pid = site.run.pid(part)
    os.kill(pid, signal.SIGTERM)
    await _until(lambda: (stat := process_stat(f"/proc/{pid}/stat")) is None or stat.state == "Z")


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(POLL_S)


def _missing() -> str | None:
    return lab.missing() or databases.missing()


FAULTS = (
    Fault(
        "upgrade-emulated",
        "every controller and agent replaced by one of the next version, and then of the one before, under load,"
        " while Open vSwitch forwards the workers' traffic",
        "from the leader's SIGTERM until Open vSwitch and every host agent have acknowledged a plan of the follower",
        rolled,
        6,
        _missing,
    ),
)
