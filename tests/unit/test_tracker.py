"""The stage state machine: what is legal, what changes nothing, when a stage ends, and that its journal rebuilds it."""

import math
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamer.errors import ConflictError, InputError, NotFoundError
from beamer.network.connection import Connection
from beamer.network.events import ConnectionsSeen, Planned
from beamer.network.job import JobSpec
from beamer.network.ledger import NetworkLedger
from beamer.network.plan import JobPlan
from beamer.studies.events import (
    Event,
    IterationDone,
    JobEnded,
    JobRegistered,
    StageRegistered,
    StageSealed,
    StudyRegistered,
    WorkerAttached,
)
from beamer.studies.journal.store import Journal
from beamer.studies.model import JobStatus, Role, Rung, StageStatus, Worker
from beamer.studies.tracker import Tracker
from beamer.testing.fabrics import star, two_spines

FABRIC = two_spines(1)
HOSTS = [host.name for host in FABRIC.hosts]
AGENTS = [host.agent for host in FABRIC.hosts]
SPEC = JobSpec("t", (Worker(0, HOSTS[0]), Worker(1, HOSTS[1])), iterations=5, sync_bytes=1000)
JOB = "vision/rung0/t"
SEEN = Connection(JOB, 0, "10.0.0.1", 4000, "10.0.0.2", 5000)


def network(tracker: Tracker) -> NetworkLedger:
    (ledger,) = tracker.ledgers
    assert isinstance(ledger, NetworkLedger)
    return ledger


def take(tracker: Tracker, *events: Event) -> list[bool]:
    changed = []
    for event in events:
        changed.append(tracker.check(event))
        if changed[-1]:
            tracker.apply(event)
    return changed


@pytest.fixture
def tracker() -> Tracker:
    """One study with one open stage and one running job."""
    tracker = Tracker(NetworkLedger(FABRIC))
    started: tuple[Event, ...] = (
        StudyRegistered(1, "vision", 2.0, (Rung("rung0", 1, 5), Rung("rung1", 1, 10))),
        StageRegistered(2, "vision", "rung0"),
        JobRegistered(3, "vision", "rung0", SPEC),
    )
    assert take(tracker, *started) == [True] * 3
    return tracker


def test_registering_again_changes_nothing(tracker: Tracker) -> None:
    again: tuple[Event, ...] = (
        StudyRegistered(9, "vision", 2.0, (Rung("rung0", 1, 5), Rung("rung1", 1, 10))),
        StageRegistered(9, "vision", "rung0"),
        JobRegistered(9, "vision", "rung0", SPEC),
        JobRegistered(9, "vision", "rung0", replace(SPEC, workers=SPEC.workers[::-1])),
    )
    assert take(tracker, *again) == [False] * 4
    assert tracker.jobs[JOB].registered_s == 3


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (StudyRegistered(9, "vision", 3.0, (Rung("rung0", 1, 5), Rung("rung1", 1, 10))), "weight"),
        (StudyRegistered(9, "vision", 2.0), "rungs"),
        (JobRegistered(9, "vision", "rung0", replace(SPEC, iterations=6)), "iterations"),
        (JobRegistered(9, "vision", "rung0", replace(SPEC, workers=SPEC.workers[:1])), "workers"),
    ],
)
def test_registering_otherwise_conflicts(tracker: Tracker, event: Event, field: str) -> None:
    with pytest.raises(ConflictError) as raised:
        tracker.check(event)
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (replace(SPEC, name="a/b"), "job"),
        (replace(SPEC, workers=()), "workers"),
        (replace(SPEC, workers=(Worker(0, HOSTS[0]), Worker(0, HOSTS[1]))), "workers[1].rank"),
        (replace(SPEC, workers=(Worker(-1, HOSTS[0]),)), "workers[0].rank"),
        (replace(SPEC, iterations=0), "iterations"),
        (replace(SPEC, sync_bytes=-1), "sync_bytes"),
        (replace(SPEC, compute_s=-0.1), "compute_s"),
        (replace(SPEC, compute_s=math.inf), "compute_s"),
        (replace(SPEC, compute_s=math.nan), "compute_s"),
        (replace(SPEC, overlap=1.5), "overlap"),
        (replace(SPEC, overlap=math.nan), "overlap"),
        (replace(SPEC, collective="rings"), "collective"),
        (replace(SPEC, collective="parameter-server"), "workers"),
    ],
)
def test_refuses_a_job_that_cannot_be(tracker: Tracker, spec: JobSpec, field: str) -> None:
    with pytest.raises(InputError) as raised:
        tracker.check(JobRegistered(9, "vision", "rung0", replace(spec, name=spec.name.replace("t", "u"))))
    assert raised.value.field == field


