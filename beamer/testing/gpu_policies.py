"""The conformance suite of GPU policies; run each of `GPU_POLICY_CHECKS` on your own."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import strategies as st

from beamer.decision.state import read_state, write_state
from beamer.engines.simulated import Outcome, SimulatedJob, SimulatedProfile
from beamer.gpu.model import Cluster, Costs, Grant, Job, Node, Report, Request, Speed, Stage, check_allocation
from beamer.gpu.placement import CompactPlacer
from beamer.gpu.policy import GpuPolicy
from beamer.sim.gpu import Arrival, Failure, GpuRun, simulate_gpus
from beamer.testing.profile import of_drawn

GpuPolicyCheck = Callable[[GpuPolicy[Any]], None]

NOW = 10_000.0
UNHEARD_S = st.sampled_from([0.0, 60.0, 5_000.0])
"""Seconds on GPUs since a job was heard of: an ordinary one, and one that policies may take for silent."""
LOSSES = st.one_of(st.floats(0, 10), st.sampled_from([math.nan, math.inf, 0.0]))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Draw up to four nodes, some of them without GPUs."""
    sizes = draw(st.lists(st.integers(0, 8), min_size=0, max_size=4))
    return Cluster(tuple(Node(f"n{i}", gpus, draw(st.sampled_from([0.0, 5.0, 64.0]))) for i, gpus in enumerate(sizes)))


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Draw what a job may ask for."""
    least = draw(st.integers(1, 3))
    gpus = draw(st.integers(least, 6))
    batch_size = draw(st.sampled_from([1, 32, 128]))
    return Request(
        iterations=draw(st.integers(1, 1000)),
        gpus=gpus,
        min_gpus=least,
        max_gpus=draw(st.integers(gpus, 10)),
        gang=draw(st.booleans()),
        epoch=draw(st.integers(1, 50)),
        batch_size=batch_size,
        max_batch_size=draw(st.sampled_from([0, 4 * batch_size])),
        learning_rate=draw(st.sampled_from([0.0, 0.1])),
        max_learning_rate=draw(st.sampled_from([0.0, 0.4])),
        target_loss=draw(st.sampled_from([None, 0.5])),
        servers=draw(st.booleans()),
        worker_cpus=draw(st.sampled_from([0.0, 2.0])),
        server_cpus=draw(st.sampled_from([0.0, 1.0])),
    )


@st.composite
def situations(draw: st.DrawFn, most: int = 6) -> tuple[Cluster, tuple[Job, ...]]:
    """Draw a cluster with jobs that run, wait or are suspended on it, or did on what of it has just been lost."""
    cluster = draw(clusters())
    before = [replace(node, gpus=node.gpus + draw(st.sampled_from([0, 0, 3]))) for node in cluster.nodes]
    placer = CompactPlacer(Cluster((*before, Node("lost", 4, 32.0))))
    jobs = []
    for i in range(draw(st.integers(0, most))):
        request = draw(requests())
        submitted_s = draw(st.floats(0, NOW))
        losses = draw(st.lists(LOSSES, max_size=8))
        reports = tuple(
            Report(submitted_s + k, float(k * request.epoch), loss, float(k), draw(st.sampled_from([None, 0.5])))
            for k, loss in enumerate(losses)
        )
        stage = Stage("s", f"r{i % 2}", 3, draw(st.sampled_from([None, 1])), (0.5, 0.7))
        job = replace(Job.waiting(f"s/t{i}", request, submitted_s, stage, Costs(0.1, 0.1, 5.0)), reports=reports)
        count = draw(st.integers(request.least, request.most))
        grant = placer.place(job, count) if draw(st.booleans()) else None
        if grant:
            speed = Speed(grant.size, grant.nodes, 0, request.batch_size, draw(st.floats(1e-3, 10)))
            job = replace(job, last=grant, service_s=float(len(losses)), gpu_s=float(len(losses)) * count, speeds=(speed,))
            if draw(st.booleans()):
                job = replace(job, grant=grant)
            job = replace(job, heard_s=max(job.service_at(NOW) - draw(UNHEARD_S), 0.0))
        jobs.append(job)
    return cluster, tuple(jobs)


@of_drawn(situations(), st.integers(0, 3))
def stays_within_the_cluster(policy: GpuPolicy[Any], situation: tuple[Cluster, tuple[Job, ...]], seed: int) -> None:
    """No node is given away twice, gangs are whole, sizes are between those asked for, and the time to ask again lies ahead."""
    cluster, jobs = situation
    state = policy.initial()
    for now in (NOW, NOW + 1, NOW + 5000):
        state, allocation, wake_at = policy.allocate(state, cluster, jobs, now, Random(seed))
        check_allocation(cluster, jobs, allocation)
        assert wake_at is None or now < wake_at < math.inf
        if not policy.resizes:
            assert all(grant.size <= job.request.gpus for job in jobs if (grant := allocation.get(job.key)) and not job.grant)


@of_drawn(situations(), st.integers(0, 3))
def repeats_itself(policy: GpuPolicy[Any], situation: tuple[Cluster, tuple[Job, ...]], seed: int) -> None:
    """Equal arguments give equal results."""
    cluster, jobs = situation
    first = policy.allocate(policy.initial(), cluster, jobs, NOW, Random(seed))
    assert first == policy.allocate(policy.initial(), cluster, jobs, NOW, Random(seed))
    state = first[0]
    again = policy.allocate(state, cluster, jobs, NOW + 60, Random(seed))
    assert again == policy.allocate(state, cluster, jobs, NOW + 60, Random(seed))


@of_drawn(situations())
def state_survives_json(policy: GpuPolicy[Any], situation: tuple[Cluster, tuple[Job, ...]]) -> None:
    """What a policy remembers can be journaled and read back."""
    cluster, jobs = situation
    state, _, _ = policy.allocate(policy.initial(), cluster, jobs, NOW, Random(0))
    assert read_state(policy, json.loads(json.dumps(write_state(policy, state)))) == state


def grants_nothing_without_nodes_or_jobs(policy: GpuPolicy[Any]) -> None:
    """Nothing is granted on an empty cluster or for an empty queue, and nothing fails."""
    job = Job.waiting("s/t", Request(iterations=10), 0.0, Stage("s", "r"))
    for cluster, jobs in ((Cluster(()), ()), (Cluster(()), (job,)), (Cluster((Node("n", 4),)), ())):
        _, allocation, _ = policy.allocate(policy.initial(), cluster, jobs, NOW, Random(0))
        assert not allocation


def handles_a_thousand_jobs_per_gpu(policy: GpuPolicy[Any]) -> None:
    """A thousand times as many jobs as GPUs leave no GPU idle and none given twice."""
    cluster = Cluster((Node("n0", 2), Node("n1", 2)))
    jobs = tuple(Job.waiting(f"s/t{i}", Request(iterations=10), float(i) / 1000, Stage("s", "r")) for i in range(4000))
    _, allocation, _ = policy.allocate(policy.initial(), cluster, jobs, NOW, Random(0))
    check_allocation(cluster, jobs, allocation)
    assert sum(grant.size for grant in allocation.values()) == cluster.gpus


class Exponential(SimulatedProfile):
    """Speeds up with the square root of its GPUs; its loss falls exponentially."""

    def __init__(self, floor: float, rate: float) -> None:
        self._floor, self._rate = floor, rate

    def step_s(self, grant: Grant, batch_size: int) -> tuple[float, float]:
        """Return the step's seconds, a hundredth of one for synchronising."""
        return (batch_size / 32) ** 0.5 / grant.size**0.5, 0.01

    def outcome(self, iteration: float) -> Outcome:
        """Return the loss, and as accuracy what is missing to 1."""
        loss = self._floor + (1 - self._floor) * math.exp(-self._rate * iteration)
        return Outcome(loss, 1 - loss)

    def gradient(self, batch_size: int, iteration: float) -> tuple[float, float]:
        """Return gradients of a noise scale of ten times the batch size requested."""
        return 1.0, 10.0


