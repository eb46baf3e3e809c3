"""ONES' moves on small populations, and its policy on small clusters."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from beamer.engines.simulated import SimulatedJob
from beamer.gpu import evolution
from beamer.gpu.evolution import EMPTY, Throughputs
from beamer.gpu.model import Allocation, Cluster, Grant, Job, Node, Report, Request, Speed, Stage, check_allocation
from beamer.gpu.policies.ones import Ones, OnesState
from beamer.gpu.predictors.progress_training import JOBS_PER_TRAINING, ProgressTraining
from beamer.sim.gpu import Arrival, simulate_gpus
from beamer.testing.gpu_policies import Exponential
from tests.support.jobs import known_job

GENOMES = np.array([[0, 0, 1, EMPTY, 2, 2], [2, 1, 0, 1, 1, 1]])


def cluster(nodes: int, gpus: int = 4) -> Cluster:
    return Cluster(tuple(Node(f"n{number}", gpus) for number in range(nodes)))


def job(number: int, epochs: float = 0.0, iterations: int = 100, **request: Any) -> Job:
    """A job of 10 iterations an epoch that has reported after each of its epochs, one second apart."""
    reports = tuple(Report(float(k), 10.0 * k, 1.0 / k, float(k)) for k in range(1, int(epochs) + 1))
    asked = Request(**{"iterations": iterations, "max_gpus": 8, "epoch": 10, "batch_size": 16, **request})
    speeds = (Speed(1, 1, 0, 16, 1.0),) if reports else ()
    return known_job(f"study/{number}", asked, float(number), Stage("study", "0"), reports, speeds)


def running(base: Job, node: str, gpus: int = 1, since_s: float = 0.0) -> Job:
    return replace(base, grant=Grant(((node, gpus),)), since_s=since_s)


def decide(
    jobs: list[Job], on: Cluster, policy: Ones | None = None, state: OnesState | None = None, seed: int = 0
) -> tuple[OnesState, Allocation]:
    policy = policy or Ones()
    state, allocation, _ = policy.allocate(state or policy.initial(), on, jobs, 100.0, Random(seed))
    check_allocation(on, jobs, allocation)
    return state, allocation


def sizes(allocation: Allocation) -> dict[str, int]:
    return {key.split("/")[1]: grant.size for key, grant in allocation.items()}


def test_genes_are_counted() -> None:
    assert evolution.gpus_per_job(GENOMES, 4).tolist() == [[2, 1, 2, 0], [1, 4, 1, 0]]


def test_genes_beyond_the_limit_are_emptied() -> None:
    limit = np.array([1, 2, 2])
    assert evolution.trim_to_limits(GENOMES, limit).tolist() == [[0, EMPTY, 1, EMPTY, 2, 2], [2, 1, 0, 1, EMPTY, EMPTY]]
    assert evolution.trim_to_limits(GENOMES, np.array([2, 4, 2])) is GENOMES


def test_children_have_their_parents_genes() -> None:
    parents = np.random.default_rng(0).integers(0, 50, (6, 40))
    offspring = evolution.uniform_crossover(parents, np.random.default_rng(1))
    assert offspring.shape == parents.shape
    for column in range(40):
        assert sorted(offspring[:, column]) == sorted(parents[:, column])
    assert not (np.sort(offspring, axis=0) == offspring).all()


def test_mutants_lose_whole_jobs_but_no_young_ones() -> None:
    parents = np.repeat(GENOMES[:1], 200, axis=0)
    held = evolution.gpus_per_job(
        evolution.uniform_mutation(parents, np.array([False, True, False]), 0.3, np.random.default_rng(0)), 3
    )
    assert set(held[:, 0]) == {0, 2}
    assert set(held[:, 1]) == {1}
    assert (held[:, 0] == 0).mean() == pytest.approx(0.3, abs=0.12)


def test_free_gpus_are_offered_in_turn() -> None:
    held = np.array([[0, 1, 0], [4, 0, 0]])
    limit, least = np.array([4, 2, 3]), np.array([1, 1, 1])
    turn = np.array([2, 1, 0])
    assert evolution.fill_free_gpus(held, 6, turn, limit, least).tolist() == [[1, 2, 3], [4, 0, 2]]


def test_jobs_that_need_several_gpus_get_them_or_none() -> None:
    held = np.array([[1, 0, 0]])
    limit, least = np.array([2, 3, 1]), np.array([2, 3, 1])
    turn = np.array([0, 1, 2])
    assert evolution.fill_free_gpus(held, 4, turn, limit, least).tolist() == [[2, 0, 1]]
    assert evolution.fill_free_gpus(held, 1, turn, limit, least).tolist() == [[0, 0, 1]]


def test_jobs_of_unchanged_size_keep_their_genes() -> None:
    deployed = np.array([0, 0, 1, 2, 2, EMPTY])
    laid = evolution.reorder(np.array([[2, 2, 1], [2, 1, 2]]), deployed, np.array([2, 1, 0]))
    assert laid.tolist() == [[0, 0, 2, 1, 1, EMPTY], [0, 0, 1, 2, 2, EMPTY]]


def test_throughput_is_interpolated_from_none_at_none() -> None:
    rates = Throughputs.of([[(2.0, 10.0), (4.0, 14.0)], [(1.0, 3.0)], [(1.0, 5.0), (2.0, 4.0)]])
    at = rates.at(np.array([0, 0, 0, 0, 1, 1, 2]), np.array([1, 2, 3, 6, 1, 4, 8]))
    assert at.tolist() == [5.0, 10.0, 12.0, 18.0, 3.0, 12.0, 4.0]


def test_the_score_is_the_gpu_seconds_that_are_left() -> None:
    rates = Throughputs.of([[(1.0, 2.0), (2.0, 3.0)], [(1.0, 1.0)]])
    assert evolution.scores(np.array([[2, 1], [1, 0]]), np.array([6.0, 5.0]), rates).tolist() == [2 * 6 / 3 + 5, 6 / 2]


def test_the_best_are_chosen_once_each() -> None:
    held = np.array([[1, 0], [0, 1], [1, 0], [0, 2]])
    assert evolution.select_best(held, np.array([1.0, 3.0, 1.0, 2.0]), 3).tolist() == [0, 3, 1]
    assert evolution.select_best(held, np.array([1.0, 3.0, 1.0, 2.0]), 4).tolist() == [0, 3, 1, 2]


@pytest.mark.parametrize("genome", [[], [3], [1, 1, EMPTY, 1], [0, 1, 2]])
def test_runs_give_the_genome_back(genome: list[int]) -> None:
    assert evolution.decode_genome(evolution.encode_genome(np.array(genome, np.int64))).tolist() == genome


def test_new_jobs_get_one_gpu_each_in_order() -> None:
    _, allocation = decide([job(number) for number in range(10)], cluster(2))
    assert sizes(allocation) == {str(number): 1 for number in range(8)}


def test_the_size_limit_doubles_every_two_epochs() -> None:
    policy, on, state = Ones(), cluster(4), None
    now, held = job(0), []
    for epoch in range(8):
        now = replace(now, reports=(*now.reports, Report(float(epoch), 10.0 * epoch, 1.0, 1.0)))
        state, allocation = decide([now], on, policy, state)
        held.append(allocation[now.key].size)
        if now.grant != allocation[now.key]:
            now = replace(now, grant=allocation[now.key], since_s=float(epoch))
    # a job must also have run an epoch on its GPUs before it is moved, which two epochs cover
    assert held == [1, 1, 1, 2, 2, 4, 4, 8]


def test_nobody_is_displaced_before_an_epoch_on_its_gpus() -> None:
    long = running(job(0, epochs=5, iterations=10_000), "n0", since_s=5.0)
    short = [job(number, epochs=9) for number in (1, 2)]
    one = cluster(1, gpus=1)
    state = None
    for seed in range(20):
        state, allocation = decide([long, *short], one, state=state, seed=seed)
        assert sizes(allocation) == {"0": 1}
    settled = replace(long, since_s=4.0)
    seen = set()
    for seed in range(20):
        state, allocation = decide([settled, *short], one, state=state, seed=seed)
        seen |= set(sizes(allocation))
    assert seen & {"1", "2"}


def test_the_job_with_less_left_is_preferred() -> None:
    jobs = [job(0, epochs=5, iterations=10_000), job(1, epochs=95, iterations=1000)]
    wins = [sizes(decide(jobs, cluster(1, gpus=1), seed=seed)[1]) for seed in range(30)]
    assert sum("1" in win for win in wins) > 25


def test_hysteresis_leaves_jobs_alone() -> None:
    jobs = [running(job(0, epochs=5, iterations=200), "n0"), job(1, epochs=9)]
    one = cluster(1, gpus=1)
    moved = [sizes(decide(jobs, one, Ones(hysteresis=share), seed=3)[1]) for share in (0.0, 1.0)]
    assert moved == [{"1": 1}, {"0": 1}]


def test_between_two_searches_free_gpus_are_handed_out() -> None:
    policy, on = Ones(interval_s=60.0), cluster(1, gpus=2)
    first = job(0)
    state, allocation, wake = policy.allocate(policy.initial(), on, [first], 100.0, Random(0))
    assert wake == 160.0
    held = replace(first, grant=allocation[first.key], since_s=100.0)
    again, allocation, wake = policy.allocate(state, on, [held, job(1)], 110.0, Random(0))
    assert sizes(allocation) == {"0": 1, "1": 1}
    assert (again.genomes, wake) == (state.genomes, 160.0)


def test_a_lost_node_and_jobs_that_ended_leave_the_population() -> None:
    jobs = [running(job(0, epochs=3), "n0"), running(job(1, epochs=3), "n1", 2), job(2)]
    state, _ = decide(jobs, cluster(3))
    after, allocation = decide(jobs[1:], Cluster((Node("n0", 4), Node("n2", 4))), state=state)
    assert {node for grant in allocation.values() for node, _ in grant.gpus} <= {"n0", "n2"}
    assert set(after.jobs) == {"study/1", "study/2"}


@pytest.mark.parametrize(("gpus", "count"), [(0, 3), (4, 0), (0, 0), (1, 1000)])
def test_odd_situations(gpus: int, count: int) -> None:
    jobs = [job(number, epochs=number % 3) for number in range(count)]
    _, allocation = decide(jobs, cluster(1, gpus))
    assert sum(grant.size for grant in allocation.values()) == min(gpus, count)


def test_gangs_are_whole_and_what_never_fits_waits() -> None:
    jobs = [job(0, gpus=8), job(1, gpus=3), job(2, gpus=2, min_gpus=2, epochs=3), job(3)]
    for seed in range(10):
        _, allocation = decide(jobs, cluster(1), seed=seed)
        assert "0" not in sizes(allocation)
        assert sum(sizes(allocation).values()) == 4


def test_decisions_repeat_and_the_state_survives_json() -> None:
    jobs = [job(number, epochs=number) for number in range(12)]
    adapter, state = TypeAdapter(OnesState), None
    for seed in range(4):
        one = decide(jobs, cluster(2), state=state, seed=seed)
        assert one == decide(jobs, cluster(2), state=state, seed=seed)
        state = one[0]
        assert adapter.validate_json(adapter.dump_json(state)) == state
        hash(state)


def test_garbage_is_survived() -> None:
    nan, inf = float("nan"), float("inf")
    bad = replace(
        job(0),
        reports=(Report(1.0, 10.0, nan, 0.0, nan), Report(2.0, 20.0, inf, 0.0)),
        speeds=(Speed(1, 1, 0, 16, nan), Speed(2, 1, 0, 16, 0.0)),
    )
    state, allocation = decide([bad, job(1)], cluster(1))
    assert sum(sizes(allocation).values()) == 2
    assert TypeAdapter(OnesState).validate_json(TypeAdapter(OnesState).dump_json(state)) == state


def test_it_learns_from_jobs_that_end() -> None:
    training = ProgressTraining().updated(
        [job(number, epochs=4, iterations=50) for number in range(JOBS_PER_TRAINING)], Random(0)
    )
    assert (training.model, len(training.tracked)) == (None, JOBS_PER_TRAINING)
    training = training.updated([], Random(0))
    assert training.tracked == ()
    assert training.model is not None
    assert {sample.total for sample in training.ended_samples} == {5.0}  # the last epoch ends with the job, unseen
    assert training.ended_jobs == 0


def test_it_does_not_take_jobs_that_were_killed_for_complete() -> None:
    killed, ended = job(0, epochs=2, iterations=50), job(1, epochs=2, iterations=30)
    training = ProgressTraining().updated([killed, ended], Random(0)).updated([], Random(0))
    assert {(sample.epochs, sample.total) for sample in training.ended_samples} == {(2.0, 3.0)}
    assert training.ended_jobs == 1


@pytest.mark.parametrize("epochs", [1, 2, 5])
def test_what_it_learns_is_how_long_jobs_ran(epochs: int) -> None:
    seen: list[OnesState] = []

    class Watching(Ones):
        def allocate(self, *asked: Any) -> Any:
            decided = super().allocate(*asked)
            seen.append(decided[0])
            return decided

    one = SimulatedJob(Request(iterations=10 * epochs, epoch=10), Exponential(0.1, 0.05))
    arrivals = [Arrival(0.0, "s", f"t{i}", one) for i in range(4)]
    simulate_gpus(Watching(), cluster(1).nodes, arrivals)
    learnt = seen[-1].training
    # of a job of one epoch nothing is seen that one could learn from
    assert {sample.total for sample in learnt.ended_samples} == ({float(epochs)} if epochs > 1 else set())
    assert learnt.ended_jobs == (4 if epochs > 1 else 0)
