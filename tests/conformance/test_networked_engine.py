"""The engine whose jobs synchronise over a simulated network passes the suite of engines, but for lost nodes: it loses none."""

from collections.abc import Callable
from itertools import count
from random import Random

import pytest

from beamer.engines.simulated import SimulatedJob
from beamer.gpu.engine import Placement, RunState
from beamer.gpu.model import Costs, Node, Request
from beamer.network.allocation import Classes
from beamer.network.ledger import NetworkLedger
from beamer.network.policies import network_policy
from beamer.sim.network_level import Assumptions, NetworkLevel
from beamer.sim.networked_engine import NetworkedEngine
from beamer.studies.events import AttemptEnded, AttemptStarted, StudyRegistered, TrialRegistered
from beamer.studies.model import Profile, TrialStatus, Worker, split_key
from beamer.studies.tracker import Tracker
from beamer.testing.engine_harness import EngineHarness, Seen
from beamer.testing.engines import ENGINE_CHECKS, EngineCheck
from beamer.testing.fabrics import star
from beamer.testing.gpu_policies import Exponential

FABRIC = star(2)
LIMIT_S = 1000.0


class AttemptingEngine(NetworkedEngine):
    """Has an attempt start wherever a job comes to run, and end with it, as the GPU level's decisions do."""

    def __init__(self, tracker: Tracker, level: NetworkLevel) -> None:
        super().__init__(level, [Node(host.name, 2) for host in FABRIC.hosts], {}, self._target_of, 0.1, lambda: None)
        self._tracker = tracker
        self._names = count()

    def _target_of(self, key: str) -> int:
        return self.jobs[key].request.iterations

    def _run_on(self, key: str, placement: Placement, cost_s: float, launches: bool) -> None:
        workers = tuple(Worker(rank, node) for rank, (node, _) in enumerate(placement.devices))
        self._tracker.apply(AttemptStarted(self._level.now_s, key, str(next(self._names)), workers, Profile(1000)))
        super()._run_on(key, placement, cost_s, launches)

    def _leave(self, key: str, state: RunState) -> None:
        super()._leave(key, state)
        self._end_attempt(key)

    def finish(self, job: str) -> None:
        super().finish(job)
        self._end_attempt(job)

    def _end_attempt(self, key: str) -> None:
        trial = self._tracker.trials[key]
        if trial.status is TrialStatus.RUNNING and trial.attempt:
            self._tracker.apply(AttemptEnded(self._level.now_s, key, trial.attempt.name))


class NetworkedHarness(EngineHarness):
    def __init__(self) -> None:
        ledger = NetworkLedger(FABRIC)
        self._tracker = Tracker(ledger)
        self._tracker.apply(StudyRegistered(0.0, "study"))
        self._level = NetworkLevel(self._tracker, ledger, network_policy("fair"), Random(0), Assumptions(), Classes())
        self.networked = AttemptingEngine(self._tracker, self._level)
        self.engine = self.networked

    def job(self, name: str, iterations: int) -> str:
        key = f"study/{name}"
        request = Request(iterations=iterations, traffic=Profile(1000))
        self.networked.jobs[key] = SimulatedJob(request, Exponential(0.1, 0.01), Costs(0.1, 0.2, 0.5))
        self._tracker.apply(TrialRegistered(self._level.now_s, *split_key(key)))
        return key

    def has_processes(self, key: str) -> bool:
        run = self.networked._runs.get(key)
        return run is not None and run.state.has_processes

    def wait(self, holds: Callable[[], Seen | None]) -> Seen:
        until = self._level.now_s + LIMIT_S
        while not (found := holds()):
            assert self._level.now_s < until, "it does not come to hold"
            self._level.after(1.0, lambda: None)
            for key in self._level.advance():
                self.networked.finish(key)
            self._level.settle()
        return found


@pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda check: check.__name__)
def test_networked(check: EngineCheck) -> None:
    check(NetworkedHarness())
