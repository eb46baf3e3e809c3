"""The controller's one writer: events in, decisions out, acknowledgements back, on the asyncio loop.

An event is checked and applied; then either a new decision or only new targets under the same plan are due, which
`controller.network.planning` makes beside the loop. Only differences leave the process. Events are written to the journal
beside the loop: nobody is told that one was taken in, and no decision is installed, before it is durable.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from operator import or_
from typing import Any

import structlog

from beamer.clock import SteadyClock
from beamer.decision.core import DecisionCore, seeded
from beamer.errors import PlatformError, shortened
from beamer.gpu.policy import GpuPolicy
from beamer.log_limit import LogLimit
from beamer.network.decide import check_plan, decide
from beamer.network.events import seen_connections
from beamer.network.fabric import Fabric
from beamer.network.plan import Plan, check_queues
from beamer.network.plan_modes import PlanMode
from beamer.network.policies import NetworkPolicy
from beamer.network.protocol import Applied, Assignment, Connections, Counters, Workers
from beamer.network.snapshot import Snapshot
from beamer.studies.events import Event, StudyRegistered
from beamer.studies.journal.batches import Batches
from beamer.studies.journal.store import Journal
from beamer.studies.wakes import Wakes
from controller.agents.hub import AgentHub
from controller.event_loop.time_slices import at_once
from controller.gpu.level import GpuLevel
from controller.journal.compaction import EVENTS, Compaction
from controller.journal.replay import Recovered, impossible, recover
from controller.limited_log import LimitedLog
from controller.limits import Limits
from controller.liveness.watch import Watch, WatchOptions
from controller.network.delivery import Delivery, Switches
from controller.network.estimates import Estimates
from controller.network.installation import Installation
from controller.network.planning import COALESCE_S, Planner
from controller.network.set_aside import SetAside
from controller.network.targets import TargetBuilder
from controller.network.unmatched import UnmatchedBytes
from controller.openflow.reports import PairCount, SwitchEvent
from controller.ownership import Ownership

CLASSES_S = 1.0  # Trials wait at most so long for their classes before they are started.
_LOOK_S = 0.005  # So long passes between two checks whether the classes are installed.
PROGRESS_S = 0.5  # progress and measurements alone re-order no more often than this
LINES_AN_HOUR = 20  # So many lines of a kind are logged of a switch or an agent: more say nothing new.

log = structlog.get_logger("beamer-controller")


class Runtime:
    """The state of one controller and everything that changes it.

    fabric: the network. journal: replayed first, then written before anything takes effect. policy: decides the order.
    queues: classes per port. make_switches: returns what installs rules on switches, given the callback for their events.
    clock: is moved forward to the journal's latest event. watch: for how long something may be missing. mode: how the order
    becomes a plan. limits: what is taken on. snapshot_events: after how many events a snapshot takes their place; 0: never.
    recovered: what all of the journal led to, if that is known already. on_lost: as of `Batches`. gpu_policy: decides which
    trials have which GPUs; None: engines do, or whoever runs trials. Raises `InputError` for queues that no port can have.
    """

    def __init__(
        self,
        fabric: Fabric,
        journal: Journal,
        policy: NetworkPolicy[Any],
        queues: int,
        make_switches: Callable[[Callable[[SwitchEvent], None]], Switches],
        seed: int,
        clock: SteadyClock,
        watch: WatchOptions = WatchOptions(),  # noqa: B008  # `WatchOptions` is frozen.
        mode: PlanMode | None = None,
        limits: Limits = Limits(),  # noqa: B008  # `Limits` is frozen.
        snapshot_events: int = EVENTS,
        recovered: Recovered | None = None,
        on_lost: Callable[[PlatformError], None] = lambda error: None,
        gpu_policy: GpuPolicy[Any] | None = None,
    ) -> None:
        self.fabric = fabric
        self.clock = clock
        self.policy = policy.name
        self.limits = limits
        if recovered is None:
            recovered = recover(journal, fabric, watch.grace_s, limits.kept)
        self.network, self.tracker, leases = recovered.network, recovered.tracker, recovered.leases
        self.agents = AgentHub(fabric.agents, self, limits)
        self._ownership = Ownership(fabric, self.tracker)
        self._foreign = LogLimit(1, 3600.0)
        self._log_limit, self._limited = LogLimit(LINES_AN_HOUR, 3600.0), LimitedLog()
        check_queues(queues)
        self._batches = Batches(journal, on_lost)
        self._compaction = Compaction(self._batches, fabric, limits.kept, snapshot_events, recovered.growth)
        self._unmatched = UnmatchedBytes()
        clock.not_before(self.tracker.now_s)
        self.watch = Watch(self.tracker, leases, self.record, clock, watch)
        for end in impossible(self.tracker, fabric, clock()):
            journal.append(end)
            self.tracker.apply(end)
        self.estimates = Estimates(self.network, self.tracker, self.record, clock)
        last = self.network.decision
        plan = Plan(last.queues, last.jobs) if last else Plan(queues)
        core: DecisionCore[Any, Snapshot, Plan] = DecisionCore(
            policy, decide(policy, queues, mode), check_plan, last, seeded(seed)
        )
        builder = TargetBuilder(fabric)
        targets = at_once(builder.build(self.tracker.running, self.network.seen, plan, self.network.sender_bps))
        generation = last.generation if last else 1
        self.installation = Installation((s.name for s in fabric.switches), builder.ports, generation)
        self._delivery = Delivery(self.installation, targets, self.agents, make_switches, clock, self._log_limit, self._limited)
        self._planner = Planner(
            self.network,
            self.tracker,
            core,
            plan,
            builder,
            self._delivery,
            self.record,
            self._batches.then,
            policy.name,
            clock,
            self._limited,
        )
        self.gpus = recovered.gpus
        self.gpu: GpuLevel | None = None
        if gpu_policy is not None:
            self.gpu = GpuLevel(
                fabric, self.tracker, self.gpus, gpu_policy, seed, limits, self.record, self.written, self._classes_installed,
                clock,
            )  # fmt: skip

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._planner.plan

    @property
    def set_aside(self) -> SetAside[Any]:
        """The jobs that no decision can be made with."""
        return self._planner.set_aside

    async def start(self) -> None:
        """Install what the journal says, re-decided for the time that has passed, and listen for switches."""
        await self._planner.start()
        self._batches.keep()
        await self._batches.written()
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
        await self._batches.close()

    async def written(self) -> None:
        """Wait until everything that was recorded so far is durable. Raises `PlatformError` if it cannot be written."""
        await self._batches.written()

    async def confirm(self) -> None:
        """Wait until this controller has been found to lead, after now. Raises `PlatformError` if it does not."""
        await self._batches.confirm()

    @property
    def batches(self) -> Batches:
        """What writes the journal."""
        return self._batches

    def record(self, event: Event) -> bool:
        """Take in an event; return whether it changed anything. Raises `InputError` and changes nothing if it cannot be.

        Raises `PlatformError` and changes nothing while the journal takes no events. An event is durable after `written`.
        """
        changes = self.tracker.check(event)
        if changes:
            self._compaction.count(self._batches.put(event))
        self.watch.hear(event)  # A refused event is not remembered, so the watch hears only what was checked.
        if not changes:
            return False
        before = self._standing(event)
        happened = self.tracker.apply(event)
        for one in happened:
            self.watch.take_in(one)
        if isinstance(event, StudyRegistered):
            self._unmatched.keep(self.tracker.trials)
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

    def unmatched_bytes(self) -> dict[str, int]:
        """Return by job the bytes that its connections had sent before agents first marked them."""
        return self._unmatched.by_trial()

    def agent_joined(self, agent: str) -> Assignment:
        """Return the assignment of an agent that has just sent its hello."""
        self.installation.agent_lost(agent)
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
                self._unmatched.count(agent, job, message.unmatched_bytes[job])
            foreign = sum(not own.is_local(agent, c) for c in message.connections)
            if foreign and self._foreign.take(agent):
                log.warning("an agent's connections of other hosts than its own are left out", agent=agent, connections=foreign)
            known = self.network.seen.all_of_agent(agent)
            seen = own.connections(agent, message.connections)
            return len({*known} ^ {*seen}) if self.record(seen_connections(self.clock(), agent, known, seen)) else 0
        elif message.error is None:
            self.installation.agent_applied(agent, message.generation, self.clock())
        elif self._log_limit.take(("could not apply", agent)):
            log.error("agent could not apply", agent=agent, generation=message.generation, reason=shortened(message.error))
        return 0

    def agent_lost(self, agent: str) -> None:
        """Take in that an agent is gone; it keeps what it has applied until that expires."""
        self.installation.agent_lost(agent)
        self.watch.agent_lost(agent)

    def _standing(self, event: Event) -> object:
        """Return what decides whether the trial that an event reports on is ordered, and with what it waits."""
        if Wakes.STANDING not in event.wakes:
            return None
        trial = self.tracker.trials.get(getattr(event, "trial", ""))
        return trial and (trial.status, len(trial.unreached))
