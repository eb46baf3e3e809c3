"""What the network level knows: the fabric, the connections of trials that run and the last decision."""

import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

import numpy as np
from pydantic import TypeAdapter

from beamer.errors import ConflictError, InputError, NotFoundError, nearest
from beamer.network.collectives import exchanges
from beamer.network.connection import Connection
from beamer.network.estimates import ProfileEstimates, Source, Sourced
from beamer.network.events import ConnectionsSeen, Measured, PlanChanged, Planned
from beamer.network.fabric import Fabric
from beamer.network.footprint import Footprints
from beamer.network.forecasts import Forecast, Forecasts, ForecastsState, no_forecast
from beamer.network.job import JobSpec, job_spec
from beamer.network.plan import JobPlan, check_queues
from beamer.network.seen import SeenConnections, by_job
from beamer.network.snapshot import Snapshot
from beamer.network.views import JobView, StageView, StudyView
from beamer.network.waiting import later_rungs, remaining_steps, waiting_stage
from beamer.studies.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    FellSilent,
    Progressed,
    TrialEnded,
    WorkerAttached,
    study_of,
)
from beamer.studies.model import StudyStatus, TrialStatus, by_rank, split_key, trial_key
from beamer.studies.records import AttemptRecord, StudyRecord, TrialRecord
from beamer.studies.tracker import Ledger, Tracker, is_new_decision


@dataclass(frozen=True)
class _State:
    """See `NetworkLedger`."""

    profiles: ProfileEstimates
    forecasts: ForecastsState
    connections: Mapping[str, tuple[Connection, ...]]
    decision: Planned | None


_STATE = TypeAdapter(_State)


@dataclass
class UnchangedStudies:
    """The columns of each study's jobs, until an event changes them: few studies change between two decisions.

    It says nothing that is not known otherwise, so that any two are equal.
    """

    _kept: dict[str, Snapshot] = field(default_factory=dict, compare=False, repr=False)

    def of(self, study: str) -> Snapshot | None:
        """Return a study's columns, None if they have changed."""
        return self._kept.get(study)

    def keep(self, study: str, columns: Snapshot) -> None:
        """Keep a study's columns, but for classes and caps: these change with every decision."""
        self._kept[study] = columns

    def forget(self, study: str | None) -> None:
        """Take in that a study's columns may have changed. study: None: no one's have."""
        if study is not None:
            self._kept.pop(study, None)


