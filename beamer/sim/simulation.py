"""Runs a scenario on a simulated network: the tracker, the decision and the scenario are those of the live system."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from beamer.decide import decide
from beamer.errors import InputError
from beamer.events import Decided, Event, IterationDone, JobEnded, JobRegistered, StageRegistered, StageSealed, StudyRegistered
from beamer.model import JobStatus, StageStatus, job_key
from beamer.ordering import Ordering, ordering
from beamer.plan import Plan
from beamer.results import JobResult, RunResult, StageResult
from beamer.scenario import Scenario, StudyPlan
from beamer.sim.agenda import Agenda
from beamer.sim.network import Network
from beamer.sim.traffic import flows
from beamer.sim.training import Training
from beamer.tracker import Tracker


@dataclass(frozen=True)
class Assumptions:
    """What the simulator assumes of the system around the network.

    acknowledgements: TCP's load the way back. progress_s: how long reports of progress are gathered before they wake a
    decision. decision_delay_s: from an event to the plan's being in force. minimum_share: of every link, for each class.
    """

    acknowledgements: bool = True
    progress_s: float = 0.5
    decision_delay_s: float = 0.0
    minimum_share: float = 0.0

    def __post_init__(self) -> None:
        if not self.progress_s > 0:
            raise InputError("progress_s", self.progress_s, "seconds above 0")
        if not self.decision_delay_s >= 0:
            raise InputError("decision_delay_s", self.decision_delay_s, "seconds of at least 0")


@dataclass(frozen=True)
class SimResult(RunResult):
    """A simulated run. link_bytes: what each directed link carried. plan_changes: how often the plan was another one."""

    link_bytes: Mapping[str, float] = field(default_factory=dict)
    plan_changes: int = 0


def simulate(scenario: Scenario, policy: str, rng: Random | None = None, assumptions: Assumptions | None = None) -> SimResult:
    """Run `scenario` under the policy named `policy` until its last stage is done.

    rng: what the policy draws from; the scenario's seed decides if None. Raises `InputError` for an unknown policy.
    """
    simulation = _Simulation(scenario, ordering(policy), rng or Random(scenario.seed), assumptions or Assumptions())
    return simulation.run()


class _Simulation:
    def __init__(self, scenario: Scenario, policy: Ordering[Any], rng: Random, assumptions: Assumptions) -> None:
        self._scenario = scenario
        self._policy = policy
        self._rng = rng
        self._assumptions = assumptions
        self._tracker = Tracker(scenario.fabric)
        self._agenda = Agenda()
        rates = [float(link.rate_bps) for link in scenario.fabric.links]
        self._network = Network(rates, lowest=scenario.queues - 1, minimum_share=assumptions.minimum_share)
        self._decide = decide(policy, scenario.queues)
        self._state = policy.initial()
        self._decision_due = False
        self._gathering = False
        self._plan = Plan(scenario.queues)
        self._plan_changes = 0
        self._trainings: dict[str, Training] = {}

    def run(self) -> SimResult:
        for study in self._scenario.studies:
            self._agenda.after(study.arrival_s, partial(self._begin_study, study))
        expected = sum(len(study.stages) for study in self._scenario.studies)
        while self._stages_done() < expected:
            step = min(self._agenda.next_s(), self._network.next_end_s())
            for key in self._network.advance(step):
                self._agenda.after(step, self._trainings[key].phase_complete)
            self._agenda.advance(step)
            if self._decision_due:
                self._make_decision()
        return self._result()

    def _begin_study(self, study: StudyPlan) -> None:
        self._record(StudyRegistered(self._agenda.now_s, study.name, study.weight, study.rungs))
        self._begin_stage(study, 0)

    def _begin_stage(self, study: StudyPlan, index: int) -> None:
        now, stage = self._agenda.now_s, study.stages[index]
        self._record(StageRegistered(now, study.name, stage.name))
        for spec in stage.jobs:
            self._record(JobRegistered(now, study.name, stage.name, spec))
        self._record(StageSealed(now, study.name, stage.name))
        for spec in stage.jobs:
            key = job_key(study.name, stage.name, spec.name)
            plane = self._tracker.jobs[key].plane
            phases = flows(spec, self._scenario.fabric, plane, self._assumptions.acknowledgements)
            progressed = partial(self._progressed, study, index)
            self._trainings[key] = Training(key, spec, phases, self._agenda, self._network, progressed)
            self._trainings[key].iterate()

    def _progressed(self, study: StudyPlan, index: int, key: str, done: int) -> None:
        now = self._agenda.now_s
        self._record(IterationDone(now, key, done))
        if done < self._tracker.jobs[key].spec.iterations:
            return
        del self._trainings[key]
        self._record(JobEnded(now, key, JobStatus.FINISHED))
        ended = self._tracker.studies[study.name].stages[study.stages[index].name].status is StageStatus.DONE
        if ended and index + 1 < len(study.stages):
            self._begin_stage(study, index + 1)

    def _record(self, event: Event) -> None:
        if not self._tracker.check(event):
            return
        self._tracker.apply(event)
        if not isinstance(event, IterationDone):
            self._decision_due = True
        elif not self._gathering:
            self._gathering = True
            self._agenda.after(self._assumptions.progress_s, self._gathered)

    def _gathered(self) -> None:
        self._gathering = False
        self._decision_due = True

    def _wake(self) -> None:
        self._decision_due = True

    def _make_decision(self) -> None:
        self._decision_due = False
        now = self._agenda.now_s
        self._state, plan, wake_at = self._decide(self._state, self._tracker.snapshot(), now, self._rng)
        if wake_at is not None and wake_at > now:
            self._agenda.after(wake_at - now, self._wake)
        if self._assumptions.decision_delay_s:
            self._agenda.after(self._assumptions.decision_delay_s, partial(self._install, plan))
        else:
            self._install(plan)

    def _install(self, plan: Plan) -> None:
        if plan == self._plan:
            return
        self._plan = plan
        self._plan_changes += 1
        now = self._agenda.now_s
        self._tracker.apply(Decided(now, self._policy.name, self._plan_changes, plan.queues, None, dict(plan.jobs)))
        self._network.install({key: job.klass for key, job in plan.jobs.items()})

    def _stages_done(self) -> int:
        records = self._tracker.studies.values()
        return sum(stage.status is StageStatus.DONE for study in records for stage in study.stages.values())

    def _result(self) -> SimResult:
        # Every stage is done here, so that the records' ends are set.
        stages = tuple(
            StageResult(study.name, stage.name, stage.registered_s, stage.ended_s or 0.0)
            for study in self._tracker.studies.values()
            for stage in study.stages.values()
        )
        jobs = tuple(JobResult(job.key, job.registered_s, job.ended_s or 0.0) for job in self._tracker.jobs.values())
        carried = self._network.carried_bits
        names = [f"{link.src}-{link.dst}" for link in self._scenario.fabric.links]
        possible = [link.rate_bps * self._agenda.now_s for link in self._scenario.fabric.links]
        return SimResult(
            policy=self._policy.name,
            stages=stages,
            jobs=jobs,
            utilisation={name: bits / most if most else 0.0 for name, bits, most in zip(names, carried, possible, strict=True)},
            link_bytes={name: bits / 8 for name, bits in zip(names, carried, strict=True)},
            plan_changes=self._plan_changes,
        )
