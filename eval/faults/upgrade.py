"""A rolling upgrade from the released program, and its way back, while real switches forward the traffic of workers.

The old program is that of the release before, taken from the checkout's history. What is looked at is what
`eval.faults.emulated` looks at, and in which queue every byte was.
"""

import asyncio
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beamer.client.controllers import NOT_LEADING
from beamer.network.fabric_file import read_fabric
from beamer.process_stat import process_stat
from beamer.protocol_version import HEADER, PROTOCOL_VERSION
from beamer.studies.model import split_key
from eval.faults import emulated, lab
from eval.faults.base import PATIENCE_S, Fault, FaultOutcome
from eval.faults.emulated import LIFE_S, PAIRS, TAKES_OVER_S, Effects, marks_of
from eval.faults.lab import SWITCH, EmulatedController, EmulatedSite, Traffic, emulated_site
from eval.faults.load import Load
from eval.faults.observation import queue_changes, read_rules, unused_rules
from eval.faults.site import POLL_S, http_client, site_directory
from eval.resume import ROOT
from hostagent.queues.tree import class_id
from tests.support import postgresql as databases
from topologies.emulation.sampling import queue_bytes

RELEASED = "98bc6824b3d4d145b8ebeb22df7b78e92c0c64a9"
"""The commit of 0.1.0, the release before this one."""
PACKAGES = ("beamer", "controller", "hostagent")
CHOICE = """
# Python runs this at the start of every process that finds it on its path.
import os, sys
here = os.path.dirname(__file__)
parts = ("controller.", "hostagent.")  # everything else is this program's: workers, and what makes the network
if os.path.exists(os.path.join(here, "old")) and any(argument.startswith(parts) for argument in sys.orig_argv):
    from importlib.machinery import PathFinder

    class Released:
        @staticmethod
        def find_spec(name, path=None, target=None):
            return PathFinder.find_spec(name, [os.path.join(here, "released")]) if name in PACKAGES else None

    sys.meta_path.insert(0, Released)
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
    """Have controllers and agents that start within the context be the one program or the other."""
    (directory / "released").mkdir(parents=True)
    archive = subprocess.run(["git", "archive", RELEASED, *PACKAGES], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-xf", "-", "-C", directory / "released"], input=archive, check=True)
    (directory / "sitecustomize.py").write_text(f"PACKAGES = {PACKAGES}\n{CHOICE}")
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
    """Replace every controller and agent of the release before by this program, and at every other time the other way round."""
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
    wrong: list[str] = []
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
            is_new = number % 2 == 0
            (programs.use_new if is_new else programs.use_old)()
            known = len(load.acknowledged)
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
                joined = len(_joined(leader, agent))
                await _end(site, agent)
                site.run.restart(agent)
                await _until(lambda: len(_joined(leader, agent)) > joined)  # noqa: B023  # It is awaited at once.
                await leader.serves()
                await effects.look()
            wrong += [one.name for one in (leader, follower) if await _says_its_version(one) != is_new]
            if is_new:  # an old controller does not log what its agents speak
                wrong += [agent for agent in agents if f"protocol={PROTOCOL_VERSION}" not in _joined(leader, agent)[-1]]
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
    failures += [f"{part} was another program than it should have been" for part in wrong]
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


def _joined(controller: EmulatedController, agent: str) -> list[str]:
    """Return the lines by which a controller has logged that an agent, by its part of the run, has joined."""
    return re.findall(rf".*agent joined\s.*\bagent={agent.removeprefix('agent-')}\b.*", controller.log)


async def _says_its_version(controller: EmulatedController) -> bool:
    """Return whether a controller says a version of the protocols, as 0.1.0 does not."""
    async with http_client() as http:
        return HEADER in (await http.get(f"{controller.url}/v1/health")).headers


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
    return lab.missing() or databases.missing() or released_missing()


def released_missing() -> str | None:
    """Return why the program of the release before cannot be had, None if it can."""
    try:
        found = subprocess.run(["git", "cat-file", "-e", f"{RELEASED}^{{commit}}"], cwd=ROOT, capture_output=True)
    except OSError as error:
        return f"git cannot be run ({error.strerror})"
    return None if found.returncode == 0 else "the history of this checkout does not have the release before"


FAULTS = (
    Fault(
        "upgrade-emulated",
        "every controller and agent of 0.1.0 replaced by one of this version, and then the other way round, under load,"
        " while Open vSwitch forwards the workers' traffic",
        "from the leader's SIGTERM until Open vSwitch and every host agent have acknowledged a plan of the follower",
        rolled,
        6,
        _missing,
    ),
)
