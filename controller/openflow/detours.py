"""Leads packets around dead cables: which forwarding rules change, and in which order switches are given them.

Loss is mended at once, on all switches. Where a cable is there again, a switch that would send packets over it is given its
rule once those further on have theirs, so that none is lost.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain

from beamer.network.fabric import Fabric
from beamer.network.next_hops import Cable, NextHops
from controller.event_loop.time_slices import TimeSlices, batched
from controller.openflow.rules import Rule, Slot, routes

SWITCHES_AT_ONCE = 16  # The rules of so many switches for one host are worked out in one slice.
RETRY_S = 1.0  # After a fault the same is tried again.
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
        self._dead: frozenset[Cable] = frozenset()  # As of the rules, and so are the next hops.
        self._hops = fabric.next_hops
        self._wanted: frozenset[Cable] = frozenset()
        self._wake, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()

    def avoid(self, dead: frozenset[Cable]) -> None:
        """Lead packets around these cables and no others, soon."""
        if dead != self._wanted:
            self._wanted = dead
            self._wake.set()
            self._idle.clear()

    async def settled(self) -> None:
        """Wait until all rules are as they were asked for last, for `SWITCH_WAIT_S` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SWITCH_WAIT_S):
                await self._idle.wait()

    async def run(self) -> None:
        """Change rules as cables die and come back, until cancelled."""
        while True:
            if not self._wake.is_set():
                self._idle.set()
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._change(self._wanted)
            except Exception as error:  # noqa: BLE001  A fault must not keep switches that connect from their rules.
                fault = {"message": "a fault while packets were led around dead cables", "exception": error}
                asyncio.get_running_loop().call_exception_handler(fault)
                await asyncio.sleep(RETRY_S)
                self._wake.set()

    async def _change(self, dead: frozenset[Cable]) -> None:
        """Give switches the rules around these cables and no others."""
        hops = self._fabric.next_hops.around(dead)
        steps = await self._changed(hops, dead ^ self._dead)
        all_at_once = bool(dead - self._dead)
        self._hops, self._dead = hops, dead
        for rules in [_together(steps)] if all_at_once else steps:
            reached = self._replace(rules)
            if reached and not all_at_once:
                await asyncio.wait(reached, timeout=SWITCH_WAIT_S)

    async def _changed(self, hops: NextHops, cables: frozenset[Cable]) -> list[RulesBySwitch]:
        """Return the forwarding rules that other next hops change, those of switches next to a rule's host first.

        cables: that have died or come back: only what leads over one of them changes.
        """
        steps: dict[int, dict[str, dict[Slot, Rule]]] = {}
        place = self._turns.begin()
        for position, host in enumerate(self._fabric.hosts):
            await self._turns.granted(place)
            if not (self._hops.lead_over(cables, host.name) or hops.lead_over(cables, host.name)):
                continue
            for names in batched(self._fabric.switch, SWITCHES_AT_ONCE):
                await self._turns.granted(place)
                for name in names:
                    known = set(routes(self._fabric, name, position, self._hops))
                    if changed := {rule.slot: rule for rule in routes(self._fabric, name, position, hops) if rule not in known}:
                        steps.setdefault(hops.distance(name, host.name), {}).setdefault(name, {}).update(changed)
        return [steps[distance] for distance in sorted(steps)]


def _together(steps: Sequence[RulesBySwitch]) -> RulesBySwitch:
    names = dict.fromkeys(chain.from_iterable(steps))
    return {name: {slot: rule for step in steps for slot, rule in step.get(name, {}).items()} for name in names}
