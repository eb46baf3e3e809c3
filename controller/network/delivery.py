"""Delivers decisions that are durable: switches first, then agents, each what changes for it.

A packet that its host marks with a class whose rules its edge does not hold yet is given the old one there, and counted for the
new one later: agents wait until all connected switches have acknowledged, or for `SWITCH_WAIT_S`.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from beamer.log_limit import LogLimit
from beamer.network.protocol import Assignment
from beamer.studies.journal.batches import Batches
from controller.agents.hub import AgentHub
from controller.event_loop.wake_timer import WakeTimer
from controller.limited_log import LINES_AN_HOUR, LimitedLog
from controller.network.installation import Installation
from controller.network.phases import DecisionTimes, PlanPhase
from controller.network.targets import Targets
from controller.openflow.reports import (
    NetworkSeen,
    PairCount,
    RulesWorkedOut,
    SwitchChanges,
    SwitchConnected,
    SwitchEvent,
    SwitchForm,
    SwitchInstalled,
    SwitchLost,
)
from controller.openflow.rules import JobRules
from controller.openflow.terms import Terms

SWITCH_WAIT_S = 2.0  # Assignments wait at most so long for switches to acknowledge their rules.

log = structlog.get_logger("beamer-controller")


class Switches(Protocol):
    """What installs rules on switches; `SwitchDriver` is the live one, `NoSwitches` where there are none to lead."""

    @property
    def names(self) -> Sequence[str]:
        """The switches that it leads."""

    def lead(self, on_event: Callable[[SwitchEvent], None], terms: Terms) -> None:
        """Have the next `start` take switches over. on_event: called on the loop. terms: this leadership's."""

    async def start(self) -> None:
        """Listen for switches."""

    async def stop(self) -> None:
        """Stop listening and leave the rules as they are."""

    def install(self, generation: int, jobs: Sequence[JobRules]) -> None:
        """Make every switch hold the rules of `jobs`, as soon as it is connected."""

    async def counters(self) -> tuple[PairCount, ...]:
        """Return what has been counted per job, host pair and class."""


@dataclass(frozen=True)
class GenerationTargets:
    """The targets of one generation."""

    generation: int
    targets: Targets


