"""What policies know of a job's future, as found by asking them about jobs that state another one."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest

from beamer.decision.policy import Stateless
from beamer.engines.simulated import Outcome, SimulatedJob, SimulatedProfile
from beamer.gpu.model import Cluster, Costs, Grant, Job, Node, Request
from beamer.gpu.policies import GPU_POLICIES, GpuPolicy, gpu_policy
from beamer.sim.gpu import Arrival, simulate_gpus
from eval.gpu.knowledge import HEEDS_BOUND, IGNORES_END, USES_TARGET, knowledge, shown

NODES = (Node("n0", 4, 32.0), Node("n1", 4, 32.0))


class Falling(SimulatedProfile):
    """Speeds up with the square root of its GPUs; its loss falls to a floor."""

    def __init__(self, floor: float) -> None:
        self._floor = floor

    def step_s(self, grant: Grant, batch_size: int) -> tuple[float, float]:
        return 8.0 / grant.size**0.5, 0.01

    def outcome(self, iteration: float) -> Outcome:
        return Outcome(self._floor + (1 - self._floor) / (1 + iteration / 50.0))


class Stating(GpuPolicy[Any]):
    """A policy whose jobs state other requests than they have; with what it decides."""

    State = Stateless

    def __init__(self, policy: GpuPolicy[Any], stated: Callable[[Request], Request]) -> None:
        self.name = policy.name  # type: ignore[misc]  # it stands for the other
        self._policy, self._stated = policy, stated
        self.decisions: list[Any] = []

    def initial(self) -> Any:
        return self._policy.initial()

    def allocate(self, state: Any, cluster: Cluster, jobs: Any, now: float, rng: Random) -> Any:
        told: list[Job] = [replace(job, request=self._stated(job.request)) for job in jobs]
        decided = self._policy.allocate(state, cluster, told, now, rng)
        self.decisions.append((now, dict(decided[1])))
        return decided


@cache
def decisions(policy: str, stated: Callable[[Request], Request]) -> list[Any]:
    """Return what a policy decides about jobs on too few GPUs, of which some end soon and some late."""
    rng = Random(5)
    arrivals = []
    for i in range(7):
        gpus = rng.choice([1, 2, 4])
        request = Request(iterations=200 + 150 * (i % 5), gpus=gpus, min_gpus=1, max_gpus=8, epoch=20, target_loss=0.3)
        job = SimulatedJob(request, Falling(rng.uniform(0.1, 0.5)), Costs(0.1, 0.1, 0.5))
        arrivals.append(Arrival(rng.uniform(0.0, 60.0), "s", f"t{i:02}", job))
    watched = Stating(gpu_policy(policy), stated)
    simulate_gpus(watched, NODES, arrivals, seed=1, until_s=10_000.0)
    return watched.decisions


def unchanged(request: Request) -> Request:
    return request


def later(request: Request) -> Request:
    """Return a request that states another end, the more so the sooner it ends."""
    return replace(request, iterations=100_000 // request.iterations)


def bounded(request: Request) -> Request:
    return replace(request, known_end=False)


def bounded_later(request: Request) -> Request:
    return bounded(later(request))


def other_target(request: Request) -> Request:
    return replace(request, target_loss=None)


@pytest.mark.parametrize("policy", GPU_POLICIES)
def test_the_end_is_used_by_those_that_are_said_to(policy: str) -> None:
    assert (decisions(policy, unchanged) == decisions(policy, later)) == (policy in IGNORES_END)


@pytest.mark.parametrize("policy", sorted(HEEDS_BOUND))
def test_a_bound_is_not_taken_for_the_end(policy: str) -> None:
    assert decisions(policy, bounded) == decisions(policy, bounded_later)


@pytest.mark.parametrize("policy", GPU_POLICIES)
def test_the_target_is_used_by_those_that_are_said_to(policy: str) -> None:
    assert (decisions(policy, unchanged) == decisions(policy, other_target)) == (policy not in USES_TARGET)


def test_what_is_known_in_words() -> None:
    assert shown(knowledge("fifo", "the true end", True, False)) == "nothing"
    assert shown(knowledge("srtf", "the true end", True, True)) == "the true end", "it takes a bound for the end"
    assert shown(knowledge("convergence", "the declared end", True, False)) == "the declared end, the target"
    assert shown(knowledge("convergence", "the declared end", True, True)) == "the target"
