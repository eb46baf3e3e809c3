"""Studies, trials and stages: what is known of them after which events."""

import math
from dataclasses import replace

import pytest

from beamer.errors import ConflictError, InputError, NotFoundError
from beamer.network.events import ConnectionsSeen, Planned
from beamer.network.ledger import NetworkLedger
from beamer.network.plan import JobPlan
from beamer.network.views import LaterRung
from beamer.studies.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    FellSilent,
    MemberJoined,
    Progressed,
    StageRegistered,
    StageSealed,
    StudyEnded,
    StudyRegistered,
    TargetDropped,
    TargetSet,
    TrialEnded,
    TrialRegistered,
    WorkerAttached,
    WorkerDetached,
)
from beamer.studies.model import (
    MAX_STEPS,
    EndReason,
    Process,
    Profile,
    Rung,
    StageStatus,
    StudyStatus,
    TrialStatus,
    Worker,
)
from beamer.studies.tracker import Tracker
from beamer.testing.fabrics import star
from tests.support.tracked import AGENTS, FABRIC, HOSTS, PROFILE, SEEN, START, STUDY, TRIAL, WORKERS, another, network, take


@pytest.fixture
def tracker() -> Tracker:
    """One study with one open stage and one running trial in it."""
    tracker = Tracker(NetworkLedger(FABRIC))
    started: tuple[Event, ...] = (
        STUDY,
        StageRegistered(2, "vision", "rung0"),
        TrialRegistered(3, "vision", "t"),
        TargetSet(3, TRIAL, 5, "rung0"),
        START,
    )
    assert take(tracker, *started) == [True] * 5
    return tracker


def test_what_is_repeated_changes_nothing(tracker: Tracker) -> None:
    again: tuple[Event, ...] = (
        replace(STUDY, at_s=9),
        StageRegistered(9, "vision", "rung0"),
        TrialRegistered(9, "vision", "t"),
        TargetSet(9, TRIAL, 5, "rung0"),
        replace(START, at_s=9),
        replace(START, at_s=9, workers=WORKERS[::-1]),
    )
    assert take(tracker, *again) == [False] * 6
    assert tracker.trials[TRIAL].registered_s == 3


def test_weight_rungs_and_budget_may_change(tracker: Tracker) -> None:
    more = (*STUDY.rungs, Rung("rung2", 1, 45))
    assert take(tracker, replace(STUDY, weight=3.0, rungs=more), TrialRegistered(9, "vision", "t", 45)) == [True, True]
    study = tracker.studies["vision"]
    assert (study.weight, study.rungs, tracker.trials[TRIAL].budget) == (3.0, more, 45)


def test_another_run_begins_anew_and_ends_what_ran(tracker: Tracker) -> None:
    take(tracker, ConnectionsSeen(5, AGENTS[0], (SEEN,)), Planned(5, "beamer", 1, None, 8, {TRIAL: JobPlan(3)}))
    assert take(tracker, replace(STUDY, at_s=9, run="2")) == [True]
    assert (tracker.studies["vision"].run, dict(tracker.trials), tracker.running) == ("2", {}, ())
    assert not network(tracker).connections
    (past,) = tracker.past_runs("vision")
    assert (past.run, past.status, past.trials["t"].status) == ("1", StudyStatus.ENDED, TrialStatus.KILLED)
    assert take(tracker, replace(STUDY, at_s=10)) == [False], "late: of a run that another has replaced"
    take(tracker, *(replace(event, at_s=11) for event in (TrialRegistered(3, "vision", "t"), START)))
    assert network(tracker).snapshot(tracker).klass.tolist() == [-1], "the class was that of the run before"


def test_a_study_that_has_ended_waits_for_nothing(tracker: Tracker) -> None:
    assert take(tracker, StudyEnded(9, "vision"), StudyEnded(10, "vision")) == [True, False]
    with pytest.raises(ConflictError, match="this one has ended"):
        tracker.check(replace(STUDY, at_s=11))
    study = tracker.studies["vision"]
    assert (study.status, study.search_s, study.makespan_s) == (StudyStatus.ENDED, 8, 5)
    assert study.stages["rung0"].status is StageStatus.DONE
    assert tracker.trials[TRIAL].status is TrialStatus.KILLED
    for event in (StageRegistered(12, "vision", "rung1"), TrialRegistered(12, "vision", "u")):
        with pytest.raises(ConflictError, match="register another run"):
            tracker.check(event)