def _workload(seed: int, jobs: int = 12) -> list[Arrival]:
    rng = Random(seed)
    arrivals = []
    for i in range(jobs):
        gpus = rng.choice([1, 1, 2, 4])
        request = Request(iterations=rng.randint(20, 60), gpus=gpus, min_gpus=1, max_gpus=6, epoch=10, batch_size=32)
        job = SimulatedJob(request, Exponential(rng.choice([0.1, 0.8]), 0.05), Costs(0.1, 0.1, 2.0))
        arrivals.append(Arrival(rng.uniform(0, 100), f"s{i % 2}", f"t{i}", job))
    return arrivals


NODES = (Node("n0", 4), Node("n1", 4))


class _Checked(GpuPolicy[Any]):
    """A policy that is asked within a simulation, its answers checked."""

    def __init__(self, policy: GpuPolicy[Any]) -> None:
        self._policy = policy
        self.name = policy.name  # type: ignore[misc]  # The wrapper stands for the other policy.
        self.State = policy.State

    def initial(self) -> Any:
        return self._policy.initial()

    def allocate(self, state: Any, cluster: Cluster, jobs: Any, now: float, rng: Random) -> Any:
        decided = self._policy.allocate(state, cluster, jobs, now, rng)
        check_allocation(cluster, jobs, decided[1])
        return decided


