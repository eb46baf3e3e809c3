"""The controller's one writer: events in, decisions out, acknowledgements back, on the asyncio loop.

An event is checked and applied; then either a new decision or only new targets under the same plan are due, which
`controller.network.planning` makes beside the loop. Only differences leave the process. Events are written to the journal
beside the loop: nobody is told that one was taken in, and no decision is installed, before it is durable.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import reduce
from operator import or_

import structlog

from beamer.errors import shortened
from beamer.log_limit import LogLimit
from beamer.network.codepoints import LOCAL
from beamer.network.events import seen_connections
from beamer.network.explanation import Basis
from beamer.network.plan import Plan
from beamer.network.protocol import Applied, Assignment, Connections, Counters, Workers
from beamer.protocol_version import FIRST_VERSION
from beamer.studies.events import Event, StudyRegistered
from beamer.studies.journal.batches import Batches
from beamer.studies.wakes import Wakes
from controller.agents.hub import AgentHub
from controller.event_loop.time_slices import at_once
from controller.gpu.level import GpuLevel
from controller.journal.compaction import Compaction
from controller.journal.replay import Recovered
from controller.limited_log import LINES_AN_HOUR
from controller.liveness.watch import Watch
from controller.network.condition import NetworkCondition
from controller.network.delivery import Delivery, Switches
from controller.network.estimates import Estimates
from controller.network.installation import Installation
from controller.network.phases import loop_waited_s
from controller.network.planning import COALESCE_S, Planner, plan_in_force
from controller.network.quarantine import Quarantine
from controller.network.targets import TargetBuilder
from controller.network.unmatched import UnmatchedBytes
from controller.openflow.reports import NetworkSeen, PairCount, SwitchForm
from controller.ownership import Ownership
from controller.settings import ControllerSettings

CLASSES_S = 1.0  # Trials wait at most so long for their classes before they are started.
_LOOK_S = 0.005  # So long passes between two checks whether the classes are installed.
PROGRESS_S = 0.5  # progress and measurements alone re-order no more often than this

log = structlog.get_logger("beamer-controller")


class Runtime:
    """The state of one controller and everything that changes it; nothing happens before `start`.

    recovered: what the journal has led to, as `resume` leaves it. batches: write the journal. switches: which it is to lead.
    clock: is not behind the journal.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        recovered: Recovered,
        batches: Batches,
        switches: Switches,
        clock: Callable[[], float],
    ) -> None:
        self.fabric, self.limits, self.policy = settings.fabric, settings.limits, settings.policy.name
        self.network, self.tracker, self.gpus = recovered.network, recovered.tracker, recovered.gpus
        self.batches, self.clock = batches, clock
        # An agent of version 1 knows no codepoints but these, and would mark with others than switches go by.
        least = FIRST_VERSION if settings.codepoints == LOCAL else FIRST_VERSION + 1
        self.agents = AgentHub(self.fabric.agents, self, self.limits, least)
        self._ownership = Ownership(self.fabric, self.tracker)
        self._foreign, self._refused = LogLimit(1, 3600.0), LogLimit(LINES_AN_HOUR, 3600.0)
        self._compaction = Compaction(batches, self.fabric, self.limits.kept, settings.snapshot_events, recovered.growth)
        self.unmatched = UnmatchedBytes()
        self.not_applied: dict[str, str] = {}  # By agent, why what it is assigned is not as it should be there.
        self.watch = Watch(self.tracker, recovered.leases, self.record, clock, settings.watch)
        self.estimates = Estimates(self.network, self.tracker, self.record, clock)
        last, builder = self.network.decision, TargetBuilder(self.fabric, settings.codepoints)
        plan, generation = plan_in_force(last, settings.queues), last.generation if last else 1
        # Of the controller before there may have been more classes than have a codepoint now.
        kept = plan.within(settings.queues)
        targets = at_once(builder.build(self.tracker.running, self.network.seen, kept, self.network.sender_bps))
        self.installation = Installation(switches.names, builder.ports, generation, loop_waited_s)
        self.condition = NetworkCondition(self.fabric)
        self._delivery = Delivery(self.installation, targets, self.agents, switches, batches, clock, self._network_seen)
        self._planner = Planner(settings, recovered, builder, self._delivery, self.record, clock)
        self.gpu: GpuLevel | None = None
        if settings.gpu_policy is not None:
            self.gpu = GpuLevel(
                settings, settings.gpu_policy, recovered, self.record, self.written, self._classes_installed, clock
            )

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._planner.plan

    @property
    def basis(self) -> Basis | None:
        """What the last decision was made from, None before the first."""
        return self._planner.basis

    @property
    def quarantine(self) -> Quarantine:
        """The jobs that no decision can be made with."""
        return self._planner.quarantine

    @property
    def switch_forms(self) -> Mapping[str, SwitchForm]:
        """The form of the rules of each switch that is connected."""
        return self._delivery.forms

    async def start(self) -> None:
        """Install what the journal says, re-decided for the time that has passed, and listen for switches."""
        await self._planner.start()
        self.batches.keep()
        await self.batches.written()
        await self._delivery.start()
        self.watch.start()
        if self.gpu is not None:
            self.gpu.start()

    async def stop(self) -> None:
        """Stop, leaving switches and agents as they are."""
        self.watch.stop()
        if self.gpu is not None:
            await self.gpu.stop()
        await self._planner.stop()
        await self._delivery.stop()
        await self._compaction.stop()
        await self.batches.close()

    async def written(self) -> None:
        """Wait until everything that was recorded so far is durable. Raises `PlatformError` if it cannot be written."""
        await self.batches.written()

    async def confirm(self) -> None:
        """Wait until this controller has been found to lead, after now. Raises `PlatformError` if it does not."""
        await self.batches.confirm()

    def record(self, event: Event) -> bool:
        """Take in an event; return whether it changed anything. Raises `InputError` and changes nothing if it cannot be.

        Raises `PlatformError` and changes nothing while the journal takes no events. An event is durable after `written`.
        """
        changes = self.tracker.check(event)
        if changes:
            self._compaction.count(self.batches.put(event))
        self.watch.hear(event)  # A refused event is not remembered, so the watch hears only what was checked.
        if not changes:
            return False
        before = self._standing(event)
        happened = self.tracker.apply(event)
        for one in happened:
            self.watch.take_in(one)
        if isinstance(event, StudyRegistered):
            self.unmatched.keep(self.tracker.trials)
        woken = reduce(or_, (one.wakes for one in happened), Wakes.NOTHING)
        if Wakes.ORDER in woken or self._standing(event) != before:
            self._planner.decide(COALESCE_S, event.at_s)
        elif Wakes.PACE in woken:
            self._planner.decide(PROGRESS_S)
        elif Wakes.TARGETS in woken:
            self._planner.renew()
        for one in happened:
            self.estimates.take_in(one)
        if self.gpu is not None:
            self.gpu.take_in(event)
        return True

    async def _classes_installed(self) -> None:
        """Wait until what was recorded is decided on and in force where it can be, at most for `CLASSES_S`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLASSES_S):
                await self._planner.decided()
                while not self.installation.is_on(self.agents.connected):
                    await asyncio.sleep(_LOOK_S)

    async def pair_counts(self) -> tuple[PairCount, ...]:
        """Return what the edge switches have counted per job, host pair and class."""
        return await self._delivery.switches.counters()

    def agent_joined(self, agent: str) -> Assignment:
        """Return the assignment of an agent that has just sent its hello."""
        self.installation.agent_lost(agent)
        self.not_applied.pop(agent, None)
        return self._delivery.assignment(agent)

    def on_agent_message(self, agent: str, message: Applied | Workers | Connections | Counters) -> int:
        """Take in an agent's acknowledgement, the workers it knows of, the connections that it sees, or its counters.

        Return how many connections have come or gone with it.
        """
        if isinstance(message, Counters):
            self.estimates.count(agent, message)
        elif isinstance(message, Workers):
            self.watch.report(agent, message)
        elif isinstance(message, Connections):
            own = self._ownership
            for job in own.jobs(agent, message.unmatched_bytes):
                self.unmatched.count(agent, job, message.unmatched_bytes[job])
            foreign = sum(not own.is_local(agent, c) for c in message.connections)
            if foreign and self._foreign.take(agent):
                log.warning("an agent's connections of other hosts than its own are left out", agent=agent, connections=foreign)
            known = self.network.seen.all_of_agent(agent)
            seen = own.connections(agent, message.connections)
            return len({*known} ^ {*seen}) if self.record(seen_connections(self.clock(), agent, known, seen)) else 0
        elif message.error is None:
            self.not_applied.pop(agent, None)
            self.installation.agent_applied(agent, message.generation, self.clock())
        else:
            self.installation.agent_lost(agent)  # What had been in force there may be no more.
            reason = self.not_applied[agent] = shortened(message.error)
            if self._refused.take(agent):
                log.error("agent could not apply", agent=agent, generation=message.generation, reason=reason)
        return 0

    def agent_lost(self, agent: str) -> None:
        """Take in that an agent is gone; it keeps what it has applied until that expires."""
        self.installation.agent_lost(agent)
        self.not_applied.pop(agent, None)
        self.watch.agent_lost(agent)

    def _network_seen(self, seen: NetworkSeen) -> None:
        """Take in what switches show of the network: dead cables change paths, and who shares a link with whom."""
        if self.condition.take_in(seen):
            self.network.route(self.fabric.next_hops.around(seen.dead))
            self._planner.decide(COALESCE_S)

    def _standing(self, event: Event) -> object:
        """Return what decides whether the trial that an event reports on is ordered, and with what it waits."""
        if Wakes.STANDING not in event.wakes:
            return None
        trial = self.tracker.trials.get(getattr(event, "trial", ""))
        return trial and (trial.status, len(trial.unreached))
