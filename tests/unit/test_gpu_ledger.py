"""The tracker knows submitted jobs: what may be submitted, reported and allocated, and that its journal rebuilds it."""

import math
from pathlib import Path

import pytest

from beamer.errors import ConflictError, InputError, NotFoundError
from beamer.gpu.events import Allocated, JobReported, JobSubmitted, NodesSeen
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.model import Costs, Grant, Job, Node, Report, Request, Speed
from beamer.studies.events import Event, JobEnded, StageRegistered, StageSealed, StudyRegistered
from beamer.studies.journal.store import Journal
from beamer.studies.model import JobStatus, Rung, StageStatus
from beamer.studies.tracker import Tracker

KEY = "s/r0/t0"
BEGINNING: tuple[Event, ...] = (
    NodesSeen(0.0, (Node("n0", 2),)),
    StudyRegistered(0.0, "s", rungs=(Rung("r0", 2, 10), Rung("r1", 1, 20))),
    StageRegistered(0.0, "s", "r0"),
    JobSubmitted(1.0, "s", "r0", "t0", Request(iterations=10)),
    JobSubmitted(1.0, "s", "r0", "t1", Request(iterations=10, gpus=2)),
)


def ledger(tracker: Tracker) -> GpuLedger:
    (found,) = tracker.ledgers
    assert isinstance(found, GpuLedger)
    return found


def submitted(tracker: Tracker) -> tuple[Job, ...]:
    return ledger(tracker).submitted(tracker)


def tracker(*events: Event) -> Tracker:
    made = Tracker(GpuLedger())
    for event in (*BEGINNING, *events):
        assert made.check(event)
        made.apply(event)
    return made


def test_a_submitted_job_knows_what_its_stage_will_keep() -> None:
    one = submitted(tracker())[0]
    assert (one.key, one.stage.jobs, one.stage.keeps, one.stage.sealed) == (KEY, 2, 1, False)
    made = tracker(
        JobReported(2.0, KEY, Report(2.0, 10, 0.5, 1.0)), JobEnded(3.0, KEY, JobStatus.FINISHED), StageSealed(4.0, "s", "r0")
    )
    after = submitted(made)[0]
    assert (after.key, after.stage.losses, after.stage.sealed) == ("s/r0/t1", (0.5,), True)


def test_repeats_change_nothing_and_differences_are_conflicts() -> None:
    made = tracker()
    assert not made.check(BEGINNING[3])
    assert not made.check(BEGINNING[0])
    with pytest.raises(ConflictError, match=r"request\.gpus: got 2, expected 1, with which job s/r0/t0 was submitted"):
        made.check(JobSubmitted(2.0, "s", "r0", "t0", Request(iterations=10, gpus=2)))
    with pytest.raises(NotFoundError, match="stage"):
        made.check(JobSubmitted(2.0, "s", "r9", "t0", Request(iterations=10)))
    with pytest.raises(NotFoundError, match="a job that was submitted"):
        made.check(JobReported(2.0, "s/r0/t9", Report(2.0, 1, 0.5, 1.0)))
    with pytest.raises(InputError, match=r"report\.service_s: got -1\.0, expected a finite number, at least 0"):
        made.check(JobReported(2.0, KEY, Report(2.0, 1, 0.5, -1.0)))


def test_a_sealed_stage_takes_no_job_and_ends_with_its_last() -> None:
    made = tracker(StageSealed(2.0, "s", "r0"), JobEnded(3.0, KEY, JobStatus.FAILED))
    with pytest.raises(ConflictError, match="no further job may join"):
        made.check(JobSubmitted(4.0, "s", "r0", "t2", Request(iterations=10)))
    assert made.stage("s", "r0").status is StageStatus.SEALED
    made.apply(JobEnded(5.0, "s/r0/t1", JobStatus.KILLED))
    assert (made.stage("s", "r0").status, made.stage("s", "r0").ended_s) == (StageStatus.DONE, 5.0)
    assert not made.check(JobEnded(6.0, KEY, JobStatus.KILLED))
    assert not made.check(JobReported(6.0, KEY, Report(6.0, 9, 0.5, 1.0)))


def test_progress_that_was_reported_before_is_a_repeat() -> None:
    made = tracker(JobReported(2.0, KEY, Report(2.0, 3, 0.5, 1.0)))
    assert not made.check(JobReported(3.0, KEY, Report(3.0, 3, 0.4, 1.5)))
    assert made.check(JobReported(3.0, KEY, Report(3.0, 4, 0.4, 1.5)))


