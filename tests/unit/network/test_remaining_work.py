"""What running trials are waited for, from the model of studies to classes: barriers, budgets, milestones."""

import math
from random import Random

import numpy as np
import pytest

from beamer.network.decide import decide, waited_for_first
from beamer.network.ledger import NetworkLedger
from beamer.network.policies import NETWORK_POLICIES, Tier, network_policy
from beamer.network.snapshot import Snapshot
from beamer.network.work import remaining_work
from beamer.studies.events import (
    AttemptStarted,
    Event,
    Progressed,
    StageRegistered,
    StudyRegistered,
    TargetSet,
    TrialRegistered,
)
from beamer.studies.model import Profile, Rung, Worker
from beamer.studies.tracker import Tracker
from beamer.testing.fabrics import star

PAIR = (Worker(0, "h1"), Worker(1, "h2"))
PROFILE = Profile(sync_bytes=100_000)
RUNGS = (Rung("rung0", 0, 2), Rung("rung1", 0, 6), Rung("rung2", 0, 18))


def tracked(*events: Event) -> Tracker:
    tracker = Tracker(NetworkLedger(star(4)))
    for event in events:
        if tracker.check(event):
            tracker.apply(event)
    return tracker


def running(study: str, trial: str, done: int = 0, *, budget: int | None = None, milestone: int | None = None) -> list[Event]:
    """A trial that has run so far; its milestone, if it has one, is set when it starts."""
    key = f"{study}/{trial}"
    events: list[Event] = [TrialRegistered(1, study, trial, budget)]
    if milestone is not None:
        events.append(TargetSet(1, key, milestone))
    return [*events, AttemptStarted(2, key, "a", PAIR, PROFILE), Progressed(3, key, done)]


def snapshot(tracker: Tracker) -> Snapshot:
    ledger = tracker.ledgers[0]
    assert isinstance(ledger, NetworkLedger)
    return ledger.snapshot(tracker)


def left(tracker: Tracker) -> dict[str, int]:
    now = snapshot(tracker)
    return dict(zip(now.jobs.key, now.remaining.tolist(), strict=True))


def classes(tracker: Tracker, policy: str = "beamer") -> dict[str, int]:
    chosen = network_policy(policy)
    _, plan, _ = decide(chosen, 8)(chosen.initial(), snapshot(tracker), 4.0, Random(0))
    return {key: job.klass for key, job in plan.jobs.items()}


ASHA = [StudyRegistered(0, "asha", rungs=RUNGS, barriers=False)]


@pytest.mark.parametrize("declared", [True, False], ids=["rungs declared", "milestones alone"])
def test_promoted_trials_go_before_those_that_have_just_begun(declared: bool) -> None:
    tracker = tracked(
        *(ASHA if declared else [StudyRegistered(0, "asha", barriers=False)]),
        *running("asha", "fresh", milestone=2),
        *running("asha", "once", 2, milestone=6),
        *running("asha", "twice", 6, milestone=18),
    )
    assert left(tracker) == {"asha/fresh": 18, "asha/once": 16, "asha/twice": 12}
    found = classes(tracker)
    assert found["asha/twice"] < found["asha/once"] < found["asha/fresh"]


def test_a_budget_counts_before_the_rungs_and_a_milestone_beyond_it_before_both() -> None:
    tracker = tracked(
        *ASHA, *running("asha", "a", 4, budget=9), *running("asha", "b", 4, budget=9, milestone=30), *running("asha", "c", 4)
    )
    assert left(tracker) == {"asha/a": 5, "asha/b": 26, "asha/c": 14}


def test_of_what_nothing_is_known_what_has_lasted_long_is_expected_to_last_long() -> None:
    tracker = tracked(StudyRegistered(0, "s"), *running("s", "a", 7), *running("s", "b"))
    assert left(tracker) == {"s/a": 7, "s/b": 1}