@pytest.mark.parametrize(
    ("workers", "profile", "field"),
    [
        ((), PROFILE, "workers"),
        ((Worker(0, HOSTS[0]), Worker(0, HOSTS[1])), PROFILE, "workers[1].rank"),
        ((Worker(-1, HOSTS[0]),), PROFILE, "workers[0].rank"),
        ((Worker(0, HOSTS[0] + "0"),), PROFILE, "workers[0].host"),
        (WORKERS, Profile(-1), "sync_bytes"),
        (WORKERS, Profile(10**400), "sync_bytes"),
        (WORKERS, Profile(compute_s=-0.1), "compute_s"),
        (WORKERS, Profile(compute_s=math.inf), "compute_s"),
        (WORKERS, Profile(compute_s=math.nan), "compute_s"),
        (WORKERS, Profile(overlap=1.5), "overlap"),
        (WORKERS, Profile(overlap=math.nan), "overlap"),
        (WORKERS, Profile(collective="rings"), "collective"),
        (WORKERS, Profile(collective="parameter-server"), "workers"),
    ],
)
def test_refuses_an_attempt_that_cannot_be(tracker: Tracker, workers: tuple[Worker, ...], profile: Profile, field: str) -> None:
    with pytest.raises(InputError) as raised:
        tracker.check(AttemptStarted(9, TRIAL, "second", workers, profile))
    assert raised.value.field == field


def test_an_unknown_host_is_answered_with_the_nearest(tracker: Tracker) -> None:
    workers = (Worker(0, HOSTS[0] + "0"),)
    with pytest.raises(InputError, match=rf"workers\[0\].host: got '{HOSTS[0]}0'.*did you mean '{HOSTS[0]}'"):
        tracker.check(AttemptStarted(9, TRIAL, "second", workers))


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (StudyRegistered(9, ""), "study"),
        (StudyRegistered(9, "s", ""), "run"),
        (StudyRegistered(9, "s", weight=0.0), "weight"),
        (StudyRegistered(9, "s", weight=math.nan), "weight"),
        (StudyRegistered(9, "s", weight=math.inf), "weight"),
        (StudyRegistered(9, "s", rungs=(Rung("r", 1, 1), Rung("r", 1, 1))), "rungs[1].name"),
        (StudyRegistered(9, "s", rungs=(Rung("r", -1, 1),)), "rungs[0].trials"),
        (StudyRegistered(9, "s", rungs=(Rung("r", 10**400, 1),)), "rungs[0].trials"),
        (StudyRegistered(9, "s", rungs=(Rung("r", 1, 0),)), "rungs[0].step"),
        (StageRegistered(9, "vision", "rung\n1"), "stage"),
        (TrialRegistered(9, "vision", ".."), "trial"),
        (TrialRegistered(9, "vision", "u" * 121), "trial"),
        (TrialRegistered(9, "vision", "/" * 41), "trial"),
        (MemberJoined(9, "vision", "", 30.0), "member"),
        (MemberJoined(9, "vision", "m", math.nan), "lease_s"),
        (AttemptStarted(9, TRIAL, "second", WORKERS, step=-1), "step"),
        (TrialRegistered(9, "vision", "u", 0), "budget"),
        (TargetSet(9, TRIAL, 0), "step"),
        (TargetSet(9, TRIAL, MAX_STEPS + 1), "step"),
        (AttemptStarted(9, TRIAL, "", WORKERS), "attempt"),
        (AttemptEnded(9, TRIAL, "first", EndReason.MOVED), "reason"),
        (WorkerAttached(9, TRIAL, 0, Process(1)), "pid"),
        (WorkerAttached(9, TRIAL, 0, Process(70, start=-1)), "start"),
        (Progressed(9, TRIAL, -1), "step"),
        (Progressed(9, TRIAL, 2**64), "step"),
        (TrialEnded(9, TRIAL, TrialStatus.RUNNING), "status"),
        (Planned(9, "beamer", 1, None, 9, {}), "queues"),
        (Planned(9, "beamer", 1, None, 2, {TRIAL: JobPlan(2)}), f"jobs[{TRIAL}].klass"),
    ],
)
def test_refuses_values_that_cannot_be(tracker: Tracker, event: Event, field: str) -> None:
    with pytest.raises(InputError) as raised:
        tracker.check(event)
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (StudyEnded(9, "visio"), "study"),
        (StageRegistered(9, "visio", "rung0"), "study"),
        (StageSealed(9, "vision", "rung1"), "stage"),
        (TrialRegistered(9, "visio", "t"), "study"),
        (TargetSet(9, TRIAL, 9, "rung1"), "stage"),
        (TargetSet(9, "vision/u", 9), "trial"),
        (AttemptStarted(9, "vision/u", "first", WORKERS), "trial"),
        (AttemptEnded(9, TRIAL, "second"), "attempt"),
        (WorkerAttached(9, TRIAL, 2, Process(77)), "rank"),
        (WorkerAttached(9, "vision/u", 0, Process(77)), "trial"),
        (WorkerDetached(9, TRIAL, 7), "rank"),
        (Progressed(9, "vision/u", 1), "trial"),
        (Progressed(9, "", 1), "study"),
        (TrialEnded(9, "visio/t", TrialStatus.KILLED), "study"),
        (FellSilent(9, "visio"), "study"),
        (FellSilent(9, "vision", trial="u"), "trial"),
        (ConnectionsSeen(9, "nobody", ()), "agent"),
        (Planned(9, "beamer", 1, None, 8, {"vision/u": JobPlan(0)}), "trial"),
    ],
)
def test_unknown_names_are_not_found(tracker: Tracker, event: Event, field: str) -> None:
    with pytest.raises(NotFoundError) as raised:
        tracker.check(event)
    assert raised.value.field == field


