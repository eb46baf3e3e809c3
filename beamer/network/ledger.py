"""What the network level knows: the fabric, the jobs' connections and the last decision."""

from collections.abc import Iterable, Mapping
from dataclasses import astuple
from types import MappingProxyType

from beamer.errors import InputError, NotFoundError, nearest
from beamer.network.collectives import phases
from beamer.network.connection import Connection
from beamer.network.events import ConnectionsSeen, Planned
from beamer.network.fabric import Fabric
from beamer.network.footprint import Footprints
from beamer.network.plan import check_queues
from beamer.network.snapshot import Snapshot
from beamer.network.views import JobView, StageView, StudyView
from beamer.studies.events import Event, JobEnded, JobRegistered
from beamer.studies.model import JobSpec, JobStatus, StageStatus
from beamer.studies.records import StageRecord, StudyRecord
from beamer.studies.tracker import Ledger, Tracker, is_new_decision


class NetworkLedger(Ledger):
    """Know the connections of running jobs on a fabric, and the latest plan; only its tracker changes it."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._connections: dict[str, tuple[Connection, ...]] = {}
        self._decision: Planned | None = None
        self.footprints = Footprints(fabric)

    @property
    def connections(self) -> Mapping[str, tuple[Connection, ...]]:
        """What each agent sees of the running jobs' connections, sorted."""
        return MappingProxyType(self._connections)

    @property
    def decision(self) -> Planned | None:
        """The latest decision, None before the first."""
        return self._decision

    def check(self, event: Event, tracker: Tracker) -> bool | None:
        """Check what jobs need of the fabric, what agents see, and decisions."""
        match event:
            case JobRegistered(spec=spec):
                check_on_fabric(spec, self.fabric)
            case ConnectionsSeen(agent=agent, connections=connections):
                if agent not in self.fabric.agents:
                    raise NotFoundError("agent", agent, nearest(agent, self.fabric.agents))
                return _of_running(connections, tracker) != self._connections.get(agent, ())
            case Planned():
                return self._check_plan(event, tracker)
        return None

    def apply(self, event: Event, tracker: Tracker) -> None:
        """Take in connections and decisions, and forget the connections of jobs that have ended."""
        match event:
            case ConnectionsSeen(agent=agent, connections=connections):
                self._connections[agent] = connections
                self._prune(tracker)
            case JobEnded():
                self._prune(tracker)
            case Planned():
                self._decision = event

    def snapshot(self, tracker: Tracker) -> Snapshot:
        """Return what a policy decides on: the running jobs, and their studies' rungs yet to come."""
        return Snapshot.of(self.fabric, self.views(tracker), self.footprints)

    def views(self, tracker: Tracker) -> tuple[StudyView, ...]:
        """Return the studies that have stages which are not done, with their running jobs, or rungs yet to come."""
        views = (self._view(study, tracker) for study in tracker.studies.values())
        return tuple(view for view in views if view.stages or view.later)

    def _view(self, study: StudyRecord, tracker: Tracker) -> StudyView:
        stages = tuple(
            StageView(stage.name, stage.status, stage.registered_s, tuple(self._running(stage, tracker)))
            for stage in study.stages.values()
            if stage.status is not StageStatus.DONE
        )
        return StudyView(study.name, study.weight, study.registered_s, stages, study.later)

    def _running(self, stage: StageRecord, tracker: Tracker) -> Iterable[JobView]:
        for key in stage.jobs:
            job = tracker.jobs[key]
            if job.status is JobStatus.RUNNING:
                planned = self._decision.jobs.get(key) if self._decision else None
                klass = None if planned is None else planned.klass
                yield JobView(key, job.spec, job.done, self.fabric.plane_of(job.seq), job.registered_s, klass)

    def _check_plan(self, event: Planned, tracker: Tracker) -> bool:
        check_queues(event.queues)
        for key, plan in event.jobs.items():
            tracker.job(key)
            if not 0 <= plan.klass < event.queues:
                raise InputError(f"jobs[{key}].klass", plan.klass, f"0 to {event.queues - 1}")
        return is_new_decision(event, self._decision)

    def _prune(self, tracker: Tracker) -> None:
        left = {agent: _of_running(seen, tracker) for agent, seen in self._connections.items()}
        self._connections = {agent: seen for agent, seen in left.items() if seen}


def check_on_fabric(spec: JobSpec, fabric: Fabric) -> None:
    """Check that a job can run on `fabric`. Raises `InputError` naming the first field that cannot be."""
    for i, worker in enumerate(spec.workers):
        if worker.host not in fabric.host:
            raise InputError(f"workers[{i}].host", worker.host, nearest(worker.host, fabric.host))
    phases(spec)


def _of_running(connections: Iterable[Connection], tracker: Tracker) -> tuple[Connection, ...]:
    """Leave out connections of jobs that an agent does not know yet to have ended."""
    running = {c for c in connections if c.job in tracker.jobs and tracker.jobs[c.job].status is JobStatus.RUNNING}
    return tuple(sorted(running, key=astuple))
