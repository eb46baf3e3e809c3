"""What the network level knows: the fabric, the connections of trials that run and the last decision."""

import math
from collections.abc import Generator, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from pydantic import ConfigDict, TypeAdapter

from beamer.errors import ConflictError, InputError, NotFoundError, nearest
from beamer.network.collectives import different_transfers, exchanges
from beamer.network.connection import Connection
from beamer.network.estimates import ProfileEstimates, Source, Sourced
from beamer.network.events import ConnectionsChanged, ConnectionsSeen, Measured, PlanChanged, Planned
from beamer.network.fabric import Fabric
from beamer.network.footprint import Footprints
from beamer.network.forecasts import Forecast, Forecasts, ForecastsState, no_forecast
from beamer.network.job import JobSpec, job_spec
from beamer.network.next_hops import NextHops
from beamer.network.observed_connections import ObservedConnections, by_job
from beamer.network.plan import check_queues
from beamer.network.remaining_work import later_rungs, remaining_steps, waiting_stage
from beamer.network.running import KeptStudies, KeptStudy, RunningJob, RunningJobs, SeenStudy, planned
from beamer.network.snapshot import Snapshot
from beamer.network.views import JobView, StageView, StudyView
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
from beamer.studies.model import Role, StudyStatus, TrialStatus, by_rank, split_key, trial_key
from beamer.studies.records import AttemptRecord, StudyRecord, TrialRecord
from beamer.studies.tracker import Ledger, Tracker, is_new_decision

UNCHANGED_AT_ONCE = 16  # So many unchanged trials count as one thing done.
TRANSFERS = 32  # So many transfers of a new synchronisation count as one thing done.


