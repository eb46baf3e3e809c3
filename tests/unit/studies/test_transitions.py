"""Every cell of the tables of transitions, through the tracker: what takes effect, what is late, what is refused."""

from itertools import product

import pytest

from beamer.errors import ConflictError, InputError
from beamer.studies.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    FellSilent,
    Progressed,
    StageRegistered,
    StageSealed,
    StudyEnded,
    StudyRegistered,
    TargetSet,
    TrialEnded,
    TrialRegistered,
    WorkerAttached,
    WorkerDetached,
)
from beamer.studies.model import EndReason, Process, StageStatus, StudyStatus, TrialStatus, Worker
from beamer.studies.tracker import Tracker
from beamer.studies.transitions import (
    STAGE_TRANSITIONS,
    STUDY_TRANSITIONS,
    TRIAL_TRANSITIONS,
    NoTransition,
    StageInput,
    StudyInput,
    TrialInput,
)

TRIAL = "s/t"
WORKERS = (Worker(0, "h1"),)
START = AttemptStarted(2, TRIAL, "first", WORKERS)
ATTACH = WorkerAttached(3, TRIAL, 0, Process(77))

TRIAL_HISTORY: dict[TrialStatus, tuple[Event, ...]] = {
    TrialStatus.WAITING: (),
    TrialStatus.RUNNING: (START, ATTACH),
    TrialStatus.PAUSED: (START, ATTACH, AttemptEnded(4, TRIAL, "first")),
    TrialStatus.LOST: (START, ATTACH, AttemptEnded(4, TRIAL, "first", EndReason.LOST)),
    TrialStatus.SILENT: (START, ATTACH, FellSilent(4, "s", trial="t")),
    TrialStatus.FINISHED: (START, ATTACH, TrialEnded(4, TRIAL, TrialStatus.FINISHED)),
    TrialStatus.KILLED: (START, ATTACH, TrialEnded(4, TRIAL, TrialStatus.KILLED)),
    TrialStatus.FAILED: (START, ATTACH, TrialEnded(4, TRIAL, TrialStatus.FAILED)),
}
TRIAL_EVENTS: dict[TrialInput, Event] = {
    TrialInput.REGISTER: TrialRegistered(9, "s", "t", budget=50),
    TrialInput.TARGET: TargetSet(9, TRIAL, 40),
    TrialInput.START: AttemptStarted(9, TRIAL, "second", WORKERS),
    TrialInput.ATTACH: WorkerAttached(9, TRIAL, 0, Process(78)),
    TrialInput.DETACH: WorkerDetached(9, TRIAL, 0),
    TrialInput.PROGRESS: Progressed(9, TRIAL, 5),
    TrialInput.PAUSE: AttemptEnded(9, TRIAL, "first"),
    TrialInput.LOSE: AttemptEnded(9, TRIAL, "first", EndReason.LOST),
    TrialInput.SILENCE: FellSilent(9, "s", trial="t"),
    TrialInput.FINISH: TrialEnded(9, TRIAL, TrialStatus.FINISHED),
    TrialInput.KILL: TrialEnded(9, TRIAL, TrialStatus.KILLED),
    TrialInput.FAIL: TrialEnded(9, TRIAL, TrialStatus.FAILED),
}
STAGE_HISTORY: dict[StageStatus, tuple[Event, ...]] = {
    StageStatus.OPEN: (),
    StageStatus.SEALED: (StageSealed(3, "s", "r"),),
    StageStatus.SILENT: (FellSilent(3, "s", stage="r"),),
    StageStatus.SEALED_SILENT: (StageSealed(3, "s", "r"), FellSilent(3, "s", stage="r")),
    StageStatus.DONE: (StageSealed(3, "s", "r"), TrialEnded(3, TRIAL, TrialStatus.KILLED)),
}
STAGE_EVENTS: dict[StageInput, Event] = {
    StageInput.REGISTER: StageRegistered(9, "s", "r"),
    StageInput.JOIN: TargetSet(9, "s/u", 10, "r"),
    StageInput.SEAL: StageSealed(9, "s", "r"),
    StageInput.HEAR: Progressed(9, TRIAL, 5),
    StageInput.SILENCE: FellSilent(9, "s", stage="r"),
    StageInput.COMPLETE: Progressed(9, TRIAL, 10),
}


def tracked(*events: Event) -> Tracker:
    tracker = Tracker()
    for event in (StudyRegistered(1, "s"), *events):
        assert tracker.check(event), event
        tracker.apply(event)
    return tracker


STUDY_HISTORY: dict[StudyStatus, tuple[Event, ...]] = {
    StudyStatus.ACTIVE: (),
    StudyStatus.SILENT: (FellSilent(3, "s"),),
    StudyStatus.ENDED: (StudyEnded(3, "s"),),
}
STUDY_EVENTS: dict[StudyInput, Event] = {
    StudyInput.REGISTER: StudyRegistered(9, "s"),
    StudyInput.ADD: StageRegistered(9, "s", "r"),
    StudyInput.HEAR: TrialRegistered(9, "s", "t"),
    StudyInput.SILENCE: FellSilent(9, "s"),
    StudyInput.END: StudyEnded(9, "s"),
}