def test_an_unknown_host_is_answered_with_the_nearest(tracker: Tracker) -> None:
    spec = replace(SPEC, name="u", workers=(Worker(0, HOSTS[0] + "0"),))
    with pytest.raises(InputError, match=rf"workers\[0\].host: got '{HOSTS[0]}0'.*did you mean '{HOSTS[0]}'"):
        tracker.check(JobRegistered(9, "vision", "rung0", spec))


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (StudyRegistered(9, ""), "study"),
        (StudyRegistered(9, "s", 0.0), "weight"),
        (StudyRegistered(9, "s", math.nan), "weight"),
        (StudyRegistered(9, "s", math.inf), "weight"),
        (StudyRegistered(9, "s", 1.0, (Rung("r", 1, 1), Rung("r", 1, 1))), "rungs[1].name"),
        (StudyRegistered(9, "s", 1.0, (Rung("r", 0, 1),)), "rungs[0].jobs"),
        (StudyRegistered(9, "s", 1.0, (Rung("r", 1, 0),)), "rungs[0].iterations"),
        (StageRegistered(9, "vision", "rung 1"), "stage"),
        (WorkerAttached(9, JOB, 0, 0), "pid"),
        (IterationDone(9, JOB, 6), "iteration"),
        (IterationDone(9, JOB, -1), "iteration"),
        (JobEnded(9, JOB, JobStatus.RUNNING), "status"),
        (Planned(9, "beamer", 1, None, 9, {}), "queues"),
        (Planned(9, "beamer", 1, None, 2, {JOB: JobPlan(2)}), f"jobs[{JOB}].klass"),
    ],
)
def test_refuses_values_that_cannot_be(tracker: Tracker, event: Event, field: str) -> None:
    with pytest.raises(InputError) as raised:
        tracker.check(event)
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (StageRegistered(9, "visio", "rung0"), "study"),
        (StageSealed(9, "vision", "rung1"), "stage"),
        (JobRegistered(9, "vision", "rung1", SPEC), "stage"),
        (WorkerAttached(9, JOB, 2, 77), "rank"),
        (WorkerAttached(9, "vision/rung0/u", 0, 77), "job"),
        (IterationDone(9, "vision/rung0", 1), "job"),
        (IterationDone(9, "", 1), "study"),
        (JobEnded(9, "vision/rung1/t", JobStatus.KILLED), "stage"),
        (ConnectionsSeen(9, "nobody", ()), "agent"),
        (Planned(9, "beamer", 1, None, 8, {"vision/rung0/u": JobPlan(0)}), "job"),
    ],
)
def test_unknown_names_are_not_found(tracker: Tracker, event: Event, field: str) -> None:
    with pytest.raises(NotFoundError) as raised:
        tracker.check(event)
    assert raised.value.field == field


def test_an_unknown_job_is_answered_with_the_nearest(tracker: Tracker) -> None:
    with pytest.raises(NotFoundError, match=r"job: got 'tt', expected a registered job .did you mean 't'"):
        tracker.check(IterationDone(9, JOB + "t", 1))


def test_progress_only_goes_forward(tracker: Tracker) -> None:
    assert take(tracker, IterationDone(4, JOB, 0), IterationDone(4, JOB, 3)) == [False, True]
    assert take(tracker, IterationDone(5, JOB, 3), IterationDone(5, JOB, 2)) == [False, False]
    assert tracker.jobs[JOB].done == 3


