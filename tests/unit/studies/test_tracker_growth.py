"""What events and counters cost grows with what they concern, not with all that there is."""

from functools import partial

import pytest

from beamer.network.connection import Connection
from beamer.network.events import ConnectionsSeen
from beamer.network.ledger import NetworkLedger
from beamer.network.protocol import WorkerBytes
from beamer.network.trial_measurements import TrialMeasurements
from beamer.studies.events import AttemptStarted, Event, Progressed, StudyEnded, StudyRegistered, TrialEnded, TrialRegistered
from beamer.studies.model import Profile, TrialStatus, Worker
from beamer.studies.tracker import Tracker
from beamer.testing.fabrics import star
from tests.support.effort import effort

FABRIC = star(2)
LEFT, RIGHT = FABRIC.hosts
WORKERS = (Worker(0, LEFT.name), Worker(1, RIGHT.name))
FEW, MANY = 60, 240


def running(trials: int) -> Tracker:
    """Return a tracker of one study whose trials have a connection each, which both of its agents see."""
    tracker = Tracker(NetworkLedger(FABRIC))
    tracker.apply(StudyRegistered(0.0, "s"))
    keys = [f"s/t{number}" for number in range(trials)]
    for key in keys:
        tracker.apply(TrialRegistered(0.0, "s", key.partition("/")[2]))
        tracker.apply(AttemptStarted(0.0, key, "1", WORKERS, Profile(1000, "ring", 0.1)))
    there = tuple(Connection(key, 0, LEFT.ip, 1000 + i, RIGHT.ip, 2000 + i) for i, key in enumerate(keys))
    back = tuple(Connection(key, 1, RIGHT.ip, 2000 + i, LEFT.ip, 1000 + i) for i, key in enumerate(keys))
    assert LEFT.agent
    assert RIGHT.agent
    tracker.apply(ConnectionsSeen(0.0, LEFT.agent, there))
    tracker.apply(ConnectionsSeen(0.0, RIGHT.agent, back))
    return tracker


@pytest.mark.parametrize("event", [StudyEnded(1.0, "s"), StudyRegistered(1.0, "s", "2")])
def test_the_end_of_a_run_costs_each_of_its_trials_the_same(event: Event) -> None:
    few, many = running(FEW), running(MANY)
    cost = effort(lambda: few.apply(event)), effort(lambda: many.apply(event))
    assert not many.running
    assert cost[1] < 1.5 * MANY / FEW * cost[0]


def test_the_end_of_a_trial_costs_the_same_among_many() -> None:
    few, many = running(FEW), running(MANY)
    end = TrialEnded(1.0, "s/t7", TrialStatus.FINISHED)
    assert effort(lambda: many.apply(end)) < 1.5 * effort(lambda: few.apply(end))
    assert len(many.running_keys) == MANY - 1


def test_counters_of_a_worker_cost_the_same_beside_many_meters() -> None:
    assert LEFT.agent
    costs = []
    for tracker in (running(FEW), running(MANY)):
        (ledger,) = tracker.ledgers
        assert isinstance(ledger, NetworkLedger)
        meters = TrialMeasurements(ledger, tracker)
        everyone = [WorkerBytes(job=trial.key, rank=0, sent_bytes=0) for trial in tracker.running]
        meters.counted(LEFT.agent, everyone, 1.0)
        costs.append(effort(partial(meters.counted, LEFT.agent, everyone[:1], 2.0)))
    assert costs[1] < 1.5 * costs[0]


def ledger_of(tracker: Tracker) -> NetworkLedger:
    (ledger,) = tracker.ledgers
    assert isinstance(ledger, NetworkLedger)
    return ledger


def test_what_has_not_changed_is_not_worked_out_again() -> None:
    tracker = running(MANY)
    ledger = ledger_of(tracker)
    everything = effort(lambda: ledger.running(tracker))
    tracker.apply(Progressed(1.0, "s/t7", 5))
    assert effort(lambda: ledger.running(tracker)) < 0.3 * everything


def test_looking_at_the_running_trials_is_prepared_trial_by_trial() -> None:
    def costs(trials: int) -> list[int]:
        tracker = running(trials)
        ledger = ledger_of(tracker)
        steps = ledger.prepare(tracker)
        found = [effort(lambda: next(steps, None)) for _ in range(trials + 10)]
        found.append(effort(lambda: ledger.running(tracker)) // trials)
        return found

    few, many = costs(FEW), costs(MANY)
    assert max(many[1:-1]) < 1.5 * max(few[1:-1])
    assert many[-1] < 0.2 * max(few[1:-1]), "what is left, of each trial"


def test_a_report_of_progress_costs_the_same_among_many() -> None:
    few, many = running(FEW), running(MANY)

    def reported(tracker: Tracker) -> None:
        tracker.apply(Progressed(1.0, "s/t7", 5))
        assert len(tracker.running) > 1

    assert effort(lambda: reported(many)) < 1.5 * effort(lambda: reported(few))