@pytest.mark.parametrize(("what", "status"), list(product(StudyInput, StudyStatus)))
def test_a_study_does_what_the_table_says(what: StudyInput, status: StudyStatus) -> None:
    tracker = tracked(TrialRegistered(1, "s", "t"), *STUDY_HISTORY[status])
    study = tracker.study("s")
    assert study.status is status
    event, outcome = STUDY_EVENTS[what], STUDY_TRANSITIONS[what][status]
    if outcome is NoTransition.REFUSED:
        with pytest.raises(ConflictError, match=r"another run of (s|it)"):
            tracker.check(event)
    elif tracker.check(event):
        tracker.apply(event)
    assert study.status is (status if isinstance(outcome, NoTransition) else outcome)


def test_the_tables_are_whole() -> None:
    assert TRIAL_TRANSITIONS.keys() == set(TrialInput) == TRIAL_EVENTS.keys()
    assert all(row.keys() == set(TrialStatus) == TRIAL_HISTORY.keys() for row in TRIAL_TRANSITIONS.values())
    assert STUDY_TRANSITIONS.keys() == set(StudyInput) == STUDY_EVENTS.keys()
    assert all(row.keys() == set(StudyStatus) == STUDY_HISTORY.keys() for row in STUDY_TRANSITIONS.values())
    assert STAGE_TRANSITIONS.keys() == set(StageInput) == STAGE_EVENTS.keys()
    assert all(row.keys() == set(StageStatus) == STAGE_HISTORY.keys() for row in STAGE_TRANSITIONS.values())


@pytest.mark.parametrize(("what", "status"), list(product(TrialInput, TrialStatus)))
def test_a_trial_does_what_the_table_says(what: TrialInput, status: TrialStatus) -> None:
    tracker = tracked(TrialRegistered(1, "s", "t"), *TRIAL_HISTORY[status])
    trial = tracker.trial(TRIAL)
    assert trial.status is status
    event, outcome = TRIAL_EVENTS[what], TRIAL_TRANSITIONS[what][status]
    if outcome is NoTransition.REFUSED:
        with pytest.raises(InputError) as raised:
            tracker.check(event)
        assert status is TrialStatus.WAITING or isinstance(raised.value, ConflictError)
    elif outcome is NoTransition.LATE:
        assert not tracker.check(event)
    else:
        assert tracker.check(event) or what is TrialInput.DETACH  # of a worker whose process is forgotten
        tracker.apply(event)
        assert trial.status is outcome
    if isinstance(outcome, NoTransition):
        assert trial.status is status


@pytest.mark.parametrize(("what", "status"), list(product(StageInput, StageStatus)))
def test_a_stage_does_what_the_table_says(what: StageInput, status: StageStatus) -> None:
    tracker = tracked(
        StageRegistered(1, "s", "r"),
        TrialRegistered(1, "s", "t"),
        TrialRegistered(1, "s", "u"),
        TargetSet(2, TRIAL, 10, "r"),
        *STAGE_HISTORY[status],
    )
    stage = tracker.stage("s", "r")
    assert stage.status is status
    before = status
    if what is StageInput.COMPLETE:  # the report of the last arrival is heard first
        heard = STAGE_TRANSITIONS[StageInput.HEAR][status]
        before = status if isinstance(heard, NoTransition) else heard
    event, outcome = STAGE_EVENTS[what], STAGE_TRANSITIONS[what][before]
    if outcome is NoTransition.REFUSED:
        with pytest.raises(ConflictError, match="no further trial may join"):
            tracker.check(event)
        return
    if tracker.check(event):
        tracker.apply(event)
    expected = before if isinstance(outcome, NoTransition) else outcome
    assert stage.status is expected


def test_a_silent_stage_that_was_sealed_is_sealed_again_and_can_end() -> None:
    tracker = tracked(
        StageRegistered(1, "s", "r"), TrialRegistered(1, "s", "t"), TrialRegistered(1, "s", "u"),
        TargetSet(2, TRIAL, 10, "r"), StageSealed(3, "s", "r"), FellSilent(4, "s", stage="r"),
    )  # fmt: skip
    stage = tracker.stage("s", "r")
    with pytest.raises(ConflictError):
        tracker.check(TargetSet(5, "s/u", 10, "r"))
    tracker.apply(Progressed(6, TRIAL, 4))
    assert stage.status is StageStatus.SEALED
    tracker.apply(FellSilent(7, "s", stage="r"))
    tracker.apply(Progressed(8, TRIAL, 10))
    assert (stage.status, stage.sct_s) == (StageStatus.DONE, 7)