@pytest.mark.parametrize(
    ("grants", "message"),
    [
        ({KEY: Grant.of({"n0": 1}), "s/r0/t1": Grant.of({"n0": 2})}, r"allocation on n0: got 3, expected at most 2 GPUs"),
        ({"s/r0/t1": Grant.of({"n0": 1})}, r"allocation\[s/r0/t1\]\.gpus: got 1, expected 2 to 2"),
        ({KEY: Grant.of({"n1": 1})}, r"allocation\[s/r0/t0\]: got 'n1', expected a node that is up"),
        ({"s/r0/t9": Grant.of({"n0": 1})}, r"expected a job that has been submitted and has not ended"),
    ],
)
def test_an_allocation_that_cannot_be_is_refused(grants: dict[str, Grant], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tracker().check(Allocated(2.0, "fifo", 1, {}, grants, {}))


def test_grants_and_service_are_accounted() -> None:
    made = tracker(
        Allocated(10.0, "fifo", 1, {}, {KEY: Grant.of({"n0": 1})}, {KEY: (("n0", 0),)}),
        Allocated(15.0, "fifo", 2, {}, {"s/r0/t1": Grant.of({"n0": 2})}, {"s/r0/t1": (("n0", 0), ("n0", 1))}),
    )
    first, second = submitted(made)
    assert (first.grant, first.last, first.service_s, first.gpu_s) == (None, Grant.of({"n0": 1}), 5.0, 5.0)
    assert (second.service_at(18.0), second.gpu_seconds_at(18.0)) == (3.0, 6.0)
    assert ledger(made).devices["s/r0/t1"] == (("n0", 0), ("n0", 1))


def test_of_a_shape_the_last_five_speeds_count() -> None:
    speeds = tuple(JobReported(2.0, KEY, speeds=(Speed(1, 1, 0, 1, step_s),)) for step_s in (99.0, 1.0, 2.0, 3.0, 4.0, 5.0))
    assert submitted(tracker(*speeds))[0].speeds == (Speed(1, 1, 0, 1, 3.0),)


def test_the_journal_rebuilds_it(tmp_path: Path) -> None:
    events = (
        *BEGINNING,
        JobReported(2.0, KEY, Report(2.0, 3, math.inf, 1.0, 0.5), (Speed(1, 1, 0, 1, 0.5),), Costs(0.1, 0.2, 3.0)),
        Allocated(
            2.5, "hermes", 1, {"node": [["s/r0/t0", "n0"]]}, {KEY: Grant.of({"n0": 1}, batch_size=4)}, {KEY: (("n0", 0),)}
        ),
        NodesSeen(3.0, ()),
        JobEnded(4.0, KEY, JobStatus.FAILED),
    )
    journal = Journal(f"sqlite:///{tmp_path}/journal.db")
    journal.append(*events)
    replayed, direct = Tracker(GpuLedger()), Tracker(GpuLedger())
    for event in journal.replay():
        replayed.apply(event)
    for event in events:
        direct.apply(event)
    journal.close()
    assert replayed == direct


def test_a_loss_that_is_no_number_survives_the_journal(tmp_path: Path) -> None:
    journal = Journal(f"sqlite:///{tmp_path}/journal.db")
    journal.append(JobReported(2.0, KEY, Report(2.0, 3, math.nan, 1.0)))
    (event,) = journal.replay()
    journal.close()
    assert isinstance(event, JobReported)
    assert event.report is not None
    assert math.isnan(event.report.loss)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"iterations": 0}, "iterations: got 0, expected at least 1"),
        ({"iterations": 1, "gpus": 2, "max_gpus": 1}, "gpus: got 2, expected 2 to 1, from min_gpus to max_gpus"),
        ({"iterations": 1, "worker_cpus": -1.0}, "worker_cpus: got -1.0, expected at least 0"),
    ],
)
def test_a_request_that_cannot_be_is_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Request(**fields)  # type: ignore[arg-type]


def test_a_live_tracker_and_its_replay_know_the_same(tmp_path: Path) -> None:
    """Whatever was asked in between: decisions look at what is known, replays do not."""
    declared = (StudyRegistered(0.0, "s", rungs=(Rung("r0", 2, 5), Rung("r1", 1, 10))), StageRegistered(0.0, "s", "r0"))
    events = (
        NodesSeen(0.0, (Node("n0", 2),)),
        *declared,
        JobSubmitted(1.0, "s", "r0", "t0", Request(iterations=5)),
        JobSubmitted(1.0, "s", "r0", "t1", Request(iterations=5)),
        StageRegistered(2.0, "s", "r1"),
        JobReported(3.0, "s/r0/t0", Report(3.0, 5, 0.5, 1.0)),
        JobEnded(4.0, "s/r0/t0", JobStatus.FINISHED),
        StageSealed(5.0, "s", "r0"),
    )
    live, replayed = Tracker(GpuLedger()), Tracker(GpuLedger())
    for event in events:
        live.apply(event)
        submitted(live)
        replayed.apply(event)
    assert live == replayed
    assert submitted(live) == submitted(replayed)
    assert live != Tracker(GpuLedger())
