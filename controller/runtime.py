"""The controller's one writer: events in, decisions out, acknowledgements back, all on the asyncio loop.

An event is checked, journaled, applied; then either a new decision or only new targets under the same plan are due. Both run
at most once per few milliseconds, and only differences leave the process.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from beamer.decision.core import DecisionCore, Proposal, seeded
from beamer.errors import InputError, PlatformError
from beamer.network.decide import check_plan, decide
from beamer.network.events import ConnectionsSeen, Planned
from beamer.network.fabric import Fabric
from beamer.network.ledger import NetworkLedger, check_on_fabric
from beamer.network.plan import Plan, check_queues
from beamer.network.policies import NetworkPolicy
from beamer.network.protocol import Applied, Assignment, Connections
from beamer.network.snapshot import Snapshot
from beamer.studies.events import Event, IterationDone, JobEnded, JobRegistered, StageRegistered, StageSealed, WorkerAttached
from beamer.studies.journal.store import Journal
from beamer.studies.model import JobStatus
from beamer.studies.tracker import Tracker
from controller.agents import AgentHub
from controller.installation import Installation
from controller.openflow.reports import PairCount, SwitchConnected, SwitchEvent, SwitchInstalled, SwitchLost
from controller.openflow.rules import JobRules
from controller.targets import Targets, agent_ports, targets

COALESCE_S = 0.002  # events of one burst make one decision
PROGRESS_S = 0.5  # progress alone re-orders no more often than this
SWITCH_WAIT_S = 2.0  # that assignments wait at most for switches to acknowledge their rules
RETRY_S = 1.0  # after the journal could not be written
STAGE_EVENTS = (StageRegistered, StageSealed, JobRegistered, JobEnded)  # call for a decision
TARGET_EVENTS = (WorkerAttached, ConnectionsSeen)  # change what is to be installed, not the order

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


class Alarm:
    """Runs an action once, at the earliest of the times asked for."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._handle: asyncio.TimerHandle | None = None

    def within(self, delay_s: float) -> None:
        """Run the action within `delay_s` seconds from now."""
        loop = asyncio.get_running_loop()
        due = loop.time() + delay_s
        if self._handle is None or due < self._handle.when():
            self.cancel()
            self._handle = loop.call_at(due, self._fire)

    def cancel(self) -> None:
        """Forget the times asked for."""
        if self._handle:
            self._handle.cancel()
        self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._action()


@dataclass(frozen=True)
class GenerationTargets:
    """The targets of one generation."""

    generation: int
    targets: Targets