@dataclass(frozen=True)
class _State:
    """See `NetworkLedger`."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    profiles: ProfileEstimates
    forecasts: ForecastsState
    connections: Mapping[str, tuple[Connection, ...]]
    decision: Planned | None


_STATE = TypeAdapter(_State)


WaitedJob = tuple[str | None, JobView]
"""The stage that waits for a job, if any does, and the job."""


class NetworkLedger(Ledger):
    """Know the connections of running jobs on a fabric, what was measured of them, and the latest plan.

    Only its tracker changes it. forecast: tells from losses where trials end of which nobody has said it.
    """

    def __init__(self, fabric: Fabric, forecast: Forecast = no_forecast) -> None:
        self.fabric = fabric
        self.profiles = ProfileEstimates()
        self.forecasts = Forecasts(forecast)
        self.seen = ObservedConnections()
        self._decision: Planned | None = None
        self.footprints = Footprints(fabric)
        self._kept = KeptStudies()

    @property
    def connections(self) -> Mapping[str, tuple[Connection, ...]]:
        """What each agent sees of the running jobs' connections, sorted."""
        return MappingProxyType(self.seen.everything())

    @property
    def decision(self) -> Planned | None:
        """The latest decision, None before the first."""
        return self._decision

    def route(self, hops: NextHops) -> None:
        """Have flows take other paths from now on."""
        self.footprints = Footprints(self.fabric, hops)
        self._kept = KeptStudies()

    def check(self, event: Event, tracker: Tracker) -> bool | None:
        """Check what attempts need of the fabric, what agents see, and decisions."""
        match event:
            case AttemptStarted(trial=key, workers=workers, profile=profile):
                check_on_fabric(job_spec(split_key(key)[1], by_rank(workers), profile), self.fabric)
            case WorkerAttached(trial=key) if key in tracker.trials:
                # The event brings back an attempt that was taken for lost, and the fabric may have changed since.
                trial = tracker.trials[key]
                if trial.attempt is not None and trial.status is not TrialStatus.RUNNING:
                    check_on_fabric(job_spec(trial.name, trial.attempt.workers, trial.attempt.profile), self.fabric)
            case Measured(trial=key, attempt=name):
                present = tracker.trial(key).attempt
                return present is not None and present.name == name and self.profiles.is_new(event)
            case ConnectionsSeen(agent=agent) | ConnectionsChanged(agent=agent):
                if agent not in self.fabric.agents:
                    raise NotFoundError("agent", agent, nearest(agent, self.fabric.agents))
                return by_job(self._seen_by(event), partial(_runs, tracker)) != self.seen.of_agent(agent)
            case Planned() | PlanChanged():
                return self._check_plan(event, tracker)
        return None

    def apply(self, event: Event, tracker: Tracker) -> None:
        """Take in what agents see and measurements, losses and decisions, and forget connections of trials that do not run."""
        self._kept.take_in(event, self.profiles.knows_of(study_of(event)))
        match event:
            case AttemptStarted(trial=key):
                self.profiles.start(key, _present(tracker, key))
            case Measured(trial=key):
                self.profiles.measure(event, _present(tracker, key).profile)
            case Progressed(trial=key, loss=loss) if loss is not None:
                self._kept.forget(self.forecasts.report(tracker.trial(key), loss, event.at_s))
            case ConnectionsSeen(agent=agent) | ConnectionsChanged(agent=agent) if agent in self.fabric.agents:
                self.seen.replace(agent, by_job(self._seen_by(event), partial(_runs, tracker)))
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
                assert self._decision is not None  # The event was checked before.
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

    def prepare(self, tracker: Tracker) -> Generator[int, None, None]:
        """Work out trial by trial what takes long of `running`, which then finds it in its cache.

        Yields how many things it has done since it yielded last. What cannot be worked out fails in `running`.
        """
        for number, trial in enumerate(tracker.running, 1):
            if number % UNCHANGED_AT_ONCE == 0:
                yield 1
            study = tracker.studies.get(trial.study)
            if study is None or study.status is not StudyStatus.ACTIVE or trial.status is not TrialStatus.RUNNING:
                continue
            kept = self._kept.of(study)
            if kept.columns is None and trial.key not in kept.jobs:
                with suppress(Exception):
                    yield 1 + _transfers(self._job(kept, study, trial).view.spec) // TRANSFERS

    def running(self, tracker: Tracker, without: AbstractSet[str] = frozenset()) -> RunningJobs:
        """Return the running jobs as they are now, and their studies' rungs yet to come.

        without: jobs that are left out, and with all of a study's running jobs the study.
        """
        active = [study for study in tracker.studies.values() if study.status is StudyStatus.ACTIVE]
        lacking = {split_key(key)[0] for key in without}
        changed = {study.name for study in active if study.name in lacking or self._kept.of(study).columns is None}
        running = _by_study(tracker.running, changed)
        found: list[SeenStudy] = []
        for study in active:
            kept = self._kept.of(study)
            if study.name not in changed:
                found.append(SeenStudy(study.name, kept.columns))
                continue
            trials = [trial for trial in running.get(study.name, ()) if trial.key not in without]
            jobs = [self._job(kept, study, trial) for trial in trials]
            whole = None if study.name in lacking else kept
            found.append(SeenStudy.of(_study_view(study, ((job.stage, job.view) for job in jobs)), jobs, whole))
        return RunningJobs(self.fabric, tuple(found), self._decision)

    def snapshot(self, tracker: Tracker, without: AbstractSet[str] = frozenset()) -> Snapshot:
        """Return what a policy decides on: `running` as columns, which are kept."""
        running = self.running(tracker, without)
        columns = running.snapshot()
        running.keep()
        return columns

    def views(self, tracker: Tracker) -> tuple[StudyView, ...]:
        """Return the studies with their running trials by what waits for them, and rungs yet to come."""
        active = [study for study in tracker.studies.values() if study.status is StudyStatus.ACTIVE]
        running = _by_study(tracker.running, {study.name for study in active})
        of_studies = (
            _study_view(study, (self._planned(study, trial) for trial in running.get(study.name, ()))) for study in active
        )
        return tuple(view for view in of_studies if view.stages or view.later)

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

    def _job(self, kept: KeptStudy, study: StudyRecord, trial: TrialRecord) -> RunningJob:
        """Return a running trial as it was, unless an event has changed it."""
        known = kept.jobs.get(trial.key)
        if known is None:
            stage, view = self._waited(study, trial)
            known = kept.jobs[trial.key] = RunningJob(stage, view, self.footprints.of(view.spec, view.plane))
        return known

    def _waited(self, study: StudyRecord, trial: TrialRecord) -> WaitedJob:
        attempt = _running(trial)
        left = round(remaining_steps(study, trial, self.forecasts.end_step(trial.key)).value)
        job = JobView(trial.key, self._spec(trial), left, self.fabric.plane_of(attempt.seq), attempt.started_s)
        return waiting_stage(study, trial), job

    def _planned(self, study: StudyRecord, trial: TrialRecord) -> WaitedJob:
        """Return a running trial with the class and the cap that it has."""
        stage, job = self._waited(study, trial)
        plan = planned(self._decision, job.key, job.started_s)
        return stage, job if plan is None else replace(job, klass=plan.klass, cap_bps=plan.cap_bps)

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

    def _seen_by(self, event: ConnectionsSeen | ConnectionsChanged) -> Iterable[Connection]:
        if isinstance(event, ConnectionsSeen):
            return event.connections
        return event.applied_to(self.seen.all_of_agent(event.agent))


def check_on_fabric(spec: JobSpec, fabric: Fabric) -> None:
    """Check that a job can run on `fabric`. Raises `InputError` naming the first field that cannot be."""
    for i, worker in enumerate(spec.workers):
        if worker.host not in fabric.host:
            raise InputError(f"workers[{i}].host", worker.host, nearest(worker.host, fabric.host))
    exchanges(spec)


def _study_view(study: StudyRecord, jobs: Iterable[WaitedJob]) -> StudyView:
    together: dict[str, list[JobView]] = {name: [] for name in study.stages}
    alone: list[StageView] = []
    for stage, job in jobs:
        if stage is None:
            name = split_key(job.key)[1]
            alone.append(StageView(f"trial:{name}", (job,), math.inf, barrier=False))  # No stage has a name of this form.
        else:
            together[stage].append(job)
    stages = tuple(StageView(name, tuple(found), study.stages[name].registered_s) for name, found in together.items() if found)
    return StudyView(study.name, study.weight, stages + tuple(alone), later_rungs(study))


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


def _transfers(spec: JobSpec) -> int:
    servers = sum(worker.role is Role.SERVER for worker in spec.workers)
    return different_transfers(spec.collective, len(spec.workers) - servers, servers)


def _runs(tracker: Tracker, job: str) -> bool:
    trial = tracker.trials.get(job)
    return trial is not None and trial.status is TrialStatus.RUNNING
