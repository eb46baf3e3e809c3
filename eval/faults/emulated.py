"""Controllers that are killed, and links that go away, while real switches forward the traffic of workers.

What becomes of the traffic, of rules, marks and queues is looked at after each.
"""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from beamer.client.controllers import NOT_LEADING
from beamer.network.fabric_file import read_fabric
from controller.openflow.held_rules import LINGER_S
from eval.faults import lab
from eval.faults.base import Fault, FaultOutcome
from eval.faults.lab import SWITCH, EmulatedSite, Traffic, emulated_site
from eval.faults.load import Load
from eval.faults.observation import Match, RuleReading, queue_changes, read_rules, unused_rules
from eval.faults.site import site_directory
from eval.faults.traffic_worker import ConnectionProgress
from tests.support import postgresql as databases

TOLD_S = 0.1  # Open vSwitch's message of a rule that it has just removed may take so long.
LIFE_S = 1.0  # The next fault comes at most so long after a recovery.
DOWN_S = 2.0  # A link is away for at most so long.
QUIET_EVERY = 5  # One of so many faults comes without load, so that the plans on both sides of it can be compared.
TAKES_OVER_S = 5.0  # A follower may take so long to take over: docs/operate.md promises this.
PAIRS: Mapping[str, Sequence[str]] = MappingProxyType({"first": ("h1", "h2"), "second": ("h2", "h3")})
"""By study, the hosts of workers that send to each other. They come first, so that no other trial changes their class."""
UNUSED_S = LINGER_S + 1.0  # A switch has lost the rules that a controller wanted no longer after so long.


@dataclass
class Effects:
    """What faults did to traffic and rules. The first reading is what the others are compared with."""

    site: EmulatedSite
    traffic: Traffic
    unused: Callable[[], set[Match]]
    rules: RuleReading
    marks: list[tuple[int, int]]
    broken: int = 0
    still: int = 0
    disturbed: int = 0
    remarked: int = 0
    longest_pause_s: float = 0.0
    failures: list[str] = field(default_factory=list)

    async def look(self) -> None:
        """Add what has happened since the last time."""
        progress = await self.traffic.progress()
        rules = read_rules(self.site.run, [SWITCH])
        await asyncio.sleep(TOLD_S)
        disturbed = self.rules.disturbed(rules, self.unused())
        self.failures += [f"rule lost or added anew: {rule}" for _, rule in disturbed]
        self.failures += [f"connection broken: {one.broken}" for one in progress if one.broken]
        self.failures += ["a connection stood still" for one in progress if not one.received_bytes]
        marks = marks_of(progress)
        self.failures += [
            f"mark {before} became {after}" for before, after in zip(self.marks, marks, strict=True) if before != after
        ]
        self.broken += sum(bool(one.broken) for one in progress)
        self.still += sum(not one.received_bytes for one in progress)
        self.disturbed += len(disturbed)
        self.remarked += sum(before != after for before, after in zip(self.marks, marks, strict=True))
        self.longest_pause_s = max(self.longest_pause_s, *(one.longest_pause_s for one in progress))
        self.rules, self.marks = rules, marks

    def counts(self) -> dict[str, int]:
        """Return what is to be told of it."""
        return {
            "connections": len(self.marks) // 2,
            "connections broken": self.broken,
            "connections at a stand": self.still,
            "longest pause of one in ms": round(1000 * self.longest_pause_s),
            "rules lost or added anew": self.disturbed,
            "marks changed": self.remarked,
        }


def marks_of(progress: list[ConnectionProgress]) -> list[tuple[int, int]]:
    """Return the class and the codepoint of every end of a connection."""
    return [(one.priority, one.dscp) for one in progress]


def killed(times: int, seed: int) -> FaultOutcome:
    """Kill the only controller, whose journal is in SQLite, and start it again at once."""
    return _in_lab(1, None, times, seed, _kills)


def on_postgresql(controllers: int, times: int, seed: int) -> FaultOutcome:
    """Kill the controller that leads, whose journal is in PostgreSQL."""
    programs = databases.binaries()
    assert programs is not None
    with databases.postgresql(programs) as server:
        return _in_lab(controllers, server.database(), times, seed, _kills)


def unplugged(times: int, seed: int) -> FaultOutcome:
    """Take a host's link away for up to `DOWN_S`."""
    return _in_lab(1, None, times, seed, _links)


def _in_lab(controllers: int, journal: str | None, times: int, seed: int, faults: "Faults") -> FaultOutcome:
    with site_directory() as directory, emulated_site(directory, controllers, journal) as site, ExitStack() as stack:
        changes = [
            stack.enter_context(queue_changes(site.run, host, directory / f"queues-{host}"))
            for host in (None, *sorted({host for hosts in PAIRS.values() for host in hosts}))
        ]
        unused = stack.enter_context(unused_rules(site.run, SWITCH, directory / "rules"))
        return asyncio.run(faults(site, times, seed, changes, unused))


