"""Makes decisions, beside the event loop, and has what follows from them journaled and delivered; one at a time.

    what runs, in slices -> columns and the policy's decision, in a thread -> targets, in slices -> journal -> delivery

What ends or moves while a decision is made has no part in it: it calls for the next one.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from beamer.daemon_thread import DaemonThread
from beamer.decision.core import DecisionCore, seeded
from beamer.errors import PlatformError
from beamer.network.decide import check_plan, decide
from beamer.network.events import PlanChanged, Planned
from beamer.network.explanation import Basis
from beamer.network.ledger import NetworkLedger
from beamer.network.plan import Plan
from beamer.network.running import RunningJobs
from beamer.network.snapshot import Snapshot
from beamer.studies.events import Event
from beamer.studies.model import TrialStatus
from beamer.studies.tracker import Tracker
from controller.event_loop.time_slices import TimeSlices
from controller.event_loop.wake_timer import WakeTimer
from controller.journal.replay import Recovered
from controller.limited_log import LimitedLog
from controller.network.delivery import Delivery
from controller.network.installation import LATENCY_SAMPLES
from controller.network.phases import DecisionTimes, loop_waited_s
from controller.network.quarantine import Decided, Quarantine
from controller.network.targets import TargetBuilder
from controller.settings import ControllerSettings

COALESCE_S = 0.002  # events of one burst make one decision
RETRY_S = 1.0  # A decision is made again so long after the journal could not be written.

_UNKNOWN = object()  # This object is equal to no state.


def plan_in_force(last: Planned | None, queues: int) -> Plan:
    """Return the plan of the last decision, a plan of no jobs where there is none."""
    return Plan(last.queues, last.jobs) if last else Plan(queues)


class Planner:
    """Decide on what runs, and renew targets where only these change.

    known: what the journal has led to so far. builder: of targets. delivery: of what is decided. record: takes in an event,
    journaled. clock: Unix seconds.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        known: Recovered,
        builder: TargetBuilder,
        delivery: Delivery,
        record: Callable[[Event], bool],
        clock: Callable[[], float],
    ) -> None:
        policy, last = settings.policy, known.network.decision
        self.plan = plan_in_force(last, settings.queues)
        self.basis: Basis | None = None  # Of the last decision that was installed, none before the first.
        self.quarantine = Quarantine(self._propose, known.tracker, known.network.profiles)
        self._network = known.network
        self._tracker = known.tracker
        self._core: DecisionCore[Any, Snapshot, Plan] = DecisionCore(
            policy, decide(policy, settings.queues, settings.mode), check_plan, last, seeded(settings.seed)
        )
        self._builder = builder
        self._delivery = delivery
        self._record = record
        self._policy = policy.name
        self._clock = clock
        self._limited = LimitedLog()
        self._turns = TimeSlices()
        self._thread = DaemonThread("decisions")  # a policy may never return
        self._busy = asyncio.Lock()
        self._caused_at_s: list[float] = []
        self._awaited: list[asyncio.Future[None]] = []  # Callers that wait for the next decision.
        self._journaled_state: Any = _UNKNOWN
        self._deciding = WakeTimer(self._decide)
        self._searching = WakeTimer(self._search_culprits)
        self._renewing = WakeTimer(self._renew)

    async def start(self) -> None:
        """Decide for the time that has passed."""
        await self._decide()

    async def stop(self) -> None:
        """Decide no more."""
        for timer in (self._deciding, self._searching, self._renewing):
            await timer.stop()
        self._thread.end()

    def decide(self, within_s: float, caused_at_s: float | None = None) -> None:
        """Decide within some time. caused_at_s: when the event came in that makes it necessary, if one does."""
        if caused_at_s is not None:
            self._delivery.installation.phases.call()
            if len(self._caused_at_s) < LATENCY_SAMPLES:
                self._caused_at_s.append(caused_at_s)
        self._deciding.within(within_s)

    async def decided(self) -> None:
        """Decide soon, and return when that is done."""
        decided = asyncio.get_running_loop().create_future()
        self._awaited.append(decided)
        self._deciding.within(COALESCE_S)
        await decided

    def renew(self) -> None:
        """Renew targets under the same plan, soon."""
        self._renewing.within(COALESCE_S)

    async def _decide(self) -> None:
        async with self._busy:
            awaited, self._awaited = self._awaited, []
            made = await self.quarantine.propose()
            if await self._install(made) and not made.proposal.failed:
                del self._caused_at_s[: made.events]
                self.basis = made.basis
        for decided in awaited:
            if not decided.done():  # A future is done if its caller has given up waiting.
                decided.set_result(None)
        if made.proposal.wake_s is not None:
            self._deciding.within(max(made.proposal.wake_s - self._clock(), COALESCE_S))
        if self.quarantine.is_searching:
            self._searching.within(0.0)

    async def _search_culprits(self) -> None:
        async with self._busy:
            await self.quarantine.search()
        if self.quarantine.is_searching:
            self._searching.within(0.0)
        else:
            self._deciding.within(COALESCE_S)

    async def _renew(self) -> float:
        """Return how long it took, in seconds, without waiting for a decision that is being made."""
        async with self._busy:
            began_s = asyncio.get_running_loop().time()
            standing = self._core.standing(self.plan)
            await self._install(Decided(standing, state=self._state_difference(self._network.decision, standing.plain_state)))
            return asyncio.get_running_loop().time() - began_s

    async def _propose(self, without: frozenset[str], among: frozenset[str] | None) -> Decided:
        """Return what the policy decides on all jobs that run, or on those among some, but the quarantined ones."""
        begun_s, waited_s = self._clock(), loop_waited_s()
        await self._turns.do(self._network.prepare(self._tracker))
        running = frozenset(trial.key for trial in self._tracker.running)
        without |= frozenset() if among is None else running - among
        view = _RunningView(self._network, self._tracker, without)
        events, generation = len(self._caused_at_s), self._delivery.installation.generation + 1
        now, last = self._clock(), self._network.decision

        def propose() -> Decided:
            told: list[Snapshot] = []

            def snapshot() -> Snapshot:
                told.append(view.snapshot())
                return told[0]

            proposal = self._core.propose(snapshot, self.plan, now, generation)
            attempts = view.jobs.attempts if view.jobs is not None and not proposal.failed else {}
            basis = Basis(told[0], proposal.content, now) if told and not proposal.failed else None
            state = self._state_difference(last, proposal.plain_state)
            return Decided(proposal, running - without, attempts, events, state, basis)

        made = await self._thread.do(propose)
        made = replace(made, times=DecisionTimes(begun_s, self._clock(), waited_s))
        if view.jobs is not None:
            view.jobs.keep()
        return made

    async def _install(self, made: Decided) -> bool:
        """Journal what is new under a new generation and deliver it; return whether it was journaled."""
        self._renewing.cancel()
        proposal, delivery = made.proposal, self._delivery
        jobs, seen, rates = self._tracker.running, self._network.seen, self._network.sender_bps
        present = self._of_present(proposal.content, made.attempts)
        wanted = await self._turns.do(self._builder.build(jobs, seen, present, rates))
        # The rest is done in one turn of the loop: what is journaled is what is known now.
        plan = self._of_present(proposal.content, made.attempts)
        if (wanted, plan, proposal.state) == (delivery.targets, self.plan, self._core.state):
            return True
        generation = delivery.installation.generation + 1
        decided = Planned(self._clock(), self._policy, generation, proposal.plain_state, plan.queues, dict(plan.jobs))
        last = self._network.decision
        try:
            self._record(PlanChanged.of(last, decided, made.state) if last else decided)
        except PlatformError as error:
            self._limited.error("the journal takes no decision, the old plan stays", None, reason=str(error))
            self._deciding.within(RETRY_S)
            return False
        self._core.adopt(proposal)
        self._journaled_state = proposal.plain_state
        self.plan = plan
        delivery.want(generation, wanted, self._caused_at_s[: made.events], made.times, decided.at_s)
        return True

    def _state_difference(self, last: Planned | None, state: Any) -> Any:
        """Return how a state differs from that of the last decision; the same object as was journaled last does not."""
        if last is None or state is self._journaled_state:
            return None
        return PlanChanged.state_difference(last, self._policy, state)

    def _of_present(self, plan: Plan, attempts: Mapping[str, float]) -> Plan:
        """Leave out of a plan what is not known any more, or has ended or moved since it was asked for.

        attempts: that it was asked for.
        """
        trials = self._tracker.trials
        gone = {key for key in plan.jobs if key not in trials or (key in attempts and not self._runs(key, attempts[key]))}
        if not gone:
            return plan
        return Plan(plan.queues, MappingProxyType({key: job for key, job in plan.jobs.items() if key not in gone}))

    def _runs(self, key: str, started_s: float) -> bool:
        trial = self._tracker.trials.get(key)
        attempt = trial.attempt if trial is not None and trial.status is TrialStatus.RUNNING else None
        return attempt is not None and attempt.started_s == started_s


class _RunningView:
    """What runs, as of a turn of the event loop, whose columns another thread makes; or why that cannot be told."""

    def __init__(self, network: NetworkLedger, tracker: Tracker, without: frozenset[str]) -> None:
        self.jobs: RunningJobs | None = None
        self._error: Exception | None = None
        try:
            self.jobs = network.running(tracker, without)
        except Exception as error:  # noqa: BLE001  # The jobs cause such an error, and whoever decides has to deal with it.
            self._error = error

    def snapshot(self) -> Snapshot:
        """Return the columns, or raise what has kept the look from being taken."""
        if self.jobs is None:
            assert self._error is not None
            raise self._error
        return self.jobs.snapshot()
