"""The engine of Ray Tune's trials passes the suite of engines, on trials without Ray."""

from collections.abc import Callable

import pytest

from beamer.engines.ray_tune.engine import RayTuneEngine
from beamer.gpu.model import Node, Request
from beamer.testing.engine_harness import EngineHarness, Seen
from beamer.testing.engines import ENDLESS, ENGINE_CHECKS, EngineCheck
from tests.support.fake_tune import FakeTrial, FakeTune

NODES = (Node("n0", 2), Node("n1", 2))
LIMIT = 200
"""Turns of Tune's loop that a check may wait: some times what any of them needs."""


class TuneHarness(EngineHarness):
    def __init__(self, is_shared: bool = False) -> None:
        self.tune = FakeTune(NODES)
        self.failures: dict[str, int] = {}
        self.requests: dict[str, Request] = {}
        self.ray = RayTuneEngine(self.tune, self.requests.__getitem__, is_shared)
        self.tune.drive(self.ray)
        self.engine = self.ray

    def job(self, name: str, iterations: int) -> str:
        key = f"study/{name}"
        if name not in self.tune.trials:
            self.tune.trials[name] = FakeTrial(lambda iteration: 1.0 / iteration)
            self.ray.add(name)
        self.requests[key] = Request(iterations)
        return key

    def failing(self, name: str, iterations: int) -> str:
        self.failures[name] = iterations
        return self.job(name, ENDLESS)

    def has_processes(self, key: str) -> bool:
        return self.tune.trials[key.rpartition("/")[2]].ready_s is not None

    def wait(self, holds: Callable[[], Seen | None]) -> Seen:
        for _ in range(LIMIT):
            if found := holds():
                return found
            self.tune.advance()
            for name, iterations in self.failures.items():
                if self.tune.trials[name].iteration == iterations:
                    self.tune.fail(name, "no such data")
        raise AssertionError("it does not come to hold")

    def lose(self, node: str) -> None:
        self.tune.lose(node)

    def rejoin(self, node: str) -> None:
        self.tune.join(next(one for one in NODES if one.name == node))


@pytest.mark.parametrize("is_shared", [False, True], ids=["alone", "shared"])
@pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda check: check.__name__)
def test_ray_tune(check: EngineCheck, is_shared: bool) -> None:
    check(TuneHarness(is_shared))