def test_an_unknown_trial_is_answered_with_the_nearest(tracker: Tracker) -> None:
    with pytest.raises(NotFoundError, match=r"trial: got 'tt', expected a registered trial .did you mean 't'"):
        tracker.check(Progressed(9, TRIAL + "t", 1))


def test_progress_only_goes_forward_and_past_any_target(tracker: Tracker) -> None:
    assert take(tracker, Progressed(5, TRIAL, 0), Progressed(5, TRIAL, 0)) == [True, False], "the attempt began there"
    assert take(tracker, Progressed(5, TRIAL, 3), Progressed(6, TRIAL, 3)) == [True, False]
    with pytest.raises(ConflictError, match="step: got 2, expected at least 3, which its attempt has come to"):
        tracker.check(Progressed(6, TRIAL, 2))
    assert take(tracker, Progressed(7, TRIAL, 30)) == [True], "30 steps where 5 were waited for"
    assert tracker.trials[TRIAL].done == 30


def test_the_first_loss_of_a_step_is_kept_although_the_step_is_known(tracker: Tracker) -> None:
    assert take(tracker, Progressed(5, TRIAL, 3), Progressed(6, TRIAL, 3, 0.5), Progressed(7, TRIAL, 3, 0.5)) == [
        True, True, False,
    ]  # fmt: skip
    assert tracker.trials[TRIAL].loss == 0.5


def test_a_trial_arrives_at_its_target_and_goes_on(tracker: Tracker) -> None:
    take(tracker, StageSealed(5, "vision", "rung0"), Progressed(6, TRIAL, 5))
    stage = tracker.stage("vision", "rung0")
    assert (stage.status, stage.ended_s, stage.sct_s) == (StageStatus.DONE, 6, 4)
    assert tracker.trials[TRIAL].status is TrialStatus.RUNNING
    assert [target.time_s for target in tracker.trials[TRIAL].targets] == [3]


def test_a_promoted_trial_keeps_its_attempt(tracker: Tracker) -> None:
    take(tracker, WorkerAttached(5, TRIAL, 0, Process(70)), ConnectionsSeen(5, AGENTS[0], (SEEN,)))
    take(tracker, StageSealed(5, "vision", "rung0"), Progressed(6, TRIAL, 5))
    take(tracker, StageRegistered(7, "vision", "rung1"), TargetSet(7, TRIAL, 15, "rung1"))
    attempt = tracker.trials[TRIAL].attempt
    assert attempt is not None
    assert (attempt.seq, attempt.ended_s, attempt.processes) == (1, None, {0: Process(70)})
    assert dict(network(tracker).connections) == {AGENTS[0]: (SEEN,)}
    assert network(tracker).snapshot(tracker).remaining.tolist() == [10]


