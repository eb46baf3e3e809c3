"""A run is invalid for what the machine could not do, and for what queues counted."""

import pytest

from beamer.sim.results import RunResult, StageResult
from beamer.workloads.scenario import Scenario
from topologies import single
from topologies.emulation.accounting import PairBytes, QueueBytes
from topologies.emulation.exchange import RunMeasurements
from topologies.emulation.measured import MeasuredRun
from topologies.emulation.outcome import RunOutcome
from topologies.emulation.sampling import CONTROLLER, SWITCHES, Health

SCENARIO = Scenario("two hosts", single.build(2), 0, 8, ())
PAIRS = [PairBytes("s/a", "h1", "h2", 0, 0, True, 10_000)]


def outcome(health: Health, in_class: int) -> RunOutcome:
    """Return a run in which a switch port's queue of class 0 sent that many of 10 000 bytes."""
    queues = [QueueBytes("s1-eth2", 0, in_class, 0)]
    measured = RunMeasurements(0.0, [], [], PAIRS, {}, [], queues, health, 1.0, None)
    return RunOutcome("fair", SCENARIO, measured, RunResult("fair", (), (), {}))


def test_a_run_is_invalid_by_its_machine_or_by_its_queues_or_by_both() -> None:
    well, slow = Health(0.5, None, None), Health(0.9, None, None)
    assert outcome(well, 9_900).findings == ()
    (machine,) = outcome(slow, 10_000).findings
    assert "busiest thread" in machine
    assert outcome(well, 9_000).findings == (
        "the edge counted 10000 bytes for class 0 at s1-eth2, the queue 9000: a class share of 90.0% (limit 99%)",
    )
    assert len(outcome(slow, 9_000).findings) == 2


@pytest.mark.parametrize(("emulated_s", "said"), [(11.4, None), (8.6, None), (12.0, "+20%"), (8.0, "-20%")])
def test_a_run_that_the_simulator_does_not_agree_with_is_noted(emulated_s: float, said: str | None) -> None:
    stage = {"name": "r", "registered_s": 5.0, "ended_s": 5.0 + emulated_s}
    studies = [{"name": "s", "stages": [stage], "trials": []}]
    measured = RunMeasurements(5.0, studies, [], [], {}, [], [], Health(0.5, None, None), 1.0, None)
    simulated = RunResult("beamer", (StageResult("s", "r", 0.0, 10.0),), (), {})
    note = RunOutcome("beamer", SCENARIO, measured, simulated).note
    assert note is None if said is None else note is not None and said in note


def test_what_is_said_of_plans_and_of_waiting_is_of_the_parts_that_are_judged() -> None:
    latencies_ms = [float(ms) for ms in range(1, 101)]
    measured = RunMeasurements(
        0.0, [], latencies_ms, PAIRS, {}, [], [], Health(0.5, None, {SWITCHES: 0.25, CONTROLLER: 0.5}), 1.0, None
    )
    run = MeasuredRun(SCENARIO.fabric, measured)
    assert run.plan_text == "50 / 99"
    assert run.waiting_text == "25% / 50%"
    nothing = MeasuredRun(SCENARIO.fabric, RunMeasurements(0.0, [], [], PAIRS, {}, [], [], Health(0.5, None, None), 1.0, None))
    assert (nothing.plan_text, nothing.waiting_text) == ("none / none", "unknown")
