"""The engine of Tune's trials by itself, on a Tune without Ray: what it refuses."""

import pytest

from beamer.engines.ray_tune.engine import RayTuneEngine
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