def test_a_moved_or_resized_trial_starts_another_attempt(tracker: Tracker) -> None:
    moved = (Worker(0, HOSTS[1]),)
    take(tracker, WorkerAttached(5, TRIAL, 0, Process(70)))
    assert take(tracker, AttemptStarted(6, TRIAL, "second", moved, Profile(99))) == [True]
    trial = tracker.trials[TRIAL]
    first, second = trial.attempts.values()
    assert (first.reason, first.ended_s, first.processes) == (EndReason.MOVED, 6, {})
    assert (second.seq, second.workers, second.profile.sync_bytes, trial.status) == (2, moved, 99, TrialStatus.RUNNING)
    late = [replace(START, at_s=7), AttemptEnded(7, TRIAL, "first"), AttemptEnded(7, TRIAL, "first", EndReason.LOST)]
    assert take(tracker, *late) == [False] * 3, "what is said of the attempt before comes late"


def test_workers_that_stay_on_their_hosts_stay_attached_over_a_new_attempt(tracker: Tracker) -> None:
    take(tracker, WorkerAttached(5, TRIAL, 0, Process(70, 8)), WorkerAttached(5, TRIAL, 1, Process(71, 8)))
    take(tracker, AttemptStarted(6, TRIAL, "second", (WORKERS[0], Worker(1, HOSTS[0])), PROFILE))
    second = tracker.trials[TRIAL].attempts["second"]
    assert second.processes == {0: Process(70, 8)}
    assert take(tracker, WorkerAttached(7, TRIAL, 0, Process(80, 9)), WorkerAttached(8, TRIAL, 0, Process(70, 8))) == [
        True, False,
    ], "a late repeat of the process before displaces no newer one"  # fmt: skip
    assert take(tracker, WorkerDetached(9, TRIAL, 0, start=8), WorkerDetached(9, TRIAL, 0, start=9)) == [False, True]


def test_another_attempt_needs_another_name(tracker: Tracker) -> None:
    with pytest.raises(ConflictError, match=r"attempt: got 'first', expected a name that no other attempt of vision/t has"):
        tracker.check(replace(START, at_s=9, workers=(Worker(0, HOSTS[1]),)))


def test_a_repeated_start_revives_nothing_that_was_paused_or_lost(tracker: Tracker) -> None:
    for end, status in ((EndReason.PAUSED, TrialStatus.PAUSED), (EndReason.LOST, TrialStatus.LOST)):
        attempt = f"attempt-{end.value}"
        take(tracker, AttemptStarted(5, TRIAL, attempt, WORKERS, PROFILE), AttemptEnded(6, TRIAL, attempt, end))
        take(tracker, FellSilent(7, "vision"), AttemptStarted(8, TRIAL, attempt, WORKERS, PROFILE))
        assert (tracker.trials[TRIAL].status, tracker.studies["vision"].status) == (status, StudyStatus.ACTIVE)


def test_a_lost_attempt_goes_on_when_a_worker_attaches_again(tracker: Tracker) -> None:
    take(tracker, WorkerAttached(5, TRIAL, 0, Process(70)), AttemptEnded(6, TRIAL, "first", EndReason.LOST))
    assert not tracker.running
    assert take(tracker, Progressed(7, TRIAL, 2)) == [True], "reported before its end"
    assert not tracker.running
    assert take(tracker, WorkerAttached(8, TRIAL, 0, Process(71))) == [True]
    assert [running.key for running in tracker.running] == [TRIAL]


def test_what_was_silent_is_taken_up_again(tracker: Tracker) -> None:
    take(tracker, *(FellSilent(5, "vision", **what) for what in ({"trial": "t"}, {"stage": "rung0"}, {})))
    assert network(tracker).views(tracker) == ()
    assert take(tracker, Progressed(6, TRIAL, 0), Progressed(6, TRIAL, 0)) == [True, False]
    (view,) = network(tracker).views(tracker)
    assert [stage.name for stage in view.stages] == ["rung0"]