def test_the_last_iteration_does_not_end_a_job(tracker: Tracker) -> None:
    take(tracker, StageSealed(4, "vision", "rung0"), IterationDone(5, JOB, 5))
    assert tracker.jobs[JOB].status is JobStatus.RUNNING
    assert tracker.studies["vision"].stages["rung0"].status is StageStatus.SEALED


def test_a_worker_may_start_again_under_another_pid(tracker: Tracker) -> None:
    events = [WorkerAttached(4, JOB, 1, pid) for pid in (70, 70, 71)]
    assert take(tracker, *events) == [True, False, True]
    assert tracker.jobs[JOB].pids == {1: 71}


def test_no_worker_joins_an_ended_job(tracker: Tracker) -> None:
    take(tracker, WorkerAttached(4, JOB, 0, 70), JobEnded(5, JOB, JobStatus.FINISHED))
    assert not tracker.check(WorkerAttached(6, JOB, 0, 70))
    with pytest.raises(ConflictError, match="finished"):
        tracker.check(WorkerAttached(6, JOB, 0, 71))


@pytest.mark.parametrize("later", [JobStatus.FINISHED, JobStatus.KILLED])
def test_of_two_ends_the_first_stands(tracker: Tracker, later: JobStatus) -> None:
    take(tracker, JobEnded(4, JOB, JobStatus.KILLED))
    assert take(tracker, JobEnded(5, JOB, later), IterationDone(6, JOB, 5)) == [False, False]
    job = tracker.jobs[JOB]
    assert (job.status, job.ended_s, job.done) == (JobStatus.KILLED, 4, 0)


def test_a_stage_ends_when_sealed_and_every_job_ended(tracker: Tracker) -> None:
    stage = tracker.studies["vision"].stages["rung0"]
    take(tracker, JobRegistered(4, "vision", "rung0", replace(SPEC, name="u")), JobEnded(5, JOB, JobStatus.FINISHED))
    take(tracker, StageSealed(6, "vision", "rung0"))
    assert (stage.status, stage.sealed_s) == (StageStatus.SEALED, 6)
    take(tracker, JobEnded(7, "vision/rung0/u", JobStatus.KILLED))
    assert (stage.status, stage.ended_s) == (StageStatus.DONE, 7)


def test_a_stage_whose_jobs_all_ended_stays_open_until_sealed(tracker: Tracker) -> None:
    take(tracker, JobEnded(5, JOB, JobStatus.FINISHED))
    take(tracker, JobRegistered(6, "vision", "rung0", replace(SPEC, name="late")))
    take(tracker, JobEnded(7, "vision/rung0/late", JobStatus.FINISHED))
    stage = tracker.studies["vision"].stages["rung0"]
    assert stage.status is StageStatus.OPEN
    assert take(tracker, StageSealed(8, "vision", "rung0"), StageSealed(9, "vision", "rung0")) == [True, False]
    assert (stage.status, stage.sealed_s, stage.ended_s) == (StageStatus.DONE, 8, 8)


def test_sealing_an_empty_stage_ends_it(tracker: Tracker) -> None:
    take(tracker, StageRegistered(4, "vision", "rung1"), StageSealed(5, "vision", "rung1"))
    assert tracker.studies["vision"].stages["rung1"].ended_s == 5


def test_nobody_joins_a_sealed_stage(tracker: Tracker) -> None:
    take(tracker, StageSealed(4, "vision", "rung0"))
    assert not tracker.check(JobRegistered(5, "vision", "rung0", SPEC))
    with pytest.raises(ConflictError, match="sealed"):
        tracker.check(JobRegistered(5, "vision", "rung0", replace(SPEC, name="u")))


def test_jobs_are_numbered_for_good_and_spread_over_planes(tracker: Tracker) -> None:
    take(tracker, JobEnded(4, JOB, JobStatus.KILLED))
    take(tracker, *(JobRegistered(5, "vision", "rung0", replace(SPEC, name=name)) for name in "uv"))
    assert [(job.seq, FABRIC.plane_of(job.seq)) for job in tracker.jobs.values()] == [(1, 0), (2, 1), (3, 0)]


