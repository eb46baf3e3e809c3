"""The tracker knows submitted jobs: what may be submitted, reported and allocated, and that its journal rebuilds it."""

import math
from pathlib import Path

import pytest

from beamer.errors import ConflictError, InputError, NotFoundError
from beamer.gpu.events import Allocated, GpusRequested, NodesSeen, RunFinished, TrialReported
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.model import Costs, Grant, Job, Node, Report, Request, Speed
from beamer.studies.events import (
    Event,
    Progressed,
    StageRegistered,
    StageSealed,
    StudyRegistered,
    TargetSet,
    TrialEnded,
    TrialRegistered,
)
from beamer.studies.journal.store import Journal
from beamer.studies.model import EndReason, Role, Rung, StageStatus, TrialStatus, Worker
from beamer.studies.tracker import Tracker

KEY, OTHER = "s/t0", "s/t1"
BEGINNING: tuple[Event, ...] = (
    NodesSeen(0.0, (Node("n0", 2),)),
    StudyRegistered(0.0, "s", rungs=(Rung("r0", 2, 10), Rung("r1", 1, 20))),
    StageRegistered(0.0, "s", "r0"),
    TrialRegistered(0.5, "s", "t0"),
    TargetSet(0.5, KEY, 10, "r0"),
    GpusRequested(1.0, KEY, Request(iterations=20)),
    TrialRegistered(0.5, "s", "t1"),
    TargetSet(0.5, OTHER, 10, "r0"),
    GpusRequested(1.0, OTHER, Request(iterations=20, gpus=2)),
)


def ledger(tracker: Tracker) -> GpuLedger:
    (found,) = tracker.ledgers
    assert isinstance(found, GpuLedger)
    return found


def rested() -> Tracker:
    """Return a tracker of two trials of which the first has come to the end of the first rung on a GPU."""
    return tracker(
        Allocated(2.0, "fifo", 1, {}, {KEY: Grant.of({"n0": 1})}, {KEY: (("n0", 0),)}),
        TrialReported(12.0, KEY, Report(12.0, 10, 0.5, 10.0), (Speed(1, 1, 0, 1, 1.0),)),
        RunFinished(12.0, KEY, 10),
    )


def submitted(tracker: Tracker) -> tuple[Job, ...]:
    return ledger(tracker).submitted(tracker)


def tracker(*events: Event) -> Tracker:
    made = Tracker(GpuLedger())
    for event in (*BEGINNING, *events):
        assert made.check(event)
        made.apply(event)
    return made


def test_a_job_knows_its_target_and_what_its_stage_will_keep() -> None:
    one = submitted(tracker())[0]
    assert (one.key, one.request.iterations) == (KEY, 10)
    assert (one.stage.jobs, one.stage.keeps, one.stage.losses, one.stage.sealed) == (2, 1, (), False)
    made = rested()
    made.apply(StageSealed(14.0, "s", "r0"))
    (after,) = submitted(made)
    assert (after.key, after.stage.losses, after.stage.sealed) == (OTHER, (0.5,), True)


def test_a_job_at_its_target_wants_no_gpus_until_it_has_a_farther_one() -> None:
    made = rested()
    assert [job.key for job in submitted(made)] == [OTHER]
    assert not ledger(made).granted, "its processes are gone"
    assert KEY in ledger(made).live_jobs
    with pytest.raises(InputError, match="a job that wants GPUs"):
        made.check(Allocated(13.0, "fifo", 2, {}, {KEY: Grant.of({"n0": 1})}, {KEY: (("n0", 0),)}))
    for event in (StageRegistered(20.0, "s", "r1"), TargetSet(20.0, KEY, 20, "r1")):
        assert made.check(event)
        made.apply(event)
    job, other = submitted(made)
    assert (job.key, job.submitted_s, job.done, job.remaining, job.since_s) == (KEY, 1.0, 10, 10, 20.0)
    assert (job.service_s, job.gpu_s, job.speeds) == (10.0, 10.0, (Speed(1, 1, 0, 1, 1.0),))
    assert (job.stage.name, job.stage.keeps, job.stage.losses) == ("r1", None, ())
    assert other.stage.losses == (0.5,), "what it had at the end of its rung still counts there"
    made.apply(TrialReported(21.0, KEY, Report(21.0, 11, 0.1, 11.0)))
    made.apply(StageSealed(22.0, "s", "r0"))
    assert submitted(made)[1].stage.losses == (0.5,)