def _run(policy: GpuPolicy[Any], seed: int, failures: tuple[Failure, ...] = ()) -> GpuRun:
    return simulate_gpus(_Checked(policy), NODES, _workload(seed), failures=failures, seed=seed, until_s=1e6)


def ends_every_job(policy: GpuPolicy[Any]) -> None:
    """Every job of a small workload ends, and a run repeats itself by its seed."""
    for seed in range(3):
        run = _run(policy, seed)
        assert [job.key for job in run.jobs if job.ended_s is None] == []
        assert run.jobs == _run(policy, seed).jobs


def survives_a_lost_node(policy: GpuPolicy[Any]) -> None:
    """Every job ends although a node goes and comes back, and another goes for good."""
    for seed in range(3):
        run = _run(policy, seed, (Failure(40.0, "n0", 90.0), Failure(120.0, "n1")))
        assert [job.key for job in run.jobs if job.ended_s is None] == []


def skips_jobs_that_fit_nowhere(policy: GpuPolicy[Any]) -> None:
    """A job too large for the cluster, or whose cores no node has, blocks no other, and the run ends without it."""
    ordinary = SimulatedJob(Request(iterations=10, gpus=4, min_gpus=4), Exponential(0.1, 0.1))
    for request in (Request(iterations=10, gpus=64, min_gpus=64), Request(iterations=10, worker_cpus=8.0)):
        jobs = (SimulatedJob(request, Exponential(0.1, 0.1)), ordinary)
        arrivals = [Arrival(0.0, "s", f"t{i}", job) for i, job in enumerate(jobs)]
        stuck, done = simulate_gpus(policy, (Node("n", 4, 4.0),), arrivals).jobs
        assert done.ended_s is not None
        assert stuck.gpu_s == 0


def lets_every_job_advance(policy: GpuPolicy[Any]) -> None:
    """Under a fair policy every job has made progress long before one that came with it has ended."""
    if not policy.fair:
        return
    arrivals = [
        Arrival(0.0, "s", f"t{i}", SimulatedJob(Request(iterations=100_000, epoch=20), Exponential(0.1 * (i % 9), 0.01)))
        for i in range(32)
    ]
    run = simulate_gpus(policy, (Node("n", 4),), arrivals, until_s=10_000.0)
    assert [job.key for job in run.jobs if job.ended_s is not None] == []
    assert [job.key for job in run.jobs if job.gpu_s == 0] == []


GPU_POLICY_CHECKS: tuple[GpuPolicyCheck, ...] = (
    stays_within_the_cluster,
    repeats_itself,
    state_survives_json,
    grants_nothing_without_nodes_or_jobs,
    handles_a_thousand_jobs_per_gpu,
    ends_every_job,
    survives_a_lost_node,
    skips_jobs_that_fit_nowhere,
    lets_every_job_advance,
)
"""What every GPU policy has to pass: each takes a policy."""
