"""The tracker under reports in any order, and from a journal that is cut anywhere."""

import copy
import json
import math
import random
from contextlib import closing, suppress
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beamer.errors import ConflictError, InputError, NotFoundError
from beamer.network.connection import Connection
from beamer.network.events import ConnectionsChanged, ConnectionsSeen, Measured, PlanChanged, Planned
from beamer.network.ledger import NetworkLedger
from beamer.network.plan import JobPlan
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
    TargetDropped,
    TargetSet,
    TrialEnded,
    TrialRegistered,
    WorkerAttached,
    WorkerDetached,
    study_of,
)
from beamer.studies.journal.store import Journal
from beamer.studies.model import (
    EndReason,
    Process,
    Profile,
    Role,
    Rung,
    StageStatus,
    TrialStatus,
    Worker,
    trial_key,
)
from beamer.studies.tracker import Tracker
from tests.support.tracked import AGENTS, FABRIC, HOSTS, PROFILE, START, STUDY, TRIAL, WORKERS, network, take

TUNER: tuple[Event, ...] = (
    TargetSet(4, "vision/u", 5, "rung0"),
    StageSealed(5, "vision", "rung0"),
    StageRegistered(6, "vision", "rung1"),
    TargetSet(6, "vision/u", 15, "rung1"),
    StageSealed(7, "vision", "rung1"),
    TrialEnded(8, TRIAL, TrialStatus.KILLED),
)
TRAINERS: tuple[tuple[Event, ...], ...] = (
    (*(Progressed(4 + step, TRIAL, step) for step in range(1, 7)),),
    (*(Progressed(4 + step, "vision/u", step) for step in (2, 5, 9, 15)), AttemptEnded(30, "vision/u", "first")),
)


@given(rng=st.randoms(use_true_random=False))
@settings(deadline=None)
def test_reports_of_several_processes_may_come_in_any_order_and_twice(rng: random.Random) -> None:
    """Whatever overtakes what, and however often it is repeated, the same is known in the end."""
    tracker = Tracker(NetworkLedger(FABRIC))
    take(tracker, STUDY, StageRegistered(2, "vision", "rung0"), TrialRegistered(3, "vision", "t"))
    take(tracker, TargetSet(3, TRIAL, 5, "rung0"), START, TrialRegistered(3, "vision", "u"))
    take(tracker, AttemptStarted(4, "vision/u", "first", WORKERS, PROFILE))
    waiting = [list(TUNER), *(list(events) for events in TRAINERS)]
    sent: list[Event] = []
    while any(waiting):
        source = rng.choice([events for events in waiting if events])
        sent.append(source.pop(0))
        take(tracker, replace(sent[-1], at_s=20.0))
        for event in sent[-3:]:
            if rng.random() < 0.2:
                with suppress(ConflictError):  # An earlier step than the last one is refused.
                    take(tracker, replace(event, at_s=20.0))
    stages = {name: stage.status for name, stage in tracker.studies["vision"].stages.items()}
    assert stages == {"rung0": StageStatus.DONE, "rung1": StageStatus.DONE}
    trials = {trial.name: (trial.status, trial.done) for trial in tracker.trials.values()}
    assert trials["u"] == (TrialStatus.PAUSED, 15)
    assert trials["t"][0] is TrialStatus.KILLED
    assert not tracker.running


