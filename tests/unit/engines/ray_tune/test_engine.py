"""The engine of Tune's trials by itself, on a Tune without Ray: what it refuses."""

import pytest

from beamer.engines.ray_tune.engine import RayTuneEngine, Result, TuneDecision
from beamer.errors import EngineError
from beamer.gpu.engine import Placement, RunState
from beamer.gpu.model import Node, Request
from tests.support.fake_tune import FakeTrial, FakeTune

NODES = (Node("n0", 1), Node("n1", 1))


def test_a_job_is_not_resumed_on_a_node_that_is_gone() -> None:
    tune = FakeTune(NODES)
    engine = RayTuneEngine(tune, lambda job: Request(8))
    tune.drive(engine)
    tune.trials["a"] = FakeTrial(lambda iteration: 1.0 / iteration)
    engine.add("a")
    engine.start("s/a", Placement((("n0", 0),)))
    engine.suspend("s/a")
    tune.lose("n0")
    with pytest.raises(EngineError, match="s/a: resume: there is no node 'n0'"):
        engine.resume("s/a")
    assert engine.report()["s/a"].state is RunState.PARKED
    tune.join(NODES[0])
    engine.resume("s/a")
    assert engine.report()["s/a"].state is RunState.RUNNING


def test_what_a_start_takes_is_told_of_all_trials_once_it_has_changed() -> None:
    tune = FakeTune(NODES)
    engine = RayTuneEngine(tune, lambda job: Request(8))
    for name, node in (("a", "n0"), ("b", "n1")):
        tune.trials[name] = FakeTrial(lambda iteration: 1.0 / iteration)
        engine.add(name)
        engine.start(f"s/{name}", Placement(((node, 0),)))
    engine.apply(0.0)

    def told(trial: str, now: float, iteration: int = 1) -> float | None:
        engine.record(trial, Result(float(iteration), 1.0, 1.0, float(iteration)), now)
        assert engine.decide(trial) is TuneDecision.CONTINUE
        costs = engine.report()[f"s/{trial}"].costs
        return costs.restart_s if costs else None

    assert told("a", 11.0) == 10.0
    assert told("a", 12.0, 2) is None
    assert told("b", 2.0) == 5.5  # the median of 10 and 1
    assert told("b", 3.0, 2) is None
    assert told("a", 13.0, 3) == 5.5
    engine.stop("s/a")
    engine.start("s/a", Placement((("n0", 0),)))
    assert told("a", 14.0, 4) == 5.5  # What was told of a job that was stopped is told again.