def test_workers_are_kept_by_rank(tracker: Tracker) -> None:
    take(tracker, JobRegistered(4, "vision", "rung0", replace(SPEC, name="u", workers=SPEC.workers[::-1])))
    assert tracker.jobs["vision/rung0/u"].spec.workers == SPEC.workers


def test_connections_change_only_with_what_is_seen(tracker: Tracker) -> None:
    other = replace(SEEN, local_port=4001)
    reports = [
        ConnectionsSeen(4, AGENTS[0], ()),
        ConnectionsSeen(5, AGENTS[0], (SEEN, other)),
        ConnectionsSeen(6, AGENTS[0], (other, SEEN)),
        ConnectionsSeen(7, AGENTS[0], (SEEN,)),
        ConnectionsSeen(8, AGENTS[0], ()),
    ]
    assert take(tracker, *reports[:4]) == [False, True, False, True]
    assert dict(network(tracker).connections) == {AGENTS[0]: (SEEN,)}
    assert take(tracker, reports[4]) == [True]
    assert not network(tracker).connections


def test_connections_of_ended_jobs_are_dropped(tracker: Tracker) -> None:
    take(tracker, ConnectionsSeen(4, AGENTS[0], (SEEN,)), JobEnded(5, JOB, JobStatus.FINISHED))
    assert not network(tracker).connections
    assert not tracker.check(ConnectionsSeen(6, AGENTS[0], (SEEN,)))


def test_decisions_only_go_forward(tracker: Tracker) -> None:
    first = Planned(4, "beamer", 1, {"order": [JOB]}, 8, {JOB: JobPlan(0)})
    assert take(tracker, first, first) == [True, False]
    with pytest.raises(ConflictError):
        tracker.check(replace(first, at_s=5))
    assert take(tracker, replace(first, at_s=6, generation=2)) == [True]
    assert network(tracker).decision is not None
    assert network(tracker).decision.generation == 2


def test_a_snapshot_holds_what_is_still_to_come(tracker: Tracker) -> None:
    done = replace(SPEC, name="u")
    take(tracker, JobRegistered(4, "vision", "rung0", done), JobEnded(5, "vision/rung0/u", JobStatus.FINISHED))
    take(tracker, IterationDone(6, JOB, 2), StudyRegistered(7, "idle"))
    (study,) = network(tracker).views(tracker)
    assert (study.name, study.weight, study.later) == ("vision", 2.0, (Rung("rung1", 1, 10),))
    (job,) = study.stages[0].jobs
    assert (job.key, job.done, job.remaining, job.plane, job.registered_s) == (JOB, 2, 3, 0, 3)
    snapshot = network(tracker).snapshot(tracker)
    assert [(s.name, s.weight, s.later) for s in snapshot.studies] == [("vision", 2.0, (Rung("rung1", 1, 10),))]
    assert (snapshot.stages, snapshot.jobs.key, snapshot.remaining.tolist()) == (("vision/rung0",), (JOB,), [3])
    assert snapshot.jobs.registered_s.tolist() == [3.0]
    take(tracker, StageSealed(8, "vision", "rung0"), JobEnded(9, JOB, JobStatus.FINISHED))
    assert network(tracker).views(tracker)[0].stages == ()
    assert network(tracker).snapshot(tracker).jobs.key == ()
    take(tracker, StageRegistered(10, "vision", "rung1"), StageSealed(11, "vision", "rung1"))
    assert network(tracker).views(tracker) == ()


def test_records_cannot_be_replaced_from_outside(tracker: Tracker) -> None:
    for records in (tracker.jobs, tracker.studies, network(tracker).connections):
        with pytest.raises(TypeError):
            records["x"] = None  # type: ignore[index]


def test_trackers_of_different_knowledge_differ(tracker: Tracker) -> None:
    assert tracker != Tracker(NetworkLedger(FABRIC))
    assert Tracker(NetworkLedger(FABRIC)) != Tracker(NetworkLedger(star(3)))


