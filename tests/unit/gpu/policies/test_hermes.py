"""Hermes: where jobs are queued, who helps whom, and what counts as convergence."""

import math
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from beamer.engines.simulated import Outcome, SimulatedJob, SimulatedProfile
from beamer.gpu.model import Allocation, Cluster, Costs, Grant, Job, Node, Report, Request, Stage
from beamer.gpu.policies.hermes import NORMS, Hermes, convergence
from beamer.sim.gpu import Arrival, Failure, simulate_gpus
from tests.support.jobs import known_job

TWO = Cluster((Node("n0", 1), Node("n1", 1)))


def job(number: int, *losses: float, last: Grant | None = None, running: bool = False, **request: Any) -> Job:
    reports = tuple(Report(float(k), float(k), loss, float(k)) for k, loss in enumerate(losses))
    asked = Request(**{"iterations": 100} | request)
    return known_job(f"t{number}", asked, float(number), Stage("s", "r"), reports, grant=last if running else None, last=last)


def decided(cluster: Cluster, *jobs: Job, policy: Hermes | None = None) -> Allocation:
    policy = policy or Hermes()
    return policy.allocate(policy.initial(), cluster, jobs, 100.0, Random(0))[1]


def falling(by: float) -> tuple[float, ...]:
    return tuple(10.0 - by * k for k in range(7))


class Steady(SimulatedProfile):
    """A second per iteration, all jobs alike."""

    def step_s(self, grant: Grant, batch_size: int) -> tuple[float, float]:
        return 1.0, 0.0

    def outcome(self, iteration: float) -> Outcome:
        return Outcome(1.0 / (1.0 + iteration))


def search(count: int, *iterations: int) -> list[Arrival]:
    return [
        Arrival(0.0, "s", f"t{i}", SimulatedJob(Request(iterations[i % len(iterations)], epoch=10), Steady()))
        for i in range(count)
    ]


def test_no_node_stands_idle_while_jobs_wait() -> None:
    run = simulate_gpus(Hermes(), TWO.nodes, search(16, 500, 50))
    assert run.makespan_s == 8 * 500 / 2 + 8 * 50 / 2


def test_a_node_that_comes_back_is_given_jobs() -> None:
    one = simulate_gpus(Hermes(), TWO.nodes, search(16, 50), failures=[Failure(10.0, "n1", 20.0)])
    lost_s = 10.0  # of one node
    assert one.makespan_s <= 16 * 50 / 2 + lost_s + 10.0  # and an epoch that was not saved


def test_jobs_that_never_ran_are_spread_by_load() -> None:
    given = decided(Cluster((Node("n0", 2), Node("n1", 4))), *(job(i) for i in range(6)))
    assert [sum(node == name for grant in given.values() for node, _ in grant.gpus) for name in ("n0", "n1")] == [2, 4]


def test_a_job_is_queued_where_it_ran_last() -> None:
    here = Grant.of({"n1": 1})
    given = decided(TWO, job(0, *falling(0.1), last=here), job(1, *falling(0.5), last=here), job(2))
    # the best of n1 stays there, the new one goes to n0, and nobody is idle for the other
    assert given == {"t1": here, "t2": Grant.of({"n0": 1})}


def test_an_idle_node_helps_the_best_job_that_waits_for_another() -> None:
    here = Grant.of({"n1": 1})
    jobs = [job(i, *falling(by), last=here) for i, by in enumerate((0.1, 0.2, 0.5))]
    assert decided(TWO, *jobs) == {"t2": here, "t1": Grant.of({"n0": 1})}


def test_an_idle_node_looks_for_a_job_that_fits_it() -> None:
    here = Grant.of({"n1": 2})
    cluster = Cluster((Node("n0", 1), Node("n1", 2)))
    jobs = [job(i, *falling(by), last=here, gpus=2) for i, by in enumerate((0.4, 0.5))]
    small = job(2, *falling(0.1), last=Grant.of({"n1": 1}))
    assert decided(cluster, *jobs, small) == {"t1": here, "t2": Grant.of({"n0": 1})}


@pytest.mark.parametrize("changed", [Node("n0", 1), Node("n0", 2, 1.0)])
def test_a_job_leaves_a_node_that_has_become_too_small(changed: Node) -> None:
    left = job(0, *falling(0.1), last=Grant.of({"n0": 2}), gpus=2, worker_cpus=1.0)
    policy, other = Hermes(), Node("n1", 2, 4.0)
    state, before, _ = policy.allocate(policy.initial(), Cluster((Node("n0", 2, 2.0), other)), (left,), 0.0, Random(0))
    assert before == {"t0": left.last}
    assert policy.allocate(state, Cluster((changed, other)), (left,), 1.0, Random(0))[1] == {"t0": Grant.of({"n1": 2})}


def test_a_job_that_runs_on_several_nodes_stays_there_when_one_is_large_enough() -> None:
    several = Grant.of({"n0": 1, "n1": 1})
    wide = job(0, *falling(0.1), last=several, running=True, gpus=2)
    assert decided(Cluster((*TWO.nodes, Node("n2", 2))), wide) == {"t0": several}


