"""A leader that is killed or stopped while another controller follows it on PostgreSQL."""

import asyncio
import random
import signal
import time
from pathlib import Path

from beamer.client.controllers import NOT_LEADING
from beamer.testing.postgresql import binaries, missing, postgresql
from eval.faults.base import Fault, FaultOutcome
from eval.faults.load import Load
from eval.faults.peers import FollowingAgent, FollowingSwitch, missing_rules
from eval.faults.site import ControllerProcess, ending, site_directory

LEADS_S = 1.0  # at most, between a follower's readiness and the next fault
QUIET_EVERY = 4  # fail-overs, one of which comes without load, so that the plans on both sides of it can be compared


def killed(times: int, seed: int) -> FaultOutcome:
    """End the leader by SIGKILL."""
    return _on_postgresql(times, seed, signal.SIGKILL)


def stopped(times: int, seed: int) -> FaultOutcome:
    """Stop the leader, and continue it when the other one leads: it has to end by itself."""
    return _on_postgresql(times, seed, signal.SIGSTOP)


def _on_postgresql(times: int, seed: int, number: signal.Signals) -> FaultOutcome:
    programs = binaries()
    assert programs is not None
    with site_directory() as directory, postgresql(programs) as server:
        return asyncio.run(_fail_overs(directory, server.database(), times, seed, number))


async def _fail_overs(directory: Path, journal: str, times: int, seed: int, number: signal.Signals) -> FaultOutcome:
    rng = random.Random(seed)
    leader, follower = both = [ControllerProcess(directory, name, journal) for name in ("one", "two")]
    recovery_s: list[float] = []
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
                leader.signal(number)
                began_s = time.monotonic()
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
                if number is signal.SIGSTOP:
                    leader.signal(signal.SIGCONT)
                if not await leader.ended():
                    failures.append("the leader of before ended with success")
                leader.start()
                await leader.answers(NOT_LEADING)
                leader, follower = follower, leader
            await load.pause()
            await load.verify(leader.url)
        counts = {"writes repeated": load.retries, "flow entries lost": rules_lost, "flow entries deleted": switch.deletions}
        if rules_lost or switch.deletions:
            failures.append("a switch lost flow entries")
        failures += load.failures
        acknowledged, lost = len(load.acknowledged), len(load.lost)
        return FaultOutcome(times, acknowledged, lost, plans, differing, tuple(recovery_s), counts, tuple(failures))


RECOVERY = "from the signal to the first write that the other one acknowledges"
FAULTS = (
    Fault("leader-killed", "SIGKILL of the leader under load, with a follower", RECOVERY, killed, 20, missing),
    Fault("leader-stopped", "SIGSTOP of the leader, continued when the follower leads", RECOVERY, stopped, 20, missing),
)