async def _kills(
    site: EmulatedSite, times: int, seed: int, queues: list[Callable[[], list[str]]], unused: Callable[[], set[Match]]
) -> FaultOutcome:
    rng = random.Random(seed)
    leader, *followers = site.controllers
    recovery_s: list[float] = []
    first_write_s: list[float] = []
    plans = differing = 0
    urls = [controller.url for controller in site.controllers]
    async with Load(urls, seed, steady=PAIRS) as load, Traffic(site.run, PAIRS) as traffic:
        await traffic.is_marked()
        await load.pause()
        await leader.settled_plan()
        await leader.serves()
        effects = Effects(site, traffic, unused, read_rules(site.run, [SWITCH]), marks_of(await traffic.progress()))
        load.resume()
        for number in range(times):
            for follower in followers:
                await follower.answers(NOT_LEADING)
                await follower.is_ready()
            await asyncio.sleep(rng.uniform(0, LIFE_S))
            if quiet := number % QUIET_EVERY == QUIET_EVERY - 1 or number == times - 1:
                await load.pause()
                before = await leader.settled_plan()
            known, old = len(load.acknowledged), leader
            old.kill()
            killed_s = time.monotonic()
            if followers:
                leader, followers = followers[0], [*followers[1:], old]
            else:
                old.start()
            written = asyncio.create_task(load.recovered(killed_s))
            await leader.serves()
            recovery_s.append(time.monotonic() - killed_s)
            if quiet:
                plans += 1
                differing += (await leader.plan())["jobs"] != before or not before
                await leader.is_obeyed()
                load.resume()
                await written
            else:
                first_write_s.append(await written)
            await load.verify(leader.url, known)
            await effects.look()
            if followers:
                old.start()
        await load.pause()
        await load.verify(leader.url)
        await asyncio.sleep(UNUSED_S)
        await effects.look()
        changed = [line for one in queues for line in one()]
    failures = [*load.failures, *effects.failures, *(f"queue changed: {line}" for line in changed)]
    if followers and max(recovery_s) > TAKES_OVER_S:
        failures.append(f"a follower took {max(recovery_s):.1f} s")
    counts = {
        "writes repeated": load.retries,
        "longest until a write is acknowledged in ms": round(1000 * max(first_write_s, default=0.0)),
        **effects.counts(),
        "queues changed": len(changed),
    }
    acknowledged, lost = len(load.acknowledged), len(load.lost)
    return FaultOutcome(times, acknowledged, lost, plans, differing, tuple(recovery_s), counts, tuple(failures))


async def _links(
    site: EmulatedSite, times: int, seed: int, queues: list[Callable[[], list[str]]], unused: Callable[[], set[Match]]
) -> FaultOutcome:
    rng = random.Random(seed)
    (controller,) = site.controllers
    fabric = read_fabric(site.run.run.directory / "fabric.json")
    recovery_s: list[float] = []
    differing = 0
    async with Load([controller.url], seed, steady=PAIRS) as load, Traffic(site.run, PAIRS) as traffic:
        await traffic.is_marked()
        await load.pause()
        before = await controller.settled_plan()
        await controller.serves()
        effects = Effects(site, traffic, unused, read_rules(site.run, [SWITCH]), marks_of(await traffic.progress()))
        for _ in range(times):
            await asyncio.sleep(rng.uniform(0, LIFE_S))
            host = rng.choice(sorted({host for hosts in PAIRS.values() for host in hosts}))
            interface = fabric.links[fabric.link_index[SWITCH, host]].interface
            site.run.execute("ip", "link", "set", "dev", interface, "down")
            try:
                await asyncio.sleep(rng.uniform(0, DOWN_S))
            finally:
                site.run.execute("ip", "link", "set", "dev", interface, "up")
            up_s = time.monotonic()
            effects.longest_pause_s = max(effects.longest_pause_s, await traffic.flows())
            recovery_s.append(time.monotonic() - up_s)
            await asyncio.sleep(LIFE_S)
            await effects.look()
            differing += await controller.settled_plan() != before or not before
        await load.verify(controller.url)
        changed = [line for one in queues for line in one()]
    failures = [*load.failures, *effects.failures, *(f"queue changed: {line}" for line in changed)]
    counts = {**effects.counts(), "queues changed": len(changed)}
    acknowledged, lost = len(load.acknowledged), len(load.lost)
    return FaultOutcome(times, acknowledged, lost, times, differing, tuple(recovery_s), counts, tuple(failures))


Faults = Callable[
    [EmulatedSite, int, int, list[Callable[[], list[str]]], Callable[[], set[Match]]], Coroutine[None, None, FaultOutcome]
]
"""(site, times, seed, changes of each host's queues, rules that timed out) -> what came of it."""


def _missing_with_postgresql() -> str | None:
    return lab.missing() or databases.missing()


RECOVERY = "from the kill until Open vSwitch and every host agent have acknowledged a plan of the {}"
FAULTS = (
    Fault(
        "kill-emulated",
        "SIGKILL under load while Open vSwitch forwards the workers' traffic, journal in SQLite",
        RECOVERY.format("controller, which is started again at once"),
        killed,
        100,
        lab.missing,
    ),
    Fault(
        "kill-emulated-postgresql",
        "SIGKILL under load while Open vSwitch forwards the workers' traffic, journal in PostgreSQL",
        RECOVERY.format("controller, which is started again at once"),
        partial(on_postgresql, 1),
        100,
        _missing_with_postgresql,
    ),
    Fault(
        "failover-emulated",
        "SIGKILL of the leader under load, with a follower, while Open vSwitch forwards the workers' traffic",
        RECOVERY.format("follower"),
        partial(on_postgresql, 2),
        20,
        _missing_with_postgresql,
    ),
    Fault(
        "link-gone",
        "a host's link is down for up to 2 s while Open vSwitch forwards the workers' traffic",
        "from the link's return until every connection has received bytes again",
        unplugged,
        20,
        lab.missing,
    ),
)