_studies = st.sampled_from(("a", "b"))
_stages = st.sampled_from(("r0", "r1"))
_names = st.sampled_from(("x", "y"))
_keys = st.builds("{}/{}/{}".format, _studies, _stages, _names)
_ranks = st.integers(0, 2)
_times = st.floats(0, 1e10)
_workers = st.lists(
    st.builds(Worker, _ranks, st.sampled_from(HOSTS), st.sampled_from(Role)), min_size=1, max_size=3, unique_by=lambda w: w.rank
)
_specs = st.builds(
    JobSpec,
    _names,
    _workers.map(tuple),
    st.integers(1, 3),
    st.integers(0, 10**15),
    st.sampled_from(("ring", "parameter-server")),
    st.floats(0, 1e6),
    st.floats(0, 1),
)
_connections = st.builds(Connection, _keys, _ranks, st.just("10.0.0.1"), st.integers(1, 3), st.just("10.0.0.2"), st.just(9))
_plans = st.dictionaries(_keys, st.builds(JobPlan, st.integers(0, 7), st.none() | st.integers(1, 10**11)), max_size=2)
_json = st.dictionaries(st.text(max_size=3), st.lists(st.floats(0, 1) | st.none(), max_size=2), max_size=2)
_events: st.SearchStrategy[Event] = st.one_of(
    st.builds(StudyRegistered, _times, _studies, st.sampled_from((1.0, 1.0, 0.1)), st.just(())),
    st.builds(StageRegistered, _times, _studies, _stages),
    st.builds(StageSealed, _times, _studies, _stages),
    st.builds(JobRegistered, _times, _studies, _stages, _specs),
    st.builds(WorkerAttached, _times, _keys, _ranks, st.integers(1, 3)),
    st.builds(IterationDone, _times, _keys, st.integers(0, 4)),
    st.builds(JobEnded, _times, _keys, st.sampled_from((JobStatus.FINISHED, JobStatus.KILLED))),
    st.builds(ConnectionsSeen, _times, st.sampled_from(AGENTS), st.lists(_connections, max_size=3).map(tuple)),
    st.builds(Planned, _times, st.just("beamer"), st.integers(1, 5), _json, st.integers(1, 8), _plans),
)
# Everything registered first, in half of the cases, so that most of what follows is legal.
_STARTED: list[Event] = [
    *(StudyRegistered(0, study) for study in "ab"),
    *(StageRegistered(0, study, "r0") for study in "ab"),
    *(JobRegistered(0, study, "r0", replace(SPEC, name=name)) for study in "ab" for name in "xy"),
]


@given(started=st.sampled_from(([], _STARTED)), drawn=st.lists(_events, max_size=25))
@settings(deadline=None)
def test_its_journal_rebuilds_it(tmp_path_factory: pytest.TempPathFactory, started: list[Event], drawn: list[Event]) -> None:
    tracker = Tracker(NetworkLedger(FABRIC))
    with closing(Journal(f"sqlite:///{tmp_path_factory.mktemp('journal')}/events.db")) as journal:
        _take_legal(tracker, journal, [*started, *drawn])
        rebuilt = Tracker(NetworkLedger(FABRIC))
        for event in journal.replay():
            assert rebuilt.check(event)
            rebuilt.apply(event)
    assert rebuilt == tracker
    assert network(rebuilt).views(rebuilt) == network(tracker).views(tracker)
    for study in tracker.studies.values():
        for stage in study.stages.values():
            ended = all(tracker.jobs[key].status is not JobStatus.RUNNING for key in stage.jobs)
            assert (stage.status is StageStatus.DONE) == (stage.sealed_s is not None and ended)
            assert (stage.ended_s is not None) == (stage.status is StageStatus.DONE)


def _take_legal(tracker: Tracker, journal: Journal, events: list[Event]) -> None:
    for event in events:
        before = network(tracker).views(tracker)
        try:
            changes = tracker.check(event)
        except InputError:
            assert network(tracker).views(tracker) == before
            continue
        if changes:
            journal.append(event)
            tracker.apply(event)
            assert not tracker.check(event)