def test_only_a_run_that_came_farther_than_the_one_before_has_finished() -> None:
    made = rested()
    made.apply(StageRegistered(20.0, "s", "r1"))
    made.apply(TargetSet(20.0, KEY, 20, "r1"))
    assert not made.check(RunFinished(21.0, KEY, 10)), "seen again by a scheduler that was started anew"
    assert not ledger(made).is_complete(KEY)
    made.apply(RunFinished(31.0, KEY, 20))
    assert ledger(made).is_complete(KEY)
    assert made.trial(KEY).done == 20


def test_the_status_and_the_attempts_of_trials_follow_their_gpus() -> None:
    made = tracker()
    trial = made.trial(KEY)

    def allocate(generation: int, grants: dict[str, Grant], **devices: tuple[tuple[str, int], ...]) -> None:
        event = Allocated(
            float(generation), "fifo", generation, {}, grants, {f"s/{name}": given for name, given in devices.items()}
        )
        assert made.check(event)
        made.apply(event)

    assert trial.status is TrialStatus.WAITING
    grant = Grant.of({"n0": 1}, {"n0": 1})
    allocate(2, {KEY: grant}, t0=(("n0", 0),))
    assert (trial.status, list(trial.attempts)) == (TrialStatus.RUNNING, ["gpus-2"])
    assert trial.attempts["gpus-2"].workers == (Worker(0, "n0"), Worker(1, "n0", Role.SERVER))
    assert trial.attempts["gpus-2"].by_host, "its ranks descend from one process on each node"
    allocate(3, {KEY: grant}, t0=(("n0", 0),))
    assert list(trial.attempts) == ["gpus-2"], "it stays where it is"
    allocate(4, {KEY: grant}, t0=(("n0", 1),))
    assert list(trial.attempts) == ["gpus-2", "gpus-4"]
    assert trial.attempts["gpus-2"].reason is EndReason.MOVED
    allocate(5, {OTHER: Grant.of({"n0": 2})}, t1=(("n0", 0), ("n0", 1)))
    assert (trial.status, trial.attempts["gpus-4"].reason) == (TrialStatus.PAUSED, EndReason.PAUSED)
    assert made.trial(OTHER).attempts["gpus-5"].workers == (Worker(0, "n0"), Worker(1, "n0"))
    made.apply(RunFinished(6.0, OTHER, 10))
    assert made.trial(OTHER).status is TrialStatus.PAUSED
    allocate(7, {KEY: grant}, t0=(("n0", 1),))
    assert (trial.status, list(trial.attempts)) == (TrialStatus.RUNNING, ["gpus-2", "gpus-4", "gpus-7"])
    made.apply(TrialEnded(8.0, KEY, TrialStatus.KILLED))
    assert (trial.status, trial.attempts["gpus-7"].reason) == (TrialStatus.KILLED, EndReason.ENDED)


def test_a_report_is_progress_of_its_trial() -> None:
    made = tracker(TrialReported(2.0, KEY, Report(2.0, 3.7, 0.5, 1.0)))
    assert (made.trial(KEY).done, made.trial(KEY).loss) == (3, 0.5)
    assert not made.check(Progressed(3.0, KEY, 3, 0.5))
    made.apply(TrialReported(4.0, KEY, Report(4.0, 10.0, 0.4, 2.0)))
    assert made.stage("s", "r0").missing == {"t1"}


