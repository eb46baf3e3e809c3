"""The engine of Tune's trials by itself, on a Tune without Ray: what it refuses."""

import pytest

from beamer.engines.ray_tune.engine import PROCEED_S, RayTuneEngine, Result, TuneDecision
from beamer.errors import EngineError
from beamer.gpu.engine import Placement, RunState
from beamer.gpu.model import Costs, Node, Request
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


def test_what_a_start_takes_is_reported_of_all_trials_once_it_has_changed() -> None:
    tune = FakeTune(NODES)
    engine = RayTuneEngine(tune, lambda job: Request(8))
    for name, node in (("a", "n0"), ("b", "n1")):
        tune.trials[name] = FakeTrial(lambda iteration: 1.0 / iteration)
        engine.add(name)
        engine.start(f"s/{name}", Placement(((node, 0),)))
    engine.apply(0.0)

    def reported(trial: str, now: float, iteration: int = 1) -> dict[str, float]:
        engine.record(trial, Result(float(iteration), 1.0, 1.0, float(iteration)), now)
        assert engine.decide(trial) is TuneDecision.CONTINUE
        costs = {key[2:]: observed.costs for key, observed in engine.report().items()}
        assert all(one.restart_s == one.resume_s for one in costs.values() if one)
        return {name: one.restart_s for name, one in costs.items() if one}

    assert reported("a", 11.0) == {"a": 10.0, "b": 10.0}
    assert reported("a", 12.0, 2) == {}
    assert reported("b", 2.0) == {"a": 5.5, "b": 5.5}  # the median of 10 and 1
    tune.trials["c"] = FakeTrial(lambda iteration: 1.0 / iteration)
    engine.add("c")
    engine.start("s/c", Placement((("n0", 0),)))
    engine.apply(20.0)
    # The first start where another trial has left a process: those of new processes do not count any more.
    assert reported("c", 21.5) == {"a": 0.5, "b": 0.5, "c": 0.5}
    engine.stop("s/a")
    engine.start("s/a", Placement((("n0", 0),)))
    tune.trials["d"] = FakeTrial(lambda iteration: 1.0 / iteration)
    engine.add("d")
    engine.start("s/d", Placement((("n1", 0),)))
    engine.apply(30.0)
    # The median of 0.5 and 0.625, which has changed by less than a fifth. What was reported of a stopped job is reported again.
    assert reported("d", 31.625) == {"a": 0.5625, "d": 0.5625}


def one_trial(target: int) -> tuple[FakeTune, RayTuneEngine]:
    """Return an engine whose trial a has been launched, and runs until its target."""
    tune = FakeTune(NODES)
    engine = RayTuneEngine(tune, lambda job: Request(target))
    tune.trials["a"] = FakeTrial(lambda iteration: 1.0 / iteration)
    engine.add("a")
    engine.start("s/a", Placement((("n0", 0),)))
    engine.apply(0.0)
    return tune, engine


def test_a_trial_at_its_target_whose_process_waits_needs_no_start() -> None:
    _, engine = one_trial(target=2)
    engine.record("a", Result(1.0, 1.0, 1.0, 1.0), 11.0)
    engine.decide("a")
    assert engine.report()["s/a"].costs == Costs(resume_s=10.0, restart_s=10.0)
    engine.record("a", Result(2.0, 1.0, 1.0, 2.0), 12.0)
    costs = engine.report()["s/a"].costs
    assert costs is not None
    assert (costs.restart_s, costs.resume_s) == (10.0, PROCEED_S)
    assert costs.change_s == PROCEED_S
    assert engine.decide("a") is TuneDecision.PAUSE
    assert engine.report()["s/a"].costs == Costs(resume_s=10.0, restart_s=10.0), "its process is gone"