class Delivery:
    """Deliver generations to switches and agents, and know which is in force where.

    installation: keeps what is acknowledged. targets: in force at its generation. batches: write the journal. clock: Unix
    seconds. on_network: called with what switches show of the network, whenever that changes.
    """

    def __init__(
        self,
        installation: Installation,
        targets: Targets,
        agents: AgentHub,
        switches: Switches,
        batches: Batches,
        clock: Callable[[], float],
        on_network: Callable[[NetworkSeen], None] = lambda seen: None,
    ) -> None:
        self._on_network = on_network
        self.installation = installation
        self._forms: dict[str, SwitchForm] = {}  # Of switches that are not named nothing but the full form is known.
        self.targets = targets
        self._agents = agents
        self.switches = switches
        self._batches = batches
        self._clock = clock
        self._log_limit, self._limited = LogLimit(LINES_AN_HOUR, 3600.0), LimitedLog()
        self._sent = GenerationTargets(installation.generation, targets)
        self._pending: deque[GenerationTargets] = deque()
        self._durable = installation.generation
        self._switch_wait = WakeTimer(self._stop_waiting_for_switches)

    async def start(self) -> None:
        """Have switches hold what is wanted, and listen for them."""
        self.switches.lead(self._on_switch_event, self._batches)
        # Rules are installed before any switch can connect, or the first one would be asked to drop rules that still hold.
        self.switches.install(self.installation.generation, self.targets.rules)
        await self.switches.start()

    async def stop(self) -> None:
        """Stop, leaving switches and agents as they are."""
        self._switch_wait.cancel()
        await self.switches.stop()

    def want(
        self,
        generation: int,
        targets: Targets,
        events_at_s: Sequence[float],
        times: DecisionTimes | None = None,
        now: float = 0.0,
    ) -> None:
        """Make a generation the wanted one, which was recorded just now, and deliver it when it is durable.

        events_at_s, times, now: as of `Installation.want`.
        """
        before, self.targets = self.targets, targets
        rules = targets.rules if targets.rules != before.rules else None
        self.installation.want(generation, rules is not None, targets.renewed_from(before), events_at_s, times, now)
        self._pending.append(GenerationTargets(generation, targets))

        def carry_out() -> None:
            self._durable = generation
            self.installation.phases.reach(PlanPhase.JOURNAL, generation, self._clock())
            if rules is not None:
                self.switches.install(generation, rules)
            self._send(self.installation.on_switches)

        self._batches.then(carry_out)

    @property
    def forms(self) -> Mapping[str, SwitchForm]:
        """The form of the rules of each switch that is connected."""
        return {name: self._form(name) for name in self.installation.connected_switches}

    def _form(self, switch: str) -> SwitchForm:
        return self._forms.get(switch, SwitchForm.full(switch))

    def assignment(self, agent: str) -> Assignment:
        """Return the latest assignment that an agent may have."""
        return self._sent.targets.assignments[agent].model_copy(update={"generation": self._sent.generation})

    def _send(self, on_switches: int) -> None:
        """Send agents what changed for them up to the generation `on_switches`, as far as it is durable."""
        renewed: set[str] = set()
        first = self._pending[0] if self._pending else None
        while self._pending and self._pending[0].generation <= min(on_switches, self._durable):
            before, self._sent = self._sent, self._pending.popleft()
            renewed.update(self._sent.targets.renewed_from(before.targets))
        for agent in sorted(renewed):
            self._agents.send(agent, self.assignment(agent))
        if not self._pending or self._pending[0] is not first:
            self._switch_wait.cancel()
        if self._pending and self._pending[0].generation <= self._durable:  # A wait that is under way does not begin anew.
            self._switch_wait.within(SWITCH_WAIT_S)

    def _stop_waiting_for_switches(self) -> None:
        behind = [name for name, generation in self.installation.switches.items() if generation < self.installation.generation]
        what = "assignments are sent although switches have not acknowledged their rules"
        self._limited.warning(what, None, tuple(behind), switches=behind)
        self._send(self.installation.generation)

    def _on_switch_event(self, event: SwitchEvent) -> None:
        match event:
            case NetworkSeen():
                self._on_network(event)
            case RulesWorkedOut():
                self.installation.phases.reach(PlanPhase.RULES, event.generation, self._clock())
                return
            case SwitchForm():
                self._forms[event.switch] = event
                self.installation.switch_able(event.switch, event.able)
                self._log_form(event)
            case SwitchInstalled():
                self.installation.switch_installed(event.switch, event.generation, self._clock())
            case SwitchChanges():
                self.installation.switch_changes(event.switch)
            case SwitchLost():
                self.installation.switch_lost(event.switch)
                self._log_switch("switch lost", event.switch)
            case SwitchConnected():
                self.installation.switch_connected(event.switch)
                self._log_switch("switch connected", event.switch, form=self._form(event.switch).form)
        self._send(self.installation.on_switches)

    def _log_switch(self, change: str, switch: str, **about: str) -> None:
        """Log a change, unless it is one of many: a port that flaps, say."""
        if self._log_limit.take((change, switch)):
            log.info(change, switch=switch, **about)

    def _log_form(self, form: SwitchForm) -> None:
        """Log in which form a switch holds its rules, and what does not hold there."""
        if not self._log_limit.take((form.switch, form.form)):
            return
        about = {"switch": form.switch, "form": form.form}
        if not form.reason:
            log.info("switch holds all rules", **about)
        elif not form.able:
            log.error("switch can hold no rules", **about, reason=form.reason)
        else:
            log.warning("switch cannot hold all rules", **about, reason=form.reason, limits=list(form.limits))