def test_repeats_change_nothing_and_differences_are_conflicts() -> None:
    made = tracker()
    assert not made.check(BEGINNING[5])
    assert not made.check(BEGINNING[0])
    with pytest.raises(ConflictError, match=r"request\.gpus: got 2, expected 1, with which s/t0 asked for GPUs"):
        made.check(GpusRequested(2.0, KEY, Request(iterations=20, gpus=2)))
    with pytest.raises(NotFoundError, match="a registered trial"):
        made.check(GpusRequested(2.0, "s/t9", Request(iterations=10)))
    made.apply(TrialRegistered(2.0, "s", "t2"))
    with pytest.raises(NotFoundError, match="a trial that has asked for GPUs"):
        made.check(TrialReported(2.0, "s/t2", Report(2.0, 1, 0.5, 1.0)))
    with pytest.raises(InputError, match=r"report\.service_s: got -1\.0, expected a number from 0 to"):
        made.check(TrialReported(2.0, KEY, Report(2.0, 1, 0.5, -1.0)))


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["suspend_s", "resume_s", "restart_s", "batch_s"])
def test_costs_that_cannot_be_are_refused(name: str, seconds: float) -> None:
    made = tracker()
    for report in (None, Report(2.0, 1, 0.5, 1.0)):
        with pytest.raises(InputError, match=rf"costs\.{name}: got {seconds}, expected a finite number of seconds"):
            made.check(TrialReported(2.0, KEY, report, costs=Costs(**{name: seconds})))
    assert made.check(TrialReported(2.0, KEY, costs=Costs(batch_s=None, restart_s=1.0)))


def test_a_trial_that_has_ended_asks_and_reports_no_more() -> None:
    made = tracker(TrialRegistered(2.0, "s", "t2"), StageSealed(2.0, "s", "r0"), TrialEnded(3.0, KEY, TrialStatus.FAILED))
    assert made.stage("s", "r0").status is StageStatus.SEALED
    made.apply(TrialEnded(5.0, OTHER, TrialStatus.KILLED))
    assert (made.stage("s", "r0").status, made.stage("s", "r0").ended_s) == (StageStatus.DONE, 5.0)
    assert not made.check(TrialEnded(6.0, KEY, TrialStatus.KILLED))
    assert not made.check(TrialReported(6.0, KEY, Report(6.0, 9, 0.5, 1.0)))
    assert not made.check(RunFinished(6.0, KEY, 10))
    made.apply(TrialEnded(7.0, "s/t2", TrialStatus.KILLED))
    with pytest.raises(ConflictError, match="one that has not ended; it is killed"):
        made.check(GpusRequested(8.0, "s/t2", Request(iterations=10)))


def test_another_run_of_a_study_begins_without_the_jobs_of_the_one_before() -> None:
    made = rested()
    made.apply(StudyRegistered(20.0, "s", run="2"))
    assert submitted(made) == ()
    for event in (TrialRegistered(21.0, "s", "t0"), GpusRequested(21.0, KEY, Request(iterations=7))):
        assert made.check(event)
        made.apply(event)
    (job,) = submitted(made)
    assert (job.request.iterations, job.reports, job.submitted_s, job.gpu_s) == (7, (), 21.0, 0.0)
    assert not ledger(made).ended
    assert not ledger(made).granted


def test_progress_that_was_reported_before_is_a_repeat() -> None:
    made = tracker(TrialReported(2.0, KEY, Report(2.0, 3, 0.5, 1.0)))
    assert not made.check(TrialReported(3.0, KEY, Report(3.0, 3, 0.4, 1.5)))
    assert made.check(TrialReported(3.0, KEY, Report(3.0, 4, 0.4, 1.5)))


