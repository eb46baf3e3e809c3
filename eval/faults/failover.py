"""A leader that is killed or stopped, or cut off from its database, while another controller follows it on PostgreSQL."""

import asyncio
import random
import signal
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from beamer.client.controllers import NOT_LEADING
from eval.faults.base import Fault, FaultOutcome
from eval.faults.load import Load
from eval.faults.peers import FollowingAgent, FollowingSwitch, missing_rules
from eval.faults.site import ControllerProcess, ending, site_directory
from tests.support.blackhole import Blackhole, blackhole
from tests.support.postgresql import binaries, missing, postgresql

LEADS_S = 1.0  # The next fault comes at most so long after a follower is ready.
QUIET_EVERY = 4  # One of so many fail-overs comes without load, so that the plans on both sides of it can be compared.
TAKES_OVER_S = 5.0  # A follower may take so long to take over: docs/operate.md promises this.


@dataclass
class Signalled:
    """A leader that is sent a signal. resumed: whether it is continued when the other one leads, and has to end by itself."""

    number: signal.Signals
    resumed: bool = False

    def begin(self, leader: ControllerProcess) -> None:
        """Strike a leader."""
        leader.signal(self.number)

    def follower_leads(self, leader: ControllerProcess) -> None:
        """Do what is to be done when the other one leads."""
        if self.resumed:
            leader.signal(signal.SIGCONT)

    def leader_has_ended(self, leader: ControllerProcess) -> None:
        """Undo what was done."""


@dataclass
class Partitioned:
    """A leader that its database answers no more, without a word. proxies: before the database, by controller."""

    proxies: dict[str, Blackhole] = field(default_factory=dict)

    def begin(self, leader: ControllerProcess) -> None:
        """Strike a leader."""
        self.proxies[leader.name].swallow()

    def follower_leads(self, leader: ControllerProcess) -> None:
        """Do nothing: it has to end by itself."""

    def leader_has_ended(self, leader: ControllerProcess) -> None:
        """Let it reach the database again."""
        self.proxies[leader.name].hand_on()


Strike = Signalled | Partitioned


def killed(times: int, seed: int) -> FaultOutcome:
    """End the leader by SIGKILL."""
    return _on_postgresql(times, seed, Signalled(signal.SIGKILL))


def stopped(times: int, seed: int) -> FaultOutcome:
    """Stop the leader, and continue it when the other one leads: it has to end by itself."""
    return _on_postgresql(times, seed, Signalled(signal.SIGSTOP, resumed=True))


def partitioned(times: int, seed: int) -> FaultOutcome:
    """Cut the leader off from its database: it has to end by itself."""
    return _on_postgresql(times, seed, Partitioned())


def _on_postgresql(times: int, seed: int, strike: Strike) -> FaultOutcome:
    programs = binaries()
    assert programs is not None
    with site_directory() as directory, postgresql(programs) as server:
        return asyncio.run(_behind_proxies(directory, server.database(), times, seed, strike))


async def _behind_proxies(directory: Path, journal: str, times: int, seed: int, strike: Strike) -> FaultOutcome:
    async with AsyncExitStack() as stack:
        both = []
        for name in ("one", "two"):
            proxy = await stack.enter_async_context(blackhole(journal))
            is_cut = isinstance(strike, Partitioned)
            both.append(ControllerProcess(directory, name, proxy.url if is_cut else journal))
            if isinstance(strike, Partitioned):
                strike.proxies[name] = proxy
        return await _fail_overs(both, times, seed, strike)


async def _fail_overs(both: Sequence[ControllerProcess], times: int, seed: int, strike: Strike) -> FaultOutcome:
    rng = random.Random(seed)
    leader, follower = both
    recovery_s: list[float] = []
    ended_s: list[float] = []
    failures: list[str] = []
    plans = differing = rules_lost = 0
    with ending(*both):
        leader.start()
        await leader.answers()
        follower.start()
        await follower.answers(NOT_LEADING)
        async with (
            Load([one.url for one in both], seed) as load,
            FollowingSwitch(both) as switch,
            FollowingAgent(both) as agent,
        ):
            await agent.is_assigned()
            await switch.follows(leader)
            for count in range(times):
                await asyncio.sleep(rng.uniform(0, LEADS_S))
                if quiet := count % QUIET_EVERY == QUIET_EVERY - 1 or count == times - 1:
                    await load.pause()
                    before = await leader.settled_plan()
                known, rules = len(load.acknowledged), dict(switch.entries)
                strike.begin(leader)
                began_s = time.monotonic()
                ends = asyncio.create_task(leader.ended())
                ends.add_done_callback(lambda _, since_s=began_s: ended_s.append(time.monotonic() - since_s))  # type: ignore[misc]
                if quiet:
                    await follower.answers()
                    plans += 1
                    differing += (await follower.plan())["jobs"] != before or not before
                else:
                    recovery_s.append(await load.recovered(began_s))
                await load.verify(follower.url, known)
                await switch.follows(follower)
                rules_lost += missing_rules(rules, switch.entries, under_load=not quiet)
                load.resume()
                strike.follower_leads(leader)
                if not await ends:
                    failures.append("the leader of before ended with success")
                strike.leader_has_ended(leader)
                leader.start()
                await leader.answers(NOT_LEADING)
                leader, follower = follower, leader
            await load.pause()
            await load.verify(leader.url)
        counts = {"writes repeated": load.retries, "flow entries lost": rules_lost, "flow entries deleted": switch.deletions}
        if isinstance(strike, Partitioned):
            counts["longest until the leader of before has ended in ms"] = round(1000 * max(ended_s))
        if rules_lost or switch.deletions:
            failures.append("a switch lost flow entries")
        if max(recovery_s, default=0.0) > TAKES_OVER_S:
            failures.append(f"a follower took {max(recovery_s):.1f} s")
        failures += load.failures
        acknowledged, lost = len(load.acknowledged), len(load.lost)
        return FaultOutcome(times, acknowledged, lost, plans, differing, tuple(recovery_s), counts, tuple(failures))


RECOVERY = "from the signal to the first write that the other one acknowledges"
CUT = "from the last packet to the first write that the other one acknowledges"
FAULTS = (
    Fault("leader-killed", "SIGKILL of the leader under load, with a follower", RECOVERY, killed, 20, missing),
    Fault("leader-stopped", "SIGSTOP of the leader, continued when the follower leads", RECOVERY, stopped, 20, missing),
    Fault(
        "leader-partitioned",
        "the leader cut off from PostgreSQL, whose connections stay open and silent, with a follower",
        CUT,
        partitioned,
        20,
        missing,
    ),
)