class NetworkLedger(Ledger):
    """Know the connections of running jobs on a fabric, what was measured of them, and the latest plan.

    Only its tracker changes it. forecast: tells from losses where trials end of which nobody has said it.
    """

    def __init__(self, fabric: Fabric, forecast: Forecast = no_forecast) -> None:
        self.fabric = fabric
        self.profiles = ProfileEstimates()
        self.forecasts = Forecasts(forecast)
        self.seen = SeenConnections()
        self._decision: Planned | None = None
        self.footprints = Footprints(fabric)
        self._unchanged = UnchangedStudies()

    @property
    def connections(self) -> Mapping[str, tuple[Connection, ...]]:
        """What each agent sees of the running jobs' connections, sorted."""
        return MappingProxyType(self.seen.everything())

    @property
    def decision(self) -> Planned | None:
        """The latest decision, None before the first."""
        return self._decision

    def check(self, event: Event, tracker: Tracker) -> bool | None:
        """Check what attempts need of the fabric, what agents see, and decisions."""
        match event:
            case AttemptStarted(trial=key, workers=workers, profile=profile):
                check_on_fabric(job_spec(split_key(key)[1], by_rank(workers), profile), self.fabric)
            case WorkerAttached(trial=key) if key in tracker.trials:
                # It brings an attempt back that was taken for lost, perhaps since the fabric has changed.
                trial = tracker.trials[key]
                if trial.attempt is not None and trial.status is not TrialStatus.RUNNING:
                    check_on_fabric(job_spec(trial.name, trial.attempt.workers, trial.attempt.profile), self.fabric)
            case Measured(trial=key, attempt=name):
                present = tracker.trial(key).attempt
                return present is not None and present.name == name and self.profiles.is_new(event)
            case ConnectionsSeen(agent=agent, connections=connections):
                if agent not in self.fabric.agents:
                    raise NotFoundError("agent", agent, nearest(agent, self.fabric.agents))
                return by_job(connections, partial(_runs, tracker)) != self.seen.of_agent(agent)
            case Planned() | PlanChanged():
                return self._check_plan(event, tracker)
        return None

    def apply(self, event: Event, tracker: Tracker) -> None:
        """Take in what agents see and measurements, losses and decisions, and forget connections of trials that do not run."""
        self._unchanged.forget(study_of(event))
        match event:
            case AttemptStarted(trial=key):
                self.profiles.start(key, _present(tracker, key))
            case Measured(trial=key):
                self.profiles.measure(event, _present(tracker, key).profile)
            case Progressed(trial=key, loss=loss) if loss is not None:
                for renewed in self.forecasts.report(tracker.trial(key), loss, event.at_s):
                    self._unchanged.forget(split_key(renewed)[0])
            case ConnectionsSeen(agent=agent, connections=connections) if agent in self.fabric.agents:
                self.seen.replace(agent, by_job(connections, partial(_runs, tracker)))
            case TrialEnded(trial=key):
                self.profiles.end(key)
                self.forecasts.end(tracker.trial(key))
                self.seen.forget(key)
            case AttemptEnded(trial=key):
                self.seen.forget(key)
            case FellSilent(study=study, trial=name) if name is not None:
                self.seen.forget(trial_key(study, name))
            case Planned():
                self._decision = event
            case PlanChanged():
                assert self._decision is not None  # as was checked
                self._decision = event.applied_to(self._decision)

    def begin_anew(self, study: str) -> None:
        """Forget the classes that the trials of a study had, and what was measured of them."""
        self.profiles.begin_anew(study)
        self.forecasts.begin_anew(study)
        if self._decision is not None:
            kept = {key: job for key, job in self._decision.jobs.items() if split_key(key)[0] != study}
            self._decision = replace(self._decision, jobs=kept)

    def state(self) -> str:
        """Return all that is known as JSON."""
        return _STATE.dump_json(_State(self.profiles, self.forecasts.state(), self.seen.everything(), self._decision)).decode()

    def restore(self, state: str) -> None:
        """Know in a new ledger what `state` returned. Raises `ValueError` for anything else."""
        read = _STATE.validate_json(state)
        self.profiles, self._decision = read.profiles, read.decision
        for agent, seen in read.connections.items():
            self.seen.replace(agent, by_job(seen, lambda job: True))
        self.forecasts.restore(read.forecasts)

    def snapshot(self, tracker: Tracker, without: AbstractSet[str] = frozenset()) -> Snapshot:
        """Return what a policy decides on: the running jobs, and their studies' rungs yet to come.

        without: jobs that are left out, and with all of a study's running jobs the study.
        """
        active = [study for study in tracker.studies.values() if study.status is StudyStatus.ACTIVE]
        lacking = {split_key(key)[0] for key in without}
        kept = {study.name: None if study.name in lacking else self._unchanged.of(study.name) for study in active}
        running = _by_study(tracker.running, {name for name, columns in kept.items() if columns is None})
        found: list[Snapshot] = []
        for study in active:
            columns = kept[study.name]
            if columns is None:
                trials = [trial for trial in running.get(study.name, ()) if trial.key not in without]
                columns = Snapshot.of_study(self.fabric, self._view(study, trials), self.footprints)
                if study.name not in lacking:
                    self._unchanged.keep(study.name, columns)
            found.append(columns)
        snapshot = Snapshot.joined(self.fabric, found)
        plans = [self._planned(key, started_s) for key, started_s in snapshot.jobs.run]
        klass = np.array([-1 if plan is None else plan.klass for plan in plans], np.int64)
        capped = zip(snapshot.jobs.key, plans, strict=True)
        caps = {key: plan.cap_bps for key, plan in capped if plan is not None and plan.cap_bps is not None}
        return replace(snapshot, klass=klass, cap_bps=caps)

    def views(self, tracker: Tracker) -> tuple[StudyView, ...]:
        """Return the studies with their running trials by what waits for them, and rungs yet to come."""
        active = [study for study in tracker.studies.values() if study.status is StudyStatus.ACTIVE]
        running = _by_study(tracker.running, {study.name for study in active})
        views = (self._view(study, running.get(study.name, ())) for study in active)
        return tuple(view for view in views if view.stages or view.later)

    def remaining(self, study: StudyRecord, trial: TrialRecord) -> Sourced:
        """Return how many steps a trial has left to what is waited for next, and how wrong the study's forecasts of it were."""
        end_step = self.forecasts.end_step(trial.key)
        left = remaining_steps(study, trial, end_step)
        is_forecast = left.source is Source.PREDICTED and end_step is not None
        return replace(left, error=self.forecasts.error(study.name)) if is_forecast else left

    def sender_bps(self, trial: TrialRecord) -> Mapping[str, float]:
        """Return what each host sends at for a trial that runs, with the fabric to itself, bit/s."""
        return self.footprints.of(self._spec(trial), self.fabric.plane_of(_running(trial).seq)).sender_bps

    def cap_share(self, trial: TrialRecord) -> float:
        """Return what a trial that runs may send under its cap, as a share of what it sends at alone; 1 without a cap."""
        planned = self._decision.jobs.get(trial.key) if self._decision else None
        busiest = max(self.sender_bps(trial).values(), default=0.0)
        if planned is None or planned.cap_bps is None or not busiest:
            return 1.0
        return min(planned.cap_bps / busiest, 1.0)

    def _spec(self, trial: TrialRecord) -> JobSpec:
        attempt = _running(trial)
        return job_spec(trial.name, attempt.workers, self.profiles.profile(trial.key, attempt))

    def _view(self, study: StudyRecord, running: Iterable[TrialRecord]) -> StudyView:
        together: dict[str, list[JobView]] = {name: [] for name in study.stages}
        alone: list[StageView] = []
        for trial in running:
            stage, job = waiting_stage(study, trial), self._job(study, trial)
            if stage is None:
                alone.append(StageView(f"trial:{trial.name}", (job,), math.inf, barrier=False))  # no stage is named so
            else:
                together[stage].append(job)
        stages = tuple(StageView(name, tuple(jobs), study.stages[name].registered_s) for name, jobs in together.items() if jobs)
        return StudyView(study.name, study.weight, stages + tuple(alone), later_rungs(study))

    def _job(self, study: StudyRecord, trial: TrialRecord) -> JobView:
        attempt = _running(trial)
        planned = self._planned(trial.key, attempt.started_s)
        return JobView(
            trial.key,
            self._spec(trial),
            round(remaining_steps(study, trial, self.forecasts.end_step(trial.key)).value),
            self.fabric.plane_of(attempt.seq),
            attempt.started_s,
            None if planned is None else planned.klass,
            None if planned is None else planned.cap_bps,
        )

    def _planned(self, trial: str, started_s: float) -> JobPlan | None:
        """Return what an attempt was given last: a new one has new connections, which have not been given any class yet."""
        last = self._decision
        return last.jobs.get(trial) if last and last.at_s >= started_s else None

    def _check_plan(self, event: Planned | PlanChanged, tracker: Tracker) -> bool:
        check_queues(event.queues)
        if isinstance(event, PlanChanged):
            if self._decision is None or self._decision.generation != event.before:
                last = self._decision.generation if self._decision else None
                raise ConflictError("before", event.before, f"the latest decision's generation, which is {last}")
            try:
                event.applied_to(self._decision)
            except ValueError as error:
                raise InputError(
                    "state", event.state, f"a difference from what the latest decision remembers ({error})"
                ) from error
        for key, plan in event.jobs.items():
            tracker.trial(key)
            if not 0 <= plan.klass < event.queues:
                raise InputError(f"jobs[{key}].klass", plan.klass, f"0 to {event.queues - 1}")
        return is_new_decision(event, self._decision)


def check_on_fabric(spec: JobSpec, fabric: Fabric) -> None:
    """Check that a job can run on `fabric`. Raises `InputError` naming the first field that cannot be."""
    for i, worker in enumerate(spec.workers):
        if worker.host not in fabric.host:
            raise InputError(f"workers[{i}].host", worker.host, nearest(worker.host, fabric.host))
    exchanges(spec)


def _present(tracker: Tracker, trial: str) -> AttemptRecord:
    return _running(tracker.trial(trial))


def _running(trial: TrialRecord) -> AttemptRecord:
    assert trial.attempt is not None
    return trial.attempt


def _by_study(running: Iterable[TrialRecord], studies: AbstractSet[str]) -> dict[str, list[TrialRecord]]:
    """Return the trials of some studies by study."""
    found: dict[str, list[TrialRecord]] = {}
    for trial in running if studies else ():
        if trial.study in studies:
            found.setdefault(trial.study, []).append(trial)
    return found


def _runs(tracker: Tracker, job: str) -> bool:
    trial = tracker.trials.get(job)
    return trial is not None and trial.status is TrialStatus.RUNNING