@pytest.mark.parametrize(
    ("grants", "message"),
    [
        ({KEY: Grant.of({"n0": 1}), OTHER: Grant.of({"n0": 2})}, r"allocation on n0: got 3, expected at most 2 GPUs"),
        ({OTHER: Grant.of({"n0": 1})}, r"allocation\[s/t1\]\.gpus: got 1, expected 2 to 2"),
        ({KEY: Grant.of({"n1": 1})}, r"allocation\[s/t0\]: got 'n1', expected a node that is up"),
        ({"s/t9": Grant.of({"n0": 1})}, r"expected a job that wants GPUs"),
    ],
)
def test_an_allocation_that_cannot_be_is_refused(grants: dict[str, Grant], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tracker().check(Allocated(2.0, "fifo", 1, {}, grants, {}))


def test_grants_and_service_are_accounted() -> None:
    made = tracker(
        Allocated(10.0, "fifo", 1, {}, {KEY: Grant.of({"n0": 1})}, {KEY: (("n0", 0),)}),
        Allocated(15.0, "fifo", 2, {}, {OTHER: Grant.of({"n0": 2})}, {OTHER: (("n0", 0), ("n0", 1))}),
    )
    first, second = submitted(made)
    assert (first.grant, first.last, first.service_s, first.gpu_s) == (None, Grant.of({"n0": 1}), 5.0, 5.0)
    assert (second.service_at(18.0), second.gpu_seconds_at(18.0)) == (3.0, 6.0)
    assert ledger(made).devices[OTHER] == (("n0", 0), ("n0", 1))


def test_what_a_job_says_of_accumulation_holds_for_the_speeds_of_any_engine() -> None:
    made = tracker(
        TrialRegistered(0.5, "s", "t2"),
        GpusRequested(1.0, "s/t2", Request(iterations=20, batch_size=64, max_local_batch_size=16, accumulates=True)),
        TrialReported(2.0, "s/t2", speeds=(Speed(1, 1, 0, 64, 1.0), Speed(4, 1, 0, 64, 1.0), Speed(2, 1, 0, 32, 1.0, 0.0, 2))),
    )
    job = ledger(made).job("s/t2")
    assert job
    assert [speed.sub_steps for speed in job.speeds] == [4, 1, 2]


def test_of_a_shape_the_last_five_speeds_count() -> None:
    speeds = tuple(TrialReported(2.0, KEY, speeds=(Speed(1, 1, 0, 1, step_s),)) for step_s in (99.0, 1.0, 2.0, 3.0, 4.0, 5.0))
    assert submitted(tracker(*speeds))[0].speeds == (Speed(1, 1, 0, 1, 3.0),)


def test_the_journal_rebuilds_it(tmp_path: Path) -> None:
    events = (
        *BEGINNING,
        TrialReported(2.0, KEY, Report(2.0, 3, math.inf, 1.0, 0.5), (Speed(1, 1, 0, 1, 0.5),), Costs(0.1, 0.2, 3.0)),
        Allocated(2.5, "hermes", 1, {"node": [["s/t0", "n0"]]}, {KEY: Grant.of({"n0": 1}, batch_size=4)}, {KEY: (("n0", 0),)}),
        NodesSeen(3.0, ()),
        TrialEnded(4.0, KEY, TrialStatus.FAILED),
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
    journal.append(TrialReported(2.0, KEY, Report(2.0, 3, math.nan, 1.0)))
    (event,) = journal.replay()
    journal.close()
    assert isinstance(event, TrialReported)
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


def test_a_live_tracker_and_its_replay_know_the_same_wherever_the_journal_is_cut() -> None:
    """Whatever was asked in between: decisions look at what is known, replays do not."""
    events = (
        *BEGINNING,
        Allocated(2.0, "fifo", 1, {}, {KEY: Grant.of({"n0": 1})}, {KEY: (("n0", 0),)}),
        TrialReported(3.0, KEY, Report(3.0, 10, 0.5, 1.0)),
        RunFinished(4.0, KEY, 10),
        Allocated(4.0, "fifo", 2, {}, {OTHER: Grant.of({"n0": 2})}, {OTHER: (("n0", 0), ("n0", 1))}),
        StageRegistered(5.0, "s", "r1"),
        TargetSet(5.0, KEY, 20, "r1"),
        Allocated(6.0, "fifo", 3, {}, {KEY: Grant.of({"n0": 1})}, {KEY: (("n0", 1),)}),
        TrialReported(7.0, KEY, Report(7.0, 15, 0.4, 2.0)),
        TrialEnded(8.0, OTHER, TrialStatus.FAILED),
        StageSealed(9.0, "s", "r0"),
        Allocated(10.0, "fifo", 4, {}, {KEY: Grant.of({"n0": 1})}, {KEY: (("n0", 0),)}),
        RunFinished(11.0, KEY, 20),
        TrialEnded(11.0, KEY, TrialStatus.FINISHED),
        StudyRegistered(12.0, "s", run="2"),
        TrialRegistered(12.0, "s", "t0"),
    )
    live = Tracker(GpuLedger())
    for i, event in enumerate(events, 1):
        assert live.check(event)
        live.apply(event)
        submitted(live)
        replayed = Tracker(GpuLedger())
        for past in events[:i]:
            replayed.apply(past)
        assert live == replayed
        assert submitted(live) == submitted(replayed)
    assert live != Tracker(GpuLedger())