def test_a_worker_may_start_again_as_another_process(tracker: Tracker) -> None:
    processes = [Process(70, 5), Process(70, 5), Process(70, 6), Process(71, 6)]
    assert take(tracker, *(WorkerAttached(5, TRIAL, 1, process) for process in processes)) == [True, False, True, True]
    attempt = tracker.trials[TRIAL].attempt
    assert attempt is not None
    assert attempt.processes == {1: Process(71, 6)}
    assert take(tracker, WorkerDetached(6, TRIAL, 1), WorkerDetached(7, TRIAL, 1)) == [True, False]


@pytest.mark.parametrize("later", [TrialStatus.FINISHED, TrialStatus.KILLED, TrialStatus.FAILED])
def test_of_two_ends_the_first_stands(tracker: Tracker, later: TrialStatus) -> None:
    take(tracker, TrialEnded(5, TRIAL, TrialStatus.KILLED))
    late = [
        TrialEnded(6, TRIAL, later),
        Progressed(7, TRIAL, 5),
        TargetSet(7, TRIAL, 9),
        WorkerAttached(7, TRIAL, 0, Process(7)),
    ]
    assert take(tracker, *late) == [False] * 4
    trial = tracker.trials[TRIAL]
    assert (trial.status, trial.ended_s, trial.done) == (TrialStatus.KILLED, 5, 0)


def test_a_trial_that_has_ended_is_not_started_again(tracker: Tracker) -> None:
    take(tracker, TrialEnded(5, TRIAL, TrialStatus.KILLED))
    with pytest.raises(ConflictError, match=r"trial: got 'vision/t', expected one that is not killed"):
        tracker.check(AttemptStarted(6, TRIAL, "second", WORKERS))


def test_a_stage_ends_when_sealed_and_every_trial_arrived_or_ended(tracker: Tracker) -> None:
    stage = tracker.stage("vision", "rung0")
    take(tracker, *another("u"), Progressed(5, TRIAL, 5), StageSealed(6, "vision", "rung0"))
    assert (stage.status, stage.sealed_s, stage.missing) == (StageStatus.SEALED, 6, {"u"})
    take(tracker, TrialEnded(7, "vision/u", TrialStatus.KILLED))
    assert (stage.status, stage.ended_s) == (StageStatus.DONE, 7)


def test_a_stage_may_stop_waiting_for_a_trial_that_goes_on(tracker: Tracker) -> None:
    stage = tracker.stage("vision", "rung0")
    take(tracker, StageSealed(5, "vision", "rung0"))
    assert take(tracker, TargetDropped(6, TRIAL, "rung0"), TargetDropped(7, TRIAL, "rung0")) == [True, False]
    assert (stage.status, stage.ended_s, tracker.trials[TRIAL].status) == (StageStatus.DONE, 6, TrialStatus.RUNNING)


def test_a_stage_whose_trials_all_arrived_stays_open_until_sealed(tracker: Tracker) -> None:
    take(tracker, Progressed(5, TRIAL, 5), *another("late"), Progressed(7, "vision/late", 5))
    stage = tracker.stage("vision", "rung0")
    assert stage.status is StageStatus.OPEN
    assert take(tracker, StageSealed(8, "vision", "rung0"), StageSealed(9, "vision", "rung0")) == [True, False]
    assert (stage.status, stage.sealed_s, stage.ended_s) == (StageStatus.DONE, 8, 8)


def test_a_farther_target_in_the_same_stage_is_waited_for(tracker: Tracker) -> None:
    stage = tracker.stage("vision", "rung0")
    take(tracker, StageSealed(5, "vision", "rung0"))
    assert take(tracker, TargetSet(6, TRIAL, 9, "rung0"), TargetSet(6, TRIAL, 7, "rung0")) == [True, False]
    take(tracker, Progressed(7, TRIAL, 5))
    assert stage.status is StageStatus.SEALED
    take(tracker, Progressed(8, TRIAL, 9))
    assert stage.ended_s == 8