_studies = st.sampled_from(("a", "b"))
_stages = st.sampled_from(("r0", "r1"))
_names = st.sampled_from(("x", "y"))
_keys = st.builds(trial_key, _studies, _names)
_attempts = st.sampled_from(("1", "2"))
_ranks = st.integers(0, 2)
_times = st.floats(0, 1e10)
_workers = st.lists(
    st.builds(Worker, _ranks, st.sampled_from(HOSTS), st.sampled_from(Role)), min_size=1, max_size=3, unique_by=lambda w: w.rank
)
_profiles = st.builds(
    Profile,
    st.none() | st.integers(0, 10**15),
    st.sampled_from(("ring", "parameter-server")),
    st.none() | st.floats(0, 1e6),
    st.floats(0, 1),
)
_processes = st.builds(Process, st.integers(2, 4), st.integers(0, 2), st.integers(0, 2), st.none() | st.just(0), st.booleans())
_connections = st.builds(Connection, _keys, _ranks, st.just("10.0.0.1"), st.integers(1, 3), st.just("10.0.0.2"), st.just(9))
_plans = st.dictionaries(_keys, st.builds(JobPlan, st.integers(0, 7), st.none() | st.integers(1, 10**11)), max_size=2)
_json = st.dictionaries(st.text(max_size=3), st.lists(st.floats(0, 1) | st.none(), max_size=2), max_size=2)
_events: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        StudyRegistered, _times, _studies, st.sampled_from(("1", "1", "2")), st.sampled_from((1.0, 0.1)),
        st.sampled_from(((), (Rung("r0", 2, 2), Rung("r1", 0, 4)))), st.booleans(),
    ),
    st.builds(StudyEnded, _times, _studies),
    st.builds(StageRegistered, _times, _studies, _stages),
    st.builds(StageSealed, _times, _studies, _stages),
    st.builds(TrialRegistered, _times, _studies, _names, st.none() | st.integers(1, 9)),
    st.builds(TargetSet, _times, _keys, st.integers(1, 6), st.none() | _stages),
    st.builds(TargetDropped, _times, _keys, st.none() | _stages),
    st.builds(AttemptStarted, _times, _keys, _attempts, _workers.map(tuple), _profiles),
    st.builds(AttemptEnded, _times, _keys, _attempts, st.sampled_from((EndReason.PAUSED, EndReason.LOST))),
    st.builds(WorkerAttached, _times, _keys, _ranks, _processes),
    st.builds(WorkerDetached, _times, _keys, _ranks),
    st.builds(Progressed, _times, _keys, st.integers(0, 7), st.none() | st.floats(0, 1) | st.just(math.inf)),
    st.builds(TrialEnded, _times, _keys, st.sampled_from([status for status in TrialStatus if status.is_finished])),
    st.builds(FellSilent, _times, _studies, st.none() | _stages, st.none() | _names),
    st.builds(ConnectionsSeen, _times, st.sampled_from(AGENTS), st.lists(_connections, max_size=3).map(tuple)),
    st.builds(
        ConnectionsChanged, _times, st.sampled_from(AGENTS), st.lists(_connections, max_size=3).map(tuple),
        st.lists(_connections, max_size=3).map(tuple),
    ),
    st.builds(
        Measured, _times, _keys, _attempts, st.none() | st.floats(1, 1e6), st.floats(0, 9), st.floats(0, 9),
    ),
    st.builds(Measured, _times, _keys, _attempts, st.none(), st.none(), st.none()),
    st.builds(Planned, _times, st.just("beamer"), st.integers(1, 5), _json, st.integers(1, 8), _plans),
    st.builds(
        PlanChanged, _times, st.just("beamer"), st.integers(1, 5), st.none() | st.builds(lambda v: {"value": v}, _json),
        st.integers(0, 5), st.integers(1, 8), _plans, st.lists(_keys, max_size=2).map(tuple),
    ),
)  # fmt: skip
# Everything registered first, in half of the cases, so that most of what follows is legal.
_STARTED: list[Event] = [
    *(StudyRegistered(0, study) for study in "ab"),
    *(StageRegistered(0, study, "r0") for study in "ab"),
    *(TrialRegistered(0, study, name) for study in "ab" for name in "xy"),
    *(TargetSet(0, f"{study}/{name}", 2, "r0") for study in "ab" for name in "xy"),
    *(AttemptStarted(0, f"{study}/{name}", "0", WORKERS) for study in "ab" for name in "xy"),
]