def test_a_barrier_ahead_counts_before_everything_else() -> None:
    tracker = tracked(
        StudyRegistered(0, "s", rungs=RUNGS),
        StageRegistered(0, "s", "rung0"),
        *running("s", "a", 1, budget=81, milestone=40),
        TargetSet(3, "s/a", 2, "rung0"),
    )
    assert left(tracker) == {"s/a": 1}


def test_a_trial_that_has_arrived_stays_in_its_stage() -> None:
    """Until it is given another target: its processes have not left, and its stage waits for them."""
    tracker = tracked(
        StudyRegistered(0, "s"), StageRegistered(0, "s", "rung0"), *running("s", "a", 2), TargetSet(3, "s/a", 2, "rung0")
    )
    assert list(snapshot(tracker).stages) == ["s/rung0"]


def test_the_trials_that_no_stage_waits_for_share_the_weight_of_their_study() -> None:
    """A search without barriers must not count for as many stages as it has slots."""
    tracker = tracked(
        StudyRegistered(0, "asha", weight=3.0, rungs=RUNGS, barriers=False),
        *running("asha", "a"),
        *running("asha", "b"),
        StudyRegistered(0, "s"),
        StageRegistered(0, "s", "rung0"),
        *running("s", "c"),
        TargetSet(3, "s/c", 2, "rung0"),
    )
    now = snapshot(tracker)
    assert dict(zip(now.stages, now.stage_weight.tolist(), strict=True)) == {
        "asha/trial:a": 1.5,
        "asha/trial:b": 1.5,
        "s/rung0": 1.0,
    }
    assert remaining_work(now, looks_ahead=True).items.weight.tolist() == [1.5, 1.5, 1.0]


def test_a_stage_is_waited_for_since_its_registration_and_a_trial_by_itself_does_not_age() -> None:
    tracker = tracked(
        StudyRegistered(0, "asha", rungs=RUNGS, barriers=False),
        *running("asha", "a"),
        StudyRegistered(3, "s"),
        StageRegistered(3.5, "s", "rung0"),
        *running("s", "c"),
        TargetSet(3, "s/c", 2, "rung0"),
    )
    now = snapshot(tracker)
    assert dict(zip(now.stages, now.since_s.tolist(), strict=True)) == {"asha/trial:a": math.inf, "s/rung0": 3.5}


def test_progress_does_not_make_another_item_of_a_trial() -> None:
    """So that an order in force stands while its trials run."""
    tracker = tracked(*ASHA, *running("asha", "a", 1, milestone=2))
    before = snapshot(tracker).stages
    tracker.apply(Progressed(5, "asha/a", 2))
    assert snapshot(tracker).stages == before


@pytest.mark.parametrize("policy", [name for name in NETWORK_POLICIES if network_policy(name).orders])
def test_a_trial_that_goes_on_beyond_its_barrier_goes_behind_all_others(policy: str) -> None:
    tracker = tracked(
        StudyRegistered(0, "s"),
        StageRegistered(0, "s", "rung0"),
        *running("s", "beyond", 3),
        TargetSet(3, "s/beyond", 2, "rung0"),
        TrialRegistered(3, "s", "missing"),
        TargetSet(3, "s/missing", 2, "rung0"),
        StudyRegistered(0, "long"),
        *running("long", "runs", budget=1000),
    )
    assert left(tracker) == {"s/beyond": 0, "long/runs": 1000}
    found = classes(tracker, policy)
    assert found["long/runs"] < found["s/beyond"]


def test_what_nobody_waits_for_comes_in_one_last_tier() -> None:
    tracker = tracked(StudyRegistered(0, "s"), *(event for name in "abc" for event in running("s", name, budget=5)))
    order = (Tier(("s/a", "s/b"), divisible=True), Tier(("s/c",)))
    now = snapshot(tracker)
    assert waited_for_first(order, now) == order
    now.remaining[:] = np.array([0, 5, 0])
    assert waited_for_first(order, now) == (Tier(("s/b",), divisible=True), Tier(("s/a", "s/c")))