class Runtime:
    """The state of one controller and everything that changes it.

    fabric: the network. journal: replayed first, then written before anything takes effect. policy: decides the order.
    queues: classes per port. make_switches: returns what installs rules on switches, given the callback for their events.
    clock: Unix time in seconds. Raises `InputError` for queues that no port can have and for a journal of another network.
    """

    def __init__(
        self,
        fabric: Fabric,
        journal: Journal,
        policy: NetworkPolicy[Any],
        queues: int,
        make_switches: Callable[[Callable[[SwitchEvent], None]], Switches],
        seed: int,
        clock: Callable[[], float],
    ) -> None:
        self.fabric = fabric
        self.clock = clock
        self.policy = policy.name
        self.network = NetworkLedger(fabric)
        self.tracker = Tracker(self.network)
        self.agents = AgentHub(fabric.agents, self)
        self._ports = agent_ports(fabric)
        check_queues(queues)
        self._journal = journal
        self._caused_at_s: list[float] = []
        self._unmatched: dict[str, dict[str, int]] = {}
        self._replay(journal)
        last = self.network.decision
        self.plan = Plan(last.queues, last.jobs) if last else Plan(queues)
        generation = last.generation if last else 1
        self._core: DecisionCore[Any, Snapshot, Plan] = DecisionCore(
            policy, decide(policy, queues), check_plan, last, seeded(seed)
        )
        self._targets = self._targets_of(self.plan)
        self.installation = Installation((s.name for s in fabric.switches), self._ports, generation)
        self._deciding = Alarm(self._decide_now)
        self._sent = GenerationTargets(generation, self._targets)
        self._pending: deque[GenerationTargets] = deque()
        self._switch_wait = Alarm(self._stop_waiting_for_switches)
        self._renewing = Alarm(self._renew_targets)
        self._switches = make_switches(self._on_switch_event)

    async def start(self) -> None:
        """Install what the journal says, re-decided for the time that has passed, and listen for switches."""
        self._decide_now()
        # Before any switch can connect, or the first one would be asked to drop rules that still hold.
        self._switches.install(self.installation.generation, self._targets.rules)
        await self._switches.start()

    async def stop(self) -> None:
        """Stop, leaving switches and agents as they are."""
        self._deciding.cancel()
        self._switch_wait.cancel()
        self._renewing.cancel()
        await self._switches.stop()
        self._journal.close()

    def record(self, event: Event) -> bool:
        """Take in an event; return whether it changed anything. Raises `InputError` and changes nothing if it cannot be."""
        if not self.tracker.check(event):
            return False
        self._journal.append(event)
        self.tracker.apply(event)
        if isinstance(event, STAGE_EVENTS):
            self._caused_at_s.append(event.at_s)
            self._deciding.within(COALESCE_S)
        elif isinstance(event, IterationDone):
            self._deciding.within(PROGRESS_S)
        elif isinstance(event, TARGET_EVENTS):
            self._renewing.within(COALESCE_S)
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

    def on_agent_message(self, agent: str, message: Applied | Connections) -> None:
        """Take in an agent's acknowledgement or the connections that it sees."""
        if isinstance(message, Connections):
            self._unmatched.setdefault(agent, {}).update(message.unmatched_bytes)
            # A job that has ended, or that another journal knew, may still be in a report that was under way.
            known = tuple(c for c in message.connections if c.job in self.tracker.jobs)
            self.record(ConnectionsSeen(self.clock(), agent, known))
        elif message.error is None:
            self.installation.agent_applied(agent, message.generation, self.clock())
        else:
            log.error("agent could not apply", agent=agent, generation=message.generation, error=message.error)

    def agent_lost(self, agent: str) -> None:
        """Take in that an agent is gone; it keeps what it has applied until that expires."""
        self.installation.agent_lost(agent)

    def _on_switch_event(self, event: SwitchEvent) -> None:
        match event:
            case SwitchInstalled():
                self.installation.switch_installed(event.switch, event.generation, self.clock())
            case SwitchLost():
                self.installation.switch_lost(event.switch)
                log.info("switch lost", switch=event.switch)
            case SwitchConnected():
                self.installation.switch_connected(event.switch)
                log.info("switch connected", switch=event.switch)
        self._send_assignments(self.installation.on_switches)

    def _replay(self, journal: Journal) -> None:
        for event in journal.replay():
            self.tracker.apply(event)
        for job in self.tracker.jobs.values():
            if job.status is JobStatus.RUNNING:
                try:
                    check_on_fabric(job.spec, self.fabric)
                except InputError as error:
                    raise InputError(
                        f"journal: {job.key}: {error.field}", error.value, f"{error.expected} of this fabric"
                    ) from error

    def _decide_now(self) -> None:
        now = self.clock()
        generation = self.installation.generation + 1
        proposal = self._core.propose(lambda: self.network.snapshot(self.tracker), self.plan, now, generation)
        if self._install(proposal, self._caused_at_s) and not proposal.failed:
            self._caused_at_s = []
        if proposal.wake_s is not None:
            self._deciding.within(max(proposal.wake_s - now, COALESCE_S))

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
        try:
            self.record(Planned(self.clock(), self.policy, generation, proposal.plain_state, plan.queues, dict(plan.jobs)))
        except PlatformError as error:
            log.error("the journal takes no decision, the old plan stays", reason=str(error))
            self._deciding.within(RETRY_S)
            return False
        self._core.adopt(proposal)
        self.plan, self._targets = plan, wanted
        self.installation.want(generation, wanted.rules != before.rules, _renewed(before, wanted), caused_at_s)
        self._pending.append(GenerationTargets(generation, wanted))
        if wanted.rules != before.rules:
            self._switches.install(generation, wanted.rules)
        self._send_assignments(self.installation.on_switches)
        return True

    def _send_assignments(self, on_switches: int) -> None:
        """Send agents what changed for them up to the generation `on_switches`.

        Switches go first: a packet that its host marks with a class whose rules its edge does not hold yet is given the old one
        there, and counted for the new one later.
        """
        renewed: set[str] = set()
        while self._pending and self._pending[0].generation <= on_switches:
            before, self._sent = self._sent, self._pending.popleft()
            renewed.update(_renewed(before.targets, self._sent.targets))
        for agent in sorted(renewed):
            self.agents.send(agent, self._assignment(agent))
        self._switch_wait.cancel()
        if self._pending:
            self._switch_wait.within(SWITCH_WAIT_S)

    def _stop_waiting_for_switches(self) -> None:
        behind = [name for name, generation in self.installation.switches.items() if generation < self.installation.generation]
        log.warning("assignments are sent although switches have not acknowledged their rules", switches=behind)
        self._send_assignments(self.installation.generation)

    def _assignment(self, agent: str) -> Assignment:
        return self._sent.targets.assignments[agent].model_copy(update={"generation": self._sent.generation})

    def _targets_of(self, plan: Plan) -> Targets:
        return targets(self.fabric, self._ports, self.tracker.jobs.values(), self.network.connections, plan)


def _renewed(before: Targets, wanted: Targets) -> list[str]:
    """Return the agents whose assignment differs."""
    return [agent for agent, content in wanted.assignments.items() if content != before.assignments[agent]]
