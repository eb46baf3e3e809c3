"""A plain event-driven run of a scenario whose jobs keep the classes that they are given."""

from collections.abc import Mapping
from functools import partial

from beamer.network.job import JobSpec, profile
from beamer.network.ledger import NetworkLedger
from beamer.studies.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    Progressed,
    StageRegistered,
    StageSealed,
    StudyRegistered,
    TargetSet,
    TrialRegistered,
)
from beamer.studies.model import StageStatus, trial_key
from beamer.studies.tracker import Tracker
from beamer.workloads.scenario import Scenario, StudyPlan
from tests.support.reference.agenda import Agenda
from tests.support.reference.demand import Rates
from tests.support.reference.network import ReferenceNetwork
from tests.support.reference.traffic import flows
from tests.support.reference.training import ReferenceJob


def simulate(
    scenario: Scenario, klass: Mapping[str, int], allocate: Rates, by_coflow: bool = False, acknowledgements: bool = False
) -> tuple[dict[str, float], list[float]]:
    """Return when each job ends, in seconds, and the bits that each link carries.

    klass: by job. by_coflow: whether rates are computed only when coflows or jobs start or end.
    """
    run = _Run(scenario, klass, allocate, by_coflow, acknowledgements)
    return run.to_the_end(), run.network.carried_bits


class _Run:
    def __init__(
        self, scenario: Scenario, klass: Mapping[str, int], allocate: Rates, by_coflow: bool, acknowledgements: bool
    ) -> None:
        self.network = ReferenceNetwork([float(link.rate_bps) for link in scenario.fabric.links], allocate, klass, by_coflow)
        self._scenario = scenario
        self._acknowledgements = acknowledgements
        self._tracker = Tracker(NetworkLedger(scenario.fabric))
        self._agenda = Agenda()
        self._trainings: dict[str, ReferenceJob] = {}
        self._ends: dict[str, float] = {}

    def to_the_end(self) -> dict[str, float]:
        for study in self._scenario.studies:
            self._agenda.after(study.arrival_s, partial(self._begin_study, study))
        while self._agenda.next_s() < float("inf") or self._trainings:
            step = min(self._agenda.next_s(), self.network.next_end_s())
            for key in self.network.advance(step):
                self._agenda.after(step, self._trainings[key].phase_complete)
            self._agenda.advance(step)
        return self._ends

    def _begin_study(self, study: StudyPlan) -> None:
        self._record(StudyRegistered(self._agenda.now_s, study.name, weight=study.weight, rungs=study.rungs))
        self._begin_stage(study, 0)

    def _begin_stage(self, study: StudyPlan, index: int) -> None:
        now, stage = self._agenda.now_s, study.stages[index]
        self._record(StageRegistered(now, study.name, stage.name))
        for spec in stage.jobs:
            key = trial_key(study.name, spec.name)
            self._record(TrialRegistered(now, study.name, spec.name))
            self._record(TargetSet(now, key, self._tracker.trials[key].done + spec.iterations, stage.name))
            self._record(AttemptStarted(now, key, stage.name, spec.workers, profile(spec)))
        self._record(StageSealed(now, study.name, stage.name))
        for spec in stage.jobs:
            key = trial_key(study.name, spec.name)
            attempt = self._tracker.trials[key].attempts[stage.name]
            phases = flows(spec, self._scenario.fabric, self._scenario.fabric.plane_of(attempt.seq), self._acknowledgements)
            progressed = partial(self._progressed, study, index, spec)
            self._trainings[key] = ReferenceJob(key, spec, phases, self._agenda, self.network, progressed)
            self._agenda.after(self._scenario.start_up_s, self._trainings[key].iterate)
        self.network.reallocate()

    def _progressed(self, study: StudyPlan, index: int, spec: JobSpec, key: str, done: int) -> None:
        now, stage = self._agenda.now_s, study.stages[index].name
        target = self._tracker.trials[key].target
        assert target is not None
        self._record(Progressed(now, key, target.step - spec.iterations + done))
        if done < spec.iterations:
            return
        del self._trainings[key]
        self._ends[f"{study.name}/{stage}/{spec.name}"] = now
        self._record(AttemptEnded(now, key, stage))
        self.network.reallocate()
        if self._tracker.stage(study.name, stage).status is StageStatus.DONE and index + 1 < len(study.stages):
            self._begin_stage(study, index + 1)

    def _record(self, event: Event) -> None:
        if self._tracker.check(event):
            self._tracker.apply(event)
