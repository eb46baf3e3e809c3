"""Gives every switch its rules in the form that it can hold, and its neighbours theirs beside that."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from beamer.network.codepoints import Codepoints
from beamer.network.fabric import Fabric
from controller.event_loop.time_slices import TimeSlices
from controller.openflow.capabilities import SwitchCapabilities
from controller.openflow.fabric_rules import FabricRules
from controller.openflow.meters import RateMeter
from controller.openflow.reports import SwitchForm
from controller.openflow.rules import Rule, Slot
from controller.openflow.switch_target import FormCalls, SwitchTarget

SetTarget = Callable[[str, SwitchTarget | None, Iterable[Slot] | None], None]
"""Has a switch, if it is connected, hold a target; the last argument are the slots in which that differs from before, None
for any."""


class Adaptation:
    """Keep what each switch is to hold; every method runs on one asyncio loop.

    set_target: is called where that changes. report: is called with the form of a switch where that is another, or for another
    reason, than before.
    """

    def __init__(
        self,
        fabric: Fabric,
        codepoints: Codepoints,
        turns: TimeSlices,
        set_target: SetTarget,
        report: Callable[[SwitchForm], None],
    ) -> None:
        self._rules = FabricRules(fabric, codepoints)
        self._turns = turns
        self._set_target = set_target
        self._report = report
        self._reported = {name: SwitchForm.full(name) for name in self.names}
        self._given: dict[str, tuple[int, frozenset[RateMeter]]] = {}  # the generation of each switch's rules, and its meters
        self._translating = {name: asyncio.Lock() for name in self.names}
        self._changed = False  # It is set while some switch's form is newer than what its neighbours hold beside it.
        self._task: asyncio.Task[None] | None = None

    @property
    def names(self) -> Collection[str]:
        """The switches."""
        return self._rules.names

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """What runs beside."""
        return set() if self._task is None else {self._task}

    def size(self, switch: str) -> int:
        """Return how many rules a switch is to hold."""
        return len(self._rules.rules(switch) or ())

    def counts(self, switch: str) -> bool:
        """Return whether a switch counts what host pairs send."""
        form = self._rules.form(switch)
        return form is not None and form.admits

    def target(self, switch: str) -> SwitchTarget | None:
        """Return what a switch is to hold, None before the first plan and where it can hold no form."""
        rules, form = self._rules.rules(switch), self._rules.form(switch)
        if rules is None or form is None or switch not in self._given:
            return None
        generation, meters = self._given[switch]
        return SwitchTarget(generation, rules, meters if form.admits else frozenset(), form, self._rules.unknown(switch))

    async def give(self, switch: str, generation: int, rules: Mapping[Slot, Rule | None], meters: frozenset[RateMeter]) -> None:
        """Have a switch hold a generation. rules: those of the four tables that change."""
        changed = self._rules.change(switch, rules)
        self._given[switch] = generation, meters
        if self._rules.outgrown(switch):
            await self._adapt(switch)
        self._set_target(switch, self.target(switch), changed)

    def replace(self, switch: str, rules: Mapping[Slot, Rule]) -> bool:
        """Replace rules that no plan changes; return whether the switch is to hold any."""
        changed = self._rules.change(switch, rules)
        target = self.target(switch)
        self._set_target(switch, target, changed)
        return target is not None

    def calls(self, switch: str) -> FormCalls:
        """Return what its session is to call."""
        return FormCalls(partial(self._answered, switch), partial(self._refused, switch), partial(self._took_all, switch))

    async def _answered(self, switch: str, capabilities: SwitchCapabilities) -> None:
        self._rules.answered(switch, capabilities)
        await self._adapt(switch)
        self._decide()

    async def _refused(self, switch: str, rules: Sequence[Rule], full: Mapping[int, int]) -> bool:
        fits = self._rules.refused(switch, rules, full)
        await self._adapt(switch)
        return fits

    def _took_all(self, switch: str) -> None:
        if self._rules.took_all(switch):
            self._report_form(switch)
            self._decide()

    def _decide(self) -> None:
        """Have switches hold what depended on one that is known by now; those whose form is to change first do so later."""
        for name in self.names:
            if self._rules.decided(name):
                self._set_target(name, self.target(name), ())

    async def _adapt(self, switch: str) -> None:
        """Have a switch hold its rules in the form that was chosen, and the others theirs beside it soon."""
        if await self._translate(switch):
            self._changed = True
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._adapt_all())
        self._report_form(switch)

    async def _translate(self, switch: str) -> bool:
        """Have a switch hold its rules in its form beside the others; return whether that is another than before."""
        async with self._translating[switch]:
            is_new = await self._turns.do(self._rules.adapted(switch))
            if self._rules.decided(switch) or is_new:
                self._set_target(switch, self.target(switch), None if is_new else ())
        return is_new

    async def _adapt_all(self) -> None:
        try:
            await self._adapt_neighbours()
        except Exception as error:  # noqa: BLE001  Nobody awaits this task.
            fault = {"message": "a fault while switches were given rules beside others'", "exception": error}
            asyncio.get_running_loop().call_exception_handler(fault)

    async def _adapt_neighbours(self) -> None:
        while self._changed:
            self._changed = False
            for name in self.names:
                if await self._translate(name):
                    self._changed = True

    def _report_form(self, switch: str) -> None:
        form = self._rules.report(switch)
        if form != self._reported[switch]:
            self._reported[switch] = form
            self._report(form)
