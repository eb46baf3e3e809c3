"""The simulated engine passes the suite of engines, and the suite finds engines that break the seam's rules.

The suite runs on real processes in tests/processes/test_local_conformance.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from unittest import SkipTest

import pytest

from beamer.engines.simulated import SimulatedCluster, SimulatedJob
from beamer.errors import EngineError
from beamer.gpu.engine import Engine, Observed, Placement, RunState
from beamer.gpu.model import Costs, Node, Request
from beamer.testing import engines as suite
from beamer.testing.engine_harness import EngineHarness, Seen
from beamer.testing.engines import ENGINE_CHECKS, EngineCheck
from beamer.testing.gpu_policies import Exponential

NODES = (Node("n0", 2), Node("n1", 2))
LIMIT_S = 1000.0
"""Virtual seconds that a check may wait: some hundred times what any of them needs."""


class SimulatedHarness(EngineHarness):
    def __init__(self, made: Callable[..., SimulatedCluster] = SimulatedCluster) -> None:
        self.cluster = made(NODES, {})
        self.engine: Engine = self.cluster

    def job(self, name: str, iterations: int) -> str:
        key = f"study/{name}"
        self.cluster.jobs[key] = SimulatedJob(Request(iterations=iterations), Exponential(0.1, 0.01), Costs(0.1, 0.2, 0.5))
        return key

    def has_processes(self, key: str) -> bool:
        run = self.cluster._runs.get(key)
        return run is not None and run.state.has_processes

    def wait(self, holds: Callable[[], Seen | None]) -> Seen:
        until = self.cluster.now + LIMIT_S
        while not (found := holds()):
            assert self.cluster.now < until, "it does not come to hold"
            self.cluster.advance(min(self.cluster.next_s(), self.cluster.now + 1.0))
        return found

    def lose(self, node: str) -> None:
        self.cluster.lose(node)

    def rejoin(self, node: str) -> None:
        self.cluster.join(next(one for one in NODES if one.name == node))


@pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda check: check.__name__)
def test_simulated(check: EngineCheck) -> None:
    check(SimulatedHarness())


class UnableHarness(SimulatedHarness):
    lose = EngineHarness.lose


def test_a_check_that_its_harness_has_no_means_for_is_skipped() -> None:
    with pytest.raises(SkipTest, match="cannot take nodes away"):
        suite.starts_nothing_on_a_lost_node(UnableHarness())


class IgnoresStartOfSuspended(SimulatedCluster):
    def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        known = self._observed.get(job)
        if known is None or known.state is not RunState.SUSPENDED:
            super().start(job, placement)


class ResumesWhereverStarted(SimulatedCluster):
    def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        known = self._observed.get(job)
        if known is not None and known.state is RunState.SUSPENDED:
            self.resume(job)
        else:
            super().start(job, placement)


class RestartsRunning(SimulatedCluster):
    def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        super().start(job, placement)
        self.resize(job, placement)


class ForgetsProgress(SimulatedCluster):
    def resize(self, job: str, placement: Placement | None, timeout_s: float = 5.0) -> None:
        super().resize(job, placement)
        run = self._runs[job]
        run.iteration = run.reported = 0.0
        if run.state is RunState.RUNNING:
            self._schedule(job)


class RepeatsReports(SimulatedCluster):
    def report(self) -> Mapping[str, Observed]:
        return dict(self._observed)


class DropsLastReport(SimulatedCluster):
    def report(self) -> Mapping[str, Observed]:
        observed = super().report()
        for key, one in self._observed.items():
            self._observed[key] = replace(one, reports=())
        return observed


class RepeatsMeasurements(SimulatedCluster):
    def report(self) -> Mapping[str, Observed]:
        known = dict(self._observed)
        return {key: replace(one, speeds=known[key].speeds, costs=Costs()) for key, one in super().report().items()}


class IgnoresBatchSizes(SimulatedCluster):
    def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        super().start(job, replace(placement, batch_size=0))


class StartsOnce(SimulatedCluster):
    def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        if job in self.started_s and job not in self._observed:
            raise EngineError(f"{job}: it ran before")
        super().start(job, placement)


class BeginsAnew(SimulatedCluster):
    def stop(self, job: str, timeout_s: float = 5.0) -> None:
        super().stop(job)
        self._checkpoints.clear()


class EndsWhereItEnded(SimulatedCluster):
    def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        if job in self._checkpoints:
            self.jobs[job] = self._checkpoints[job].job
        super().start(job, placement)


class ResumesParked(SimulatedCluster):
    def resume(self, job: str, timeout_s: float = 5.0) -> None:
        one = self._observed[job]
        if one.state is RunState.PARKED:
            self.start(job, Placement(((NODES[0].name, 0),)))
        else:
            super().resume(job)


class SuspendsRunningOnly(SimulatedCluster):
    def resize(self, job: str, placement: Placement | None, timeout_s: float = 5.0) -> None:
        super().resize(job, placement)
        self._moved = job

    def suspend(self, job: str, timeout_s: float = 5.0) -> None:
        if self.__dict__.pop("_moved", None) != job:
            super().suspend(job)


class RemembersStopped(SimulatedCluster):
    def stop(self, job: str, timeout_s: float = 5.0) -> None:
        if job in self._runs:
            self.suspend(job)


class RunsOnAfterStop(SimulatedCluster):
    def stop(self, job: str, timeout_s: float = 5.0) -> None:
        self._observed.pop(job, None)

    def suspend(self, job: str, timeout_s: float = 5.0) -> None:
        if job not in self._observed:
            raise EngineError(job)
        super().suspend(job)


class RunsThroughSuspension(SimulatedCluster):
    def suspend(self, job: str, timeout_s: float = 5.0) -> None:
        super().suspend(job)
        state, placement = self._observed[job].state, self._observed[job].placement
        if state is RunState.SUSPENDED and placement:
            self._run_on(job, placement, 0.0)
            self._observed[job] = replace(self._observed[job], state=state)


class PlacesAnywhere(SimulatedCluster):
    def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        devices = tuple(device for device in dict.fromkeys(placement.devices) if device[0] in self._nodes)
        super().start(job, Placement(devices or ((NODES[0].name, 0),)))


class KnowsWhatItRefuses(SimulatedCluster):
    def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        try:
            super().start(job, placement)
        except EngineError:
            self._observed[job] = Observed(RunState.RUNNING, placement)
            raise


@pytest.mark.parametrize(
    ("mutant", "finder"),
    [
        (IgnoresStartOfSuspended, suite.starts_a_suspended_job_where_it_is),
        (IgnoresStartOfSuspended, suite.starts_a_suspended_job_elsewhere),
        (ResumesWhereverStarted, suite.starts_a_suspended_job_elsewhere),
        (RestartsRunning, suite.starts_once),
        (ForgetsProgress, suite.resizes),
        (ForgetsProgress, suite.parks_and_starts_again),
        (RepeatsReports, suite.delivers_every_report_once),
        (RepeatsMeasurements, suite.delivers_measurements_once),
        (IgnoresBatchSizes, suite.carries_the_batch_size),
        (StartsOnce, suite.starts_again_after_stop),
        (BeginsAnew, suite.continues_to_a_farther_target),
        (EndsWhereItEnded, suite.continues_to_a_farther_target),
        (ResumesParked, suite.resumes_a_job_that_is_stopping),
        (SuspendsRunningOnly, suite.suspends_a_job_that_is_stopping),
        (DropsLastReport, suite.runs_a_job_to_its_end),
        (RemembersStopped, suite.stops_for_good),
        (RunsOnAfterStop, suite.stops_for_good),
        (RunsThroughSuspension, suite.suspends_and_resumes),
        (PlacesAnywhere, suite.refuses_placements),
        (PlacesAnywhere, suite.starts_nothing_on_a_lost_node),
        (KnowsWhatItRefuses, suite.starts_nothing_on_a_lost_node),
    ],
)
def test_the_suite_finds_an_engine_that(mutant: type[SimulatedCluster], finder: EngineCheck) -> None:
    assert finder in ENGINE_CHECKS
    with pytest.raises((AssertionError, EngineError)):
        finder(SimulatedHarness(mutant))