@example(started=_STARTED, drawn=[StudyRegistered(0, "a", "2"), StudyEnded(0, "a")], cut=1)
@example(started=[], drawn=[Planned(0, "beamer", number, {}, 1, {}) for number in (1, 2)], cut=1)
@example(started=_STARTED, drawn=[WorkerAttached(0, "a/x", 1, Process(3)), AttemptStarted(0, "a/x", "1", WORKERS[:1])], cut=1)
@given(started=st.sampled_from(([], _STARTED)), drawn=st.lists(_events, max_size=25), cut=st.floats(0, 1))
@settings(deadline=None, max_examples=40)
def test_its_journal_rebuilds_it_and_may_be_cut_anywhere(
    tmp_path_factory: pytest.TempPathFactory, started: list[Event], drawn: list[Event], cut: float
) -> None:
    tracker = Tracker(NetworkLedger(FABRIC))
    with closing(Journal(f"sqlite:///{tmp_path_factory.mktemp('journal')}/events.db")) as journal:
        states = _take_legal(tracker, journal, [*started, *drawn])
        written = list(journal.replay())
        rebuilt = Tracker(NetworkLedger(FABRIC))
        for event in written:
            assert rebuilt.check(event)
            rebuilt.apply(event)
    assert rebuilt == tracker
    assert network(rebuilt).views(rebuilt) == network(tracker).views(tracker)
    restarted = Tracker(NetworkLedger(FABRIC))  # from a journal that was cut, upon which everybody repeats everything
    kept = round(cut * len(written))
    for event in written[:kept]:
        restarted.apply(event)
    assert restarted == states[kept], "the state that it was in when it had written so much"
    restarted = _restored(restarted)
    assert restarted == states[kept], "from a snapshot"
    refused = set()  # studies that have ended meanwhile, so that what is registered in them again stays unknown
    for event in written:
        try:
            take(restarted, event)
        except ConflictError:
            if isinstance(event, StageRegistered | TrialRegistered):
                refused.add(event.study)
        except NotFoundError as error:
            if study_of(event) not in refused and error.field != "rank":  # of an attempt before, which had more of them
                raise
    _check_consistency(restarted)
    _check_consistency(tracker)


def _restored(tracker: Tracker) -> Tracker:
    restored = Tracker(NetworkLedger(FABRIC))
    restored.restore(json.loads(json.dumps(tracker.state())))
    return restored


def _check_consistency(tracker: Tracker) -> None:
    running = [trial.key for trial in tracker.trials.values() if trial.status is TrialStatus.RUNNING]
    assert sorted(trial.key for trial in tracker.running) == sorted(running)
    for study in tracker.studies.values():
        for stage in study.stages.values():
            missing = {
                name
                for name in stage.targets
                if any(target.stage == stage.name for target in study.trials[name].unreached)
            }  # fmt: skip
            assert stage.missing == missing
            assert (stage.status is StageStatus.DONE) == (stage.ended_s is not None)
            if stage.status in (StageStatus.OPEN, StageStatus.SEALED):
                assert (stage.status is StageStatus.SEALED) == (stage.sealed_s is not None)
            if stage.sealed_s is not None and not stage.status.is_silent:
                assert (stage.status is StageStatus.DONE) == (not missing)
        for trial in study.trials.values():
            assert all(target.step > trial.done for target in trial.unreached)
            assert (trial.ended_s is not None) == trial.status.is_finished
            for attempt in trial.attempts.values():
                present = attempt is trial.attempt and trial.status is TrialStatus.RUNNING
                assert (attempt.ended_s is None) == present


def _take_legal(tracker: Tracker, journal: Journal, events: list[Event]) -> list[Tracker]:
    """Take and journal what is legal; return the states before the first of it and after each."""
    states = [copy.deepcopy(tracker)]
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
            states.append(copy.deepcopy(tracker))
    return states
