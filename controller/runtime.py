"""The controller's one writer: events in, decisions out, acknowledgements back, all on the asyncio loop.

An event is checked and applied; then either a new decision or only new targets under the same plan are due. Both run at most
once per few milliseconds, and only differences leave the process. Events are written to the journal beside the loop: nobody is
told that one was taken in, and no decision is installed, before it is durable.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import structlog

from beamer.clock import SteadyClock
from beamer.decision.core import DecisionCore, Proposal, seeded
from beamer.errors import PlatformError, shortened
from beamer.log_limit import LogLimit
from beamer.network.decide import check_plan, decide
from beamer.network.events import ConnectionsChanged, ConnectionsSeen, Measured, PlanChanged, Planned, seen_connections
from beamer.network.fabric import Fabric
from beamer.network.plan import Plan, check_queues
from beamer.network.plan_modes import PlanMode
from beamer.network.policies import NetworkPolicy
from beamer.network.protocol import Applied, Assignment, Connections, Counters, Workers
from beamer.network.snapshot import Snapshot
from beamer.studies.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    FellSilent,
    Progressed,
    StageRegistered,
    StageSealed,
    StudyEnded,
    StudyRegistered,
    TargetDropped,
    TargetSet,
    TrialEnded,
    TrialRegistered,
    WorkerAttached,
    WorkerDetached,
)
from beamer.studies.journal.batches import Batches
from beamer.studies.journal.store import Journal
from controller.agents import AgentHub
from controller.alarm import Alarm
from controller.estimates import Estimates
from controller.installation import Installation
from controller.journal.compaction import EVENTS, Compaction
from controller.journal.replay import Recovered, impossible, recover
from controller.limited_log import LimitedLog
from controller.limits import Limits
from controller.liveness.watch import Watch, WatchOptions
from controller.openflow.reports import PairCount, SwitchConnected, SwitchEvent, SwitchInstalled, SwitchLost
from controller.openflow.rules import JobRules
from controller.ownership import Ownership
from controller.set_aside import SetAside
from controller.targets import TargetBuilder, Targets

COALESCE_S = 0.002  # events of one burst make one decision
PROGRESS_S = 0.5  # progress and measurements alone re-order no more often than this
SWITCH_WAIT_S = 2.0  # that assignments wait at most for switches to acknowledge their rules
RETRY_S = 1.0  # after the journal could not be written
LINES_AN_HOUR = 20  # of a kind that are logged of a switch or an agent: more say nothing new
ORDER_EVENTS = (  # change who runs or what is waited for, and call for a decision
    StudyRegistered,
    StudyEnded,
    StageRegistered,
    StageSealed,
    TrialRegistered,
    TargetSet,
    TargetDropped,
    AttemptStarted,
    AttemptEnded,
    TrialEnded,
    FellSilent,
)
PACE_EVENTS = (Progressed, Measured)  # change how much a trial has left to do
# Change what is to be installed, not the order.
TARGET_EVENTS = (WorkerAttached, WorkerDetached, ConnectionsSeen, ConnectionsChanged)

log = structlog.get_logger("beamer-controller")


class Switches(Protocol):
    """What installs rules on switches; `SwitchDriver` is the live one."""

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


class Runtime:
    """The state of one controller and everything that changes it.

    fabric: the network. journal: replayed first, then written before anything takes effect. policy: decides the order.
    queues: classes per port. make_switches: returns what installs rules on switches, given the callback for their events.
    clock: is moved forward to the journal's latest event. watch: for how long something may be missing. mode: how the order
    becomes a plan. limits: what is taken on. snapshot_events: after how many events a snapshot takes their place; 0: never.
    recovered: what all of the journal led to, if that is known already. on_lost: as of `Batches`. Raises `InputError` for
    queues that no port can have.
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
        watch: WatchOptions = WatchOptions(),  # noqa: B008  # frozen
        mode: PlanMode | None = None,
        limits: Limits = Limits(),  # noqa: B008  # frozen
        snapshot_events: int = EVENTS,
        recovered: Recovered | None = None,
        on_lost: Callable[[PlatformError], None] = lambda error: None,
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
        self._builder = TargetBuilder(fabric)
        check_queues(queues)
        self._batches = Batches(journal, on_lost)
        self._compaction = Compaction(self._batches, fabric, limits.kept, snapshot_events, recovered.growth)
        self._caused_at_s: list[float] = []
        self._unmatched: dict[str, dict[str, int]] = {}
        clock.not_before(self.tracker.now_s)
        self.watch = Watch(self.tracker, leases, self.record, clock, watch)
        for end in impossible(self.tracker, fabric, clock()):
            journal.append(end)
            self.tracker.apply(end)
        self.estimates = Estimates(self.network, self.tracker, self.record, clock)
        last = self.network.decision
        self.plan = Plan(last.queues, last.jobs) if last else Plan(queues)
        generation = last.generation if last else 1
        self._core: DecisionCore[Any, Snapshot, Plan] = DecisionCore(
            policy, decide(policy, queues, mode), check_plan, last, seeded(seed)
        )
        self.set_aside = SetAside(self._propose, self.tracker, self.network.profiles)
        self._targets = self._targets_of(self.plan)
        self.installation = Installation((s.name for s in fabric.switches), self._builder.ports, generation)
        self._deciding = Alarm(self._decide_now)
        self._searching = Alarm(self._search_culprits)
        self._sent = GenerationTargets(generation, self._targets)
        self._pending: deque[GenerationTargets] = deque()
        self._durable = generation
        self._switch_wait = Alarm(self._stop_waiting_for_switches)
        self._renewing = Alarm(self._renew_targets)
        self._switches = make_switches(self._on_switch_event)

    async def start(self) -> None:
        """Install what the journal says, re-decided for the time that has passed, and listen for switches."""
        self._decide_now()
        self._batches.keep()
        await self._batches.written()
        # Before any switch can connect, or the first one would be asked to drop rules that still hold.
        self._switches.install(self.installation.generation, self._targets.rules)
        await self._switches.start()
        self.watch.start()

    async def stop(self) -> None:
        """Stop, leaving switches and agents as they are."""
        self.watch.stop()
        self._deciding.cancel()
        self._searching.cancel()
        self._switch_wait.cancel()
        self._renewing.cancel()
        await self._switches.stop()
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
        self.watch.hear(event)  # not before: what is refused is not remembered
        if not changes:
            return False
        before = self._standing(event)
        self.tracker.apply(event)
        self.watch.take_in(event)
        if isinstance(event, StudyRegistered):
            self._forget_past_runs()
        if isinstance(event, ORDER_EVENTS) or self._standing(event) != before:
            self._caused_at_s.append(event.at_s)
            self._deciding.within(COALESCE_S)
        elif isinstance(event, PACE_EVENTS):
            self._deciding.within(PROGRESS_S)
        elif isinstance(event, TARGET_EVENTS):
            self._renewing.within(COALESCE_S)
        self.estimates.take_in(event)
        return True

    async def pair_counts(self) -> tuple[PairCount, ...]:
        """Return what the edge switches have counted per job, host pair and class."""
        return await self._switches.counters()

    def unmatched_bytes(self) -> dict[str, int]:
        """Return by job the bytes that its connections had sent before agents first saw them."""
        total: Counter[str] = Counter()
        for by_job in self._unmatched.values():
            total.update(by_job)
        return dict(total)

    def agent_joined(self, agent: str) -> Assignment:
        """Return the assignment of an agent that has just sent its hello."""
        self.installation.agent_lost(agent)
        return self._assignment(agent)

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
            unmatched = {job: message.unmatched_bytes[job] for job in own.jobs(agent, message.unmatched_bytes)}
            self._unmatched.setdefault(agent, {}).update(unmatched)
            foreign = sum(not own.is_local(agent, c) for c in message.connections)
            if foreign and self._foreign.take(agent):
                log.warning("an agent's connections of other hosts than its own are left out", agent=agent, connections=foreign)
            known = self.network.connections.get(agent, ())
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

    def _on_switch_event(self, event: SwitchEvent) -> None:
        match event:
            case SwitchInstalled():
                self.installation.switch_installed(event.switch, event.generation, self.clock())
            case SwitchLost():
                self.installation.switch_lost(event.switch)
                self._log_switch("switch lost", event.switch)
            case SwitchConnected():
                self.installation.switch_connected(event.switch)
                self._log_switch("switch connected", event.switch)
        self._send_assignments(self.installation.on_switches)

    def _log_switch(self, change: str, switch: str) -> None:
        """Log a change, unless it is one of many: a port that flaps, say."""
        if self._log_limit.take((change, switch)):
            log.info(change, switch=switch)

    def _forget_past_runs(self) -> None:
        known = self.tracker.trials
        for agent, by_job in self._unmatched.items():
            self._unmatched[agent] = {job: size for job, size in by_job.items() if job in known}

    def _standing(self, event: Event) -> object:
        """Return what decides whether the trial that an event reports on is ordered, and with what it waits."""
        trial = self.tracker.trials.get(event.trial) if isinstance(event, (WorkerAttached, Progressed)) else None
        return trial and (trial.status, len(trial.unreached))

    def _decide_now(self) -> None:
        now = self.clock()
        proposal = self.set_aside.propose()
        if self._install(proposal, self._caused_at_s) and not proposal.failed:
            self._caused_at_s = []
        if proposal.wake_s is not None:
            self._deciding.within(max(proposal.wake_s - now, COALESCE_S))
        if self.set_aside.is_searching:
            self._searching.within(0.0)

    def _search_culprits(self) -> None:
        self.set_aside.search()
        if self.set_aside.is_searching:
            self._searching.within(0.0)
        else:
            self._deciding.within(COALESCE_S)

    def _propose(self, without: frozenset[str]) -> Proposal[Any, Plan]:
        generation = self.installation.generation + 1
        return self._core.propose(lambda: self.network.snapshot(self.tracker, without), self.plan, self.clock(), generation)

    def _renew_targets(self) -> None:
        self._install(self._core.standing(self.plan))

    def _install(self, proposal: Proposal[Any, Plan], caused_at_s: Sequence[float] = ()) -> bool:
        """Journal what is new under a new generation and send it to those whom it changes; return whether it was journaled."""
        self._renewing.cancel()
        plan = proposal.content
        wanted, before = self._targets_of(plan), self._targets
        if (wanted, plan, proposal.state) == (before, self.plan, self._core.state):
            return True
        generation = self.installation.generation + 1
        decided = Planned(self.clock(), self.policy, generation, proposal.plain_state, plan.queues, dict(plan.jobs))
        last = self.network.decision
        try:
            self.record(PlanChanged.of(last, decided) if last else decided)
        except PlatformError as error:
            self._limited.error("the journal takes no decision, the old plan stays", None, reason=str(error))
            self._deciding.within(RETRY_S)
            return False
        self._core.adopt(proposal)
        self.plan, self._targets = plan, wanted
        self.installation.want(generation, wanted.rules != before.rules, _renewed(before, wanted), caused_at_s)
        self._pending.append(GenerationTargets(generation, wanted))
        self._batches.then(partial(self._carry_out, generation, wanted.rules if wanted.rules != before.rules else None))
        return True

    def _carry_out(self, generation: int, rules: Sequence[JobRules] | None) -> None:
        """Install a decision that is durable now. rules: None where they are as before."""
        self._durable = generation
        if rules is not None:
            self._switches.install(generation, rules)
        self._send_assignments(self.installation.on_switches)

    def _send_assignments(self, on_switches: int) -> None:
        """Send agents what changed for them up to the generation `on_switches`.

        Switches go first: a packet that its host marks with a class whose rules its edge does not hold yet is given the old one
        there, and counted for the new one later.
        """
        renewed: set[str] = set()
        while self._pending and self._pending[0].generation <= min(on_switches, self._durable):
            before, self._sent = self._sent, self._pending.popleft()
            renewed.update(_renewed(before.targets, self._sent.targets))
        for agent in sorted(renewed):
            self.agents.send(agent, self._assignment(agent))
        self._switch_wait.cancel()
        if self._pending and self._pending[0].generation <= self._durable:
            self._switch_wait.within(SWITCH_WAIT_S)

    def _stop_waiting_for_switches(self) -> None:
        behind = [name for name, generation in self.installation.switches.items() if generation < self.installation.generation]
        what = "assignments are sent although switches have not acknowledged their rules"
        self._limited.warning(what, None, tuple(behind), switches=behind)
        self._send_assignments(self.installation.generation)

    def _assignment(self, agent: str) -> Assignment:
        return self._sent.targets.assignments[agent].model_copy(update={"generation": self._sent.generation})

    def _targets_of(self, plan: Plan) -> Targets:
        return self._builder.build(self.tracker.running, self.network.connections, plan, self.network.sender_bps)


def _renewed(before: Targets, wanted: Targets) -> list[str]:
    """Return the agents whose assignment differs."""
    return [agent for agent, content in wanted.assignments.items() if content != before.assignments[agent]]
