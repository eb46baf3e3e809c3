"""Switches and host agents that are gone under load, and come back."""

import asyncio
import random
import time
from pathlib import Path

from beamer.studies.journal.location import sqlite_url
from eval.faults.base import PATIENCE_S, Fault, FaultOutcome
from eval.faults.load import Load
from eval.faults.peers import AGENT, FollowingAgent, FollowingSwitch, missing_rules
from eval.faults.site import ASK_S, POLL_S, ControllerProcess, ending, site_directory

GONE_S = 2.0  # A peer is gone for at most so long.


def switch_gone(times: int, seed: int) -> FaultOutcome:
    """Break a switch's connection off, every other time with the loss of all its rules, as one that has no power has."""
    with site_directory() as directory:
        return asyncio.run(_switch_gone(directory, times, seed))


def agent_gone(times: int, seed: int) -> FaultOutcome:
    """Break an agent's connection off."""
    with site_directory() as directory:
        return asyncio.run(_agent_gone(directory, times, seed))


async def _switch_gone(directory: Path, times: int, seed: int) -> FaultOutcome:
    rng = random.Random(seed)
    controller = ControllerProcess(directory, "controller", sqlite_url(directory / "journal.db"))
    recovery_s: list[float] = []
    failures: list[str] = []
    lost = deletions = 0
    with ending(controller):
        controller.start()
        await controller.answers()
        async with (
            Load([controller.url], seed) as load,
            FollowingSwitch([controller]) as switch,
            FollowingAgent([controller]) as agent,
        ):
            await agent.is_assigned()
            await switch.follows(controller)
            for number in range(times):
                await load.pause()  # The rules that are wanted are then the same before and after.
                await controller.settled_plan()
                await switch.follows(controller)
                rules, before = dict(switch.entries), switch.deletions
                load.resume()
                await switch.go()
                if number % 2:
                    switch.entries.clear()
                await asyncio.sleep(rng.uniform(0, GONE_S))
                await load.pause()
                began_s = time.monotonic()
                switch.come()
                async with asyncio.timeout(PATIENCE_S):
                    while missing_rules(rules, switch.entries, under_load=True):
                        await asyncio.sleep(POLL_S)
                await switch.follows(controller)
                recovery_s.append(time.monotonic() - began_s)
                lost += missing_rules(rules, switch.entries, under_load=True)
                deletions += switch.deletions - before
                load.resume()
            await load.pause()
            await load.verify(controller.url)
    failures += load.failures
    if lost or deletions:
        failures.append("a switch lost flow entries")
    counts = {"flow entries lost": lost, "flow entries deleted": deletions, "of times, without any entry": times // 2}
    return FaultOutcome(times, len(load.acknowledged), len(load.lost), 0, 0, tuple(recovery_s), counts, tuple(failures))


async def _agent_gone(directory: Path, times: int, seed: int) -> FaultOutcome:
    rng = random.Random(seed)
    controller = ControllerProcess(directory, "controller", sqlite_url(directory / "journal.db"))
    recovery_s: list[float] = []
    failures: list[str] = []
    differing = 0
    with ending(controller):
        controller.start()
        await controller.answers()
        async with Load([controller.url], seed) as load, FollowingSwitch([controller]) as switch:
            agent = FollowingAgent([controller])
            async with agent:
                await agent.is_assigned()
                await switch.follows(controller)
                for _ in range(times):
                    await load.pause()
                    before = await controller.settled_plan()
                    rules = dict(switch.entries)
                    await agent.go()
                    await _seen(controller, connected=False)
                    await asyncio.sleep(rng.uniform(0, GONE_S))
                    began_s = time.monotonic()
                    agent.come()
                    await agent.is_assigned()
                    recovery_s.append(time.monotonic() - began_s)
                    await _seen(controller, connected=True)
                    differing += (await controller.settled_plan()) != before or not before
                    if missing_rules(rules, switch.entries, under_load=False):
                        failures.append(f"rules of {AGENT}'s connections were removed")
                    load.resume()
                    await asyncio.sleep(rng.uniform(0, GONE_S))
            await load.pause()
            await load.verify(controller.url)
    failures += load.failures
    return FaultOutcome(times, len(load.acknowledged), len(load.lost), times, differing, tuple(recovery_s), {}, tuple(failures))


async def _seen(controller: ControllerProcess, connected: bool) -> None:
    """Wait until the controller has noticed that the agent is connected, or gone. Raises `TimeoutError`."""
    async with asyncio.timeout(PATIENCE_S):
        while (await controller.health())["agents"]["connected"] != connected:
            await asyncio.sleep(ASK_S)


FAULTS = (
    Fault(
        "switch-gone",
        "a switch's connection is lost for up to 2 s, every other time with all its rules",
        "from the switch's attempt to connect to its having the rules of the latest plan",
        switch_gone,
        20,
    ),
    Fault(
        "agent-gone",
        "a host agent's connection is lost for up to 2 s",
        "from the agent's attempt to connect to its assignment",
        agent_gone,
        20,
    ),
)