def test_sealing_an_empty_stage_ends_it(tracker: Tracker) -> None:
    take(tracker, StageRegistered(4, "vision", "rung1"), StageSealed(5, "vision", "rung1"))
    assert tracker.stage("vision", "rung1").ended_s == 5


def test_nobody_joins_a_sealed_stage(tracker: Tracker) -> None:
    take(tracker, TrialRegistered(4, "vision", "u"), StageSealed(4, "vision", "rung0"))
    assert not tracker.check(TargetSet(5, TRIAL, 5, "rung0"))
    with pytest.raises(ConflictError, match="sealed"):
        tracker.check(TargetSet(5, "vision/u", 5, "rung0"))


def test_milestones_only_move_forward_and_are_timed(tracker: Tracker) -> None:
    take(tracker, TrialRegistered(4, "vision", "m"), AttemptStarted(4, "vision/m", "first", WORKERS, PROFILE))
    assert take(tracker, *(TargetSet(5, "vision/m", step) for step in (3, 3, 9, 3))) == [True, False, True, False]
    take(tracker, Progressed(7, "vision/m", 4), Progressed(11, "vision/m", 9))
    assert [(t.step, t.stage, t.time_s) for t in tracker.trials["vision/m"].targets] == [(3, None, 2), (9, None, 6)]


def test_attempts_are_numbered_for_good_and_spread_over_planes(tracker: Tracker) -> None:
    take(tracker, TrialEnded(5, TRIAL, TrialStatus.KILLED), *another("u"), *another("v"))
    numbers = [attempt.seq for trial in tracker.trials.values() for attempt in trial.attempts.values()]
    assert [(number, FABRIC.plane_of(number)) for number in numbers] == [(1, 0), (2, 1), (3, 0)]


def test_workers_are_kept_by_rank(tracker: Tracker) -> None:
    take(tracker, AttemptStarted(5, TRIAL, "second", WORKERS[::-1], PROFILE))
    assert tracker.trials[TRIAL].attempts["second"].workers == WORKERS


def test_a_clock_that_is_set_back_gives_no_negative_time(tracker: Tracker) -> None:
    take(tracker, StageSealed(3600, "vision", "rung0"), Progressed(1, TRIAL, 5))
    stage = tracker.stage("vision", "rung0")
    assert (stage.ended_s, stage.sct_s, tracker.now_s) == (3600, 3598, 3600)


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


@pytest.mark.parametrize(
    "event",
    [
        TrialEnded(6, TRIAL, TrialStatus.FINISHED),
        AttemptEnded(6, TRIAL, "first"),
        AttemptEnded(6, TRIAL, "first", EndReason.LOST),
        FellSilent(6, "vision", trial="t"),
        StudyEnded(6, "vision"),
    ],
)
def test_connections_of_trials_that_do_not_run_are_dropped(tracker: Tracker, event: Event) -> None:
    take(tracker, ConnectionsSeen(5, AGENTS[0], (SEEN,)), event)
    assert not network(tracker).connections
    assert not tracker.check(ConnectionsSeen(7, AGENTS[0], (SEEN,)))


def test_decisions_only_go_forward(tracker: Tracker) -> None:
    first = Planned(4, "beamer", 1, {"order": [TRIAL]}, 8, {TRIAL: JobPlan(0)})
    assert take(tracker, first, first) == [True, False]
    assert take(tracker, replace(first, at_s=5)) == [False], "the same, stamped by a clock that was ahead"
    with pytest.raises(ConflictError):
        tracker.check(replace(first, jobs={}))
    assert take(tracker, replace(first, at_s=6, generation=2)) == [True]
    last = network(tracker).decision
    assert last is not None
    assert last.generation == 2