def test_garbage_reported_once_does_not_hide_how_fast_a_loss_falls() -> None:
    for place in range(1, 7):
        losses = [math.nan if k == place else loss for k, loss in enumerate(falling(1.0))]
        assert convergence(job(0, *losses), 5, 0.0, 1.0, NORMS["none"]) == pytest.approx(1.0)
    bad = job(0, 10.0, math.nan, *falling(1.0)[2:], last=Grant.of({"n0": 1}))
    slow = job(1, *falling(0.1), last=Grant.of({"n0": 1}))
    assert set(decided(Cluster(TWO.nodes[:1]), bad, slow)) == {"t0"}


def test_diverged_jobs_come_last() -> None:
    diverged = job(0, *falling(1.0)[:5], math.nan, math.inf)
    rising = job(1, *falling(-1.0))
    once = job(2, *[math.nan] * 6, 1.0)
    rates = [convergence(one, 5, 0.0, 1.0, NORMS["first"]) for one in (diverged, rising, once)]
    assert rates[0] == -math.inf
    assert rates[1] < rates[2] == 0.0
    assert convergence(replace(diverged, reports=diverged.reports[:4]), 5, 0.0, 1.0, NORMS["first"]) == math.inf
    exploded = job(3, *falling(1.0)[:5], 7e14, 6e14)
    assert convergence(exploded, 5, 0.0, 1.0, NORMS["first"]) == -math.inf


def test_a_job_that_has_diverged_loses_its_gpu_within_its_quantum() -> None:
    here = Grant.of({"n0": 1})
    diverged = job(0, *falling(1.0)[:5], 7e14, 6e14, last=here, running=True)
    waits = job(1, *falling(0.1), last=here)
    assert set(decided(Cluster(TWO.nodes[:1]), diverged, waits, policy=Hermes(quantum_s=1e6))) == {"t1"}


@pytest.mark.parametrize("costs", [Costs(5.0, 20.0, 1e6), Costs(5.0, 0.0, 20.0)])
def test_a_job_keeps_its_gpu_for_a_multiple_of_what_a_change_takes(costs: Costs) -> None:
    here, one = Grant.of({"n0": 1}), Cluster(TWO.nodes[:1])
    waits = job(1, *falling(1.0), last=here)

    def decided_at(since_s: float, policy: Hermes) -> tuple[set[str], float | None]:
        runs = replace(job(0, *falling(0.1), last=here, running=True), since_s=since_s, costs=costs)
        _, grants, wake_at = policy.allocate(policy.initial(), one, (runs, waits), 100.0, Random(0))
        return set(grants), wake_at

    assert decided_at(1.0, Hermes()) == ({"t0"}, 101.0)  # four times 25 s
    assert decided_at(0.0, Hermes())[0] == {"t1"}
    assert decided_at(1.0, Hermes(quantum_costs=3.0))[0] == {"t1"}
    assert decided_at(1.0, Hermes(quantum_costs=0.0, quantum_s=99.0))[0] == {"t1"}
    assert decided_at(1.0, Hermes(quantum_costs=3.0, quantum_s=90.0))[0] == {"t1"}
    assert decided_at(1.0, Hermes(quantum_costs=0.0, quantum_s=100.0))[0] == {"t0"}


def noisy(by: float, seed: int, deviation: float = 0.3) -> list[float]:
    """Return losses that fall by `by` at each of 40 reports, with noise."""
    noise = Random(seed)
    return [10.0 - by * k + noise.gauss(0.0, deviation) for k in range(40)]


def test_a_noisy_job_keeps_its_gpu_until_one_that_waits_falls_faster_beyond_both_errors() -> None:
    here, one = Grant.of({"n0": 1}), Cluster(TWO.nodes[:1])
    policy = Hermes(hysteresis=0.0)
    kept = 0
    for seed in range(20):
        alike = job(0, *noisy(0.05, seed), last=here, running=True), job(1, *noisy(0.05, 100 + seed), last=here)
        kept += set(decided(one, *alike, policy=policy)) == {"t0"}
        worse = job(0, *noisy(0.0, seed), last=here, running=True), job(1, *noisy(0.2, 100 + seed), last=here)
        assert set(decided(one, *worse, policy=policy)) == {"t1"}
    assert kept >= 17  # of 20: without errors half of them


def test_a_job_that_was_measured_too_shortly_to_judge_goes_before_one_that_is_known_to_fall_slowly() -> None:
    here, one = Grant.of({"n0": 1}), Cluster(TWO.nodes[:1])
    slow = job(0, *noisy(0.02, 1, 0.01), last=here, running=True)
    short = job(1, *noisy(0.0, 5)[:14], last=here)
    assert set(decided(one, slow, short, policy=Hermes(judged_s=20.0))) == {"t1"}
    assert set(decided(one, slow, short, policy=Hermes(judged_s=5.0))) == {"t0"}
