"""What a ledger remembers of studies between decisions must be what it would find anew."""

from dataclasses import fields
from random import Random
from typing import Any

import numpy as np
import pytest

from beamer.errors import ConflictError, InputError, NotFoundError
from beamer.network.events import Measured, Planned
from beamer.network.forecasts import Point
from beamer.network.ledger import NetworkLedger
from beamer.network.plan import JobPlan
from beamer.network.snapshot import Snapshot
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
)
from beamer.studies.model import UNKNOWN, EndReason, Process, Profile, Rung, TrialStatus, Worker
from beamer.studies.tracker import Tracker
from beamer.testing.fabrics import star
from tests.support.tiers import long

FABRIC = star(4)
STUDIES = ("a", "b", "c")
TRIALS = ("x", "y", "z")
STAGES = ("r1", "r2")
EVENTS, RUN = 3_000, 300  # all, and of one run of the studies
EVENTS_PER_S = 200  # so that more forecasts are due than are made at once


def forecast(losses: tuple[Point, ...]) -> float | None:
    """Return a step that changes with every new point."""
    return losses[-1][0] * 2 if losses else None


def drawn(rng: Random, number: int) -> Event:
    """Draw an event, legal or not."""
    at_s, generation = number / EVENTS_PER_S, number + 1
    study, trial, stage = rng.choice(STUDIES), rng.choice(TRIALS), rng.choice(STAGES)
    key, attempt = f"{study}/{trial}", rng.choice("12")
    workers = tuple(Worker(rank, f"h{rng.randrange(1, 5)}") for rank in range(rng.choice((1, 2, 3))))
    profile = rng.choice((UNKNOWN, Profile(600_000), Profile(100_000, "ring", 0.5, 0.5)))
    rungs = rng.choice(((), (Rung("r1", 4, 3), Rung("r2", 9, 1))))
    run, jobs = f"run{number // RUN}", {key: JobPlan(rng.randrange(8), rng.choice((None, 1_000_000)))}
    step = number % RUN + rng.randrange(1, 20)
    events = {
        StudyRegistered(at_s, study, run, rng.choice((1.0, 2.0)), rungs, barriers=rng.random() < 0.7): 4,
        TrialRegistered(at_s, study, trial, rng.choice((None, None, 2 * RUN))): 8,
        StageRegistered(at_s, study, stage): 2,
        StageSealed(at_s, study, stage): 0.5,
        AttemptStarted(at_s, key, attempt, workers, profile): 12,
        AttemptEnded(at_s, key, attempt, rng.choice((EndReason.PAUSED, EndReason.LOST))): 3,
        TargetSet(at_s, key, step, rng.choice((None, None, *STAGES))): 4,
        TargetDropped(at_s, key): 1,
        Progressed(at_s, key, step, rng.choice((None, rng.random()))): 20,
        WorkerAttached(at_s, key, 0, Process(rng.randrange(2, 5))): 2,
        Measured(at_s, key, attempt, rng.choice((None, 1e5, 1e6)), 0.5, rng.choice((None, 1.0))): 6,
        TrialEnded(at_s, key, rng.choice((TrialStatus.FINISHED, TrialStatus.FAILED))): 0.3,
        FellSilent(at_s, study, None, trial): 1,
        StudyEnded(at_s, study): 0.1,
    }
    planned = Planned(at_s, "fifo", generation, None, 8, jobs)
    return rng.choices((planned, *events), (6, *events.values()))[0]


def assert_equal(found: Any, expected: Any) -> None:
    """Compare columns field by field."""
    for one in fields(expected):
        ours, theirs = getattr(found, one.name), getattr(expected, one.name)
        if isinstance(theirs, np.ndarray):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs, one.name)
        elif hasattr(theirs, "__dataclass_fields__"):
            assert_equal(ours, theirs)
        elif one.name == "studies":
            assert [vars(study) for study in ours] == [vars(study) for study in theirs]
        else:
            assert ours == theirs, one.name


def anew(tracker: Tracker, ledger: NetworkLedger) -> Snapshot:
    """Return the columns of views that are made for them alone."""
    return Snapshot.of(FABRIC, ledger.views(tracker), ledger.footprints)


@pytest.mark.parametrize("seed", [0, *long(*range(1, 6))])
def test_a_snapshot_is_what_all_studies_would_give_anew(seed: int) -> None:
    rng, ledger = Random(seed), NetworkLedger(FABRIC, forecast)
    tracker = Tracker(ledger)
    taken = most = 0
    for number in range(EVENTS):
        event = drawn(rng, number)
        try:
            if not tracker.check(event):
                continue
        except (InputError, NotFoundError, ConflictError):
            continue
        tracker.apply(event)
        taken += 1
        found = ledger.snapshot(tracker)
        most = max(most, len(found.jobs.key))
        assert_equal(found, anew(tracker, ledger))
    assert taken > EVENTS / 4
    assert most > 3


def test_jobs_that_are_left_out_are_there_again_in_the_next_snapshot() -> None:
    ledger = NetworkLedger(FABRIC)
    tracker = Tracker(ledger)
    workers = (Worker(0, "h1"), Worker(1, "h2"))
    for study in ("a", "b"):
        tracker.apply(StudyRegistered(0.0, study, barriers=False))
        for trial in ("x", "y"):
            tracker.apply(TrialRegistered(0.0, study, trial))
            tracker.apply(AttemptStarted(0.0, f"{study}/{trial}", "1", workers, Profile(1_000)))
    everything = ("a/x", "a/y", "b/x", "b/y")
    assert ledger.snapshot(tracker).jobs.key == everything
    assert ledger.snapshot(tracker, {"a/y"}).jobs.key == ("a/x", "b/x", "b/y")
    without = ledger.snapshot(tracker, {"b/x", "b/y"})
    assert (without.jobs.key, [study.name for study in without.studies]) == (("a/x", "a/y"), ["a"])
    assert ledger.snapshot(tracker).jobs.key == everything