def test_a_snapshot_holds_what_is_still_to_come(tracker: Tracker) -> None:
    take(tracker, *another("u"), TrialEnded(5, "vision/u", TrialStatus.FINISHED))
    take(tracker, Progressed(6, TRIAL, 2), StudyRegistered(7, "idle"))
    (study,) = network(tracker).views(tracker)
    later = (LaterRung("rung1", 1, 10),)
    assert (study.name, study.weight, study.later) == ("vision", 2.0, later)
    (job,) = study.stages[0].jobs
    assert (job.key, job.remaining, job.plane, job.started_s) == (TRIAL, 3, 0, 4)
    snapshot = network(tracker).snapshot(tracker)
    assert [(s.name, s.weight, s.later) for s in snapshot.studies] == [("vision", 2.0, later)]
    assert (snapshot.stages, snapshot.jobs.key, snapshot.remaining.tolist()) == (("vision/rung0",), (TRIAL,), [3])
    assert snapshot.jobs.started_s.tolist() == [4.0]
    take(tracker, StageSealed(8, "vision", "rung0"), TrialEnded(9, TRIAL, TrialStatus.FINISHED))
    assert network(tracker).views(tracker)[0].stages == ()
    assert network(tracker).snapshot(tracker).jobs.key == ()
    take(tracker, StageRegistered(10, "vision", "rung1"), StageSealed(11, "vision", "rung1"))
    assert network(tracker).views(tracker) == ()


RUNGS = (Rung("r", 0, 3), Rung("s", 0, 9))


@pytest.mark.parametrize(
    ("rungs", "budget", "milestone", "remaining"),
    [
        (RUNGS, None, 3, 7),  # to the top rung, not to the next one
        (RUNGS, 81, 3, 79),
        ((), None, 5, 3),  # nothing else is known
        ((), None, None, 2),  # nothing at all is: as many as are done
    ],
)
def test_a_trial_without_a_barrier_is_waited_for_alone_until_it_completes(
    rungs: tuple[Rung, ...], budget: int | None, milestone: int | None, remaining: int
) -> None:
    tracker = Tracker(NetworkLedger(FABRIC))
    take(tracker, StudyRegistered(1, "s", rungs=rungs, barriers=False), TrialRegistered(2, "s", "t", budget))
    take(tracker, AttemptStarted(2, "s/t", "1", WORKERS, PROFILE), Progressed(3, "s/t", 2))
    if milestone is not None:
        take(tracker, TargetSet(4, "s/t", milestone))
    (study,) = network(tracker).views(tracker)
    assert study.later == ()
    (stage,) = study.stages
    assert (stage.barrier, [(job.key, job.remaining) for job in stage.jobs]) == (False, [("s/t", remaining)])


@pytest.mark.parametrize(("done", "left"), [(4, 1), (5, 1), (6, 0)])
def test_a_trial_that_goes_on_beyond_its_barrier_has_nothing_left_that_is_waited_for(
    tracker: Tracker, done: int, left: int
) -> None:
    take(tracker, *another("u"), TrialRegistered(5, "vision", "t", 81), Progressed(6, TRIAL, done))
    (study,) = network(tracker).views(tracker)
    assert [(stage.name, [job.remaining for job in stage.jobs]) for stage in study.stages] == [("rung0", [left, 5])]


def test_trials_whose_stage_is_done_count_together_until_they_leave(tracker: Tracker) -> None:
    """Ten processes that take their time to leave do not take ten classes."""
    take(tracker, *another("u"), StageSealed(5, "vision", "rung0"), Progressed(6, TRIAL, 5), Progressed(6, "vision/u", 5))
    assert tracker.stage("vision", "rung0").status is StageStatus.DONE
    (study,) = network(tracker).views(tracker)
    assert [(stage.name, [job.remaining for job in stage.jobs]) for stage in study.stages] == [("rung0", [1, 1])]


def test_a_class_is_of_an_attempt(tracker: Tracker) -> None:
    take(tracker, Planned(5, "beamer", 1, None, 8, {TRIAL: JobPlan(3)}))
    assert network(tracker).snapshot(tracker).klass.tolist() == [3]
    take(tracker, AttemptStarted(6, TRIAL, "second", WORKERS, PROFILE))
    assert network(tracker).snapshot(tracker).klass.tolist() == [-1]


def test_records_cannot_be_replaced_from_outside(tracker: Tracker) -> None:
    for records in (tracker.trials, tracker.studies, network(tracker).connections):
        with pytest.raises(TypeError):
            records["x"] = None  # type: ignore[index]


def test_trackers_of_different_knowledge_differ(tracker: Tracker) -> None:
    assert tracker != Tracker(NetworkLedger(FABRIC))
    assert Tracker(NetworkLedger(FABRIC)) != Tracker(NetworkLedger(star(3)))
