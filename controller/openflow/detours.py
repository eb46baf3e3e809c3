"""Leads packets around dead cables: which forwarding rules change, and in which order switches are given them.

Loss is mended at once, on all switches. Where a cable is there again, a switch that would send packets over it is given its
rule once those further on have theirs, so that none is lost.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from beamer.network.fabric import Fabric
from beamer.network.next_hops import Cable, NextHops
from controller.event_loop.time_slices import TimeSlices
from controller.openflow.rules import Rule, Slot, routes

SWITCH_WAIT_S = 1.0  # Switches further back wait at most so long for those further on.

RulesBySwitch = Mapping[str, Mapping[Slot, Rule]]
Replace = Callable[[RulesBySwitch], Sequence[asyncio.Future[None]]]
"""Replaces rules, and returns what is done once the switches have them."""


class Detours:
    """Keep forwarding rules around the cables that are dead; every method runs on one asyncio loop."""

    def __init__(self, fabric: Fabric, turns: TimeSlices, replace: Replace) -> None:
        self._fabric = fabric
        self._turns = turns
        self._replace = replace
        self._dead: frozenset[Cable] = frozenset()  # As of the rules.
        self._wanted: frozenset[Cable] = frozenset()
        self._wake, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()

    def avoid(self, dead: frozenset[Cable]) -> None:
        """Lead packets around these cables and no others, soon."""
        self._wanted = dead
        self._wake.set()
        self._idle.clear()

    async def settled(self) -> None:
        """Wait until all rules are as they were asked for last."""
        await self._idle.wait()

    async def run(self) -> None:
        """Change rules as cables die and come back, until cancelled."""
        while True:
            if not self._wake.is_set():
                self._idle.set()
            await self._wake.wait()
            self._wake.clear()
            dead, before = self._wanted, self._dead
            steps = await self._changed(self._around(before), self._around(dead))
            self._dead = dead
            if dead - before:
                self._replace(_together(steps))
                continue
            for rules in steps:
                await asyncio.wait([*self._replace(rules), _soon()], timeout=SWITCH_WAIT_S)

    def _around(self, dead: frozenset[Cable]) -> NextHops:
        return self._fabric.next_hops.around(dead)

    async def _changed(self, before: NextHops, after: NextHops) -> list[RulesBySwitch]:
        """Return the forwarding rules that other next hops change, those of switches next to a rule's host first."""
        steps: dict[int, dict[str, dict[Slot, Rule]]] = {}
        place = self._turns.begin()
        for position, host in enumerate(self._fabric.hosts):
            await self._turns.granted(place)
            for name in self._fabric.switch:
                known = set(routes(self._fabric, name, position, before))
                if changed := {rule.slot: rule for rule in routes(self._fabric, name, position, after) if rule not in known}:
                    steps.setdefault(after.distance(name, host.name), {}).setdefault(name, {}).update(changed)
        return [steps[distance] for distance in sorted(steps)]


def _together(steps: Sequence[RulesBySwitch]) -> RulesBySwitch:
    names = dict.fromkeys(chain.from_iterable(steps))
    return {name: {slot: rule for step in steps for slot, rule in step.get(name, {}).items()} for name in names}


def _soon() -> asyncio.Future[None]:
    """Return what is done: nothing may be waited for."""
    done = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done
