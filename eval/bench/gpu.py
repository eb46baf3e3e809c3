"""How long GPU policies take: a decision of each by cluster size, Optimus' at its published scale, ONES' generations.

Times are CPU seconds of the process, so that what else runs on the machine does not count; ratios are to the first policy, in
the same run. There are two kinds of decision: the *first* about jobs of which nothing is remembered, as after a restart of the
scheduler, and the *next*, an interval later, when all running jobs have reported again.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import log
from random import Random
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from beamer.gpu.model import Allocation, Cluster, Costs, Grant, Job, Node, Report, Request, Speed, Stage, check_allocation
from beamer.gpu.placement import CompactPlacer
from beamer.gpu.policies import GPU_POLICIES, GpuPolicy, gpu_policy

GPUS, CPUS = 4, 16.0  # A node has so many.
SIZES = (64, 256, 1_024, 4_000)  # GPUs
JOBS_PER_GPU = 2.5
SUSPENDED = 0.1  # A share of the jobs.
ASKED = (1, 1, 1, 2, 2, 4, 8)  # GPUs, each as often as it is listed
SMALLER, LARGER = 2, 4  # A job runs on so many times fewer or more GPUs than it asks for.
SEARCH = 20  # jobs
SHAPES = (1, 2, 4)  # GPUs that jobs have been measured on
REPEATS = 3
INTERVAL_S = 600.0
ANCHOR_NODES, ANCHOR_JOBS, ANCHOR_GPUS, ANCHOR_CPUS = 16_000, 4_300, 8, 32.0
ANCHOR_MAX_GPUS = 40  # A job has at most so many GPUs, which brings the round to some 100 000 tasks.
PUBLISHED = "Optimus, as published: 100 000 tasks on 16 000 nodes in about 5 s"
GENERATIONS = 8

Figures = dict[str, Any]


@dataclass(frozen=True)
class GpuLoad:
    """A cluster and the jobs that have not ended, in order of submission, at `now`."""

    cluster: Cluster
    jobs: tuple[Job, ...]
    now: float = 86_400.0

    def after(self, allocation: Allocation, rng: Random) -> "GpuLoad":
        """Return what there is an interval after `allocation` was carried out and every job that runs has reported once."""
        now = self.now + INTERVAL_S
        jobs = []
        for job in self.jobs:
            grant = allocation.get(job.key)
            if grant != job.grant:
                job = job.regranted(grant, self.now)
            if grant:
                job = replace(job, speeds=measured_speeds(job, grant)).heard_at(now, _reported(job, now, rng))
            jobs.append(job)
        return GpuLoad(self.cluster, tuple(jobs), now)


def mixed(gpus: int, rng: Random) -> GpuLoad:
    """Return a full cluster of so many GPUs, some suspended jobs, and a queue: `JOBS_PER_GPU` in all.

    Jobs come from searches; half of those have a target, the others are judged at the end of a stage. One job in four has
    parameter servers, every other measures its gradients.
    """
    cluster = Cluster(tuple(Node(f"n{i}", GPUS, CPUS) for i in range(gpus // GPUS)))
    count = int(gpus * JOBS_PER_GPU)
    jobs = [_waiting(i, count, rng) for i in range(count)]
    placer, started = CompactPlacer(cluster), 0
    for i, job in enumerate(jobs):
        grant = placer.place(job, job.request.gpus)
        if grant is None:
            break
        running = replace(_experienced(job, rng), grant=grant, last=grant)
        jobs[i], started = running.heard_at(GpuLoad.now), i + 1
    for i in range(started, min(started + int(count * SUSPENDED), count)):
        before = {
            f"n{node}": 1 for node in rng.sample(range(len(cluster.nodes)), min(jobs[i].request.gpus, len(cluster.nodes)))
        }
        jobs[i] = replace(_experienced(jobs[i], rng), last=Grant.of(before, before if jobs[i].request.servers else None))
    return GpuLoad(cluster, tuple(jobs))


def _waiting(i: int, count: int, rng: Random) -> Job:
    asked, batch_size = rng.choice(ASKED), rng.choice((32, 64, 128))
    search, epoch = i // SEARCH, rng.choice((50, 100, 200))
    request = Request(
        iterations=epoch * rng.randrange(20, 100),
        gpus=asked,
        min_gpus=max(asked // SMALLER, 1),
        max_gpus=asked * LARGER,
        epoch=epoch,
        batch_size=batch_size,
        max_batch_size=batch_size * 8,
        learning_rate=0.01,
        max_learning_rate=0.08,
        target_loss=0.6 if search % 2 else None,
        servers=i % 4 == 3,
        worker_cpus=1.0,
        server_cpus=1.0,
    )
    stage = Stage(f"s{search}", "0", SEARCH, None if search % 2 else SEARCH // 4)
    return Job.waiting(f"j{i}", request, i * GpuLoad.now / count, stage, Costs(1.0, 1.0, 30.0))


def _experienced(job: Job, rng: Random) -> Job:
    """Return a job that has run for a while, on several numbers of GPUs, and was heard of until it stopped."""
    for _ in range(rng.randrange(1, 20)):
        job = replace(job, reports=(*job.reports, _reported(job, job.submitted_s, rng)))
    for gpus in SHAPES[: rng.randrange(1, len(SHAPES) + 1)]:
        job = replace(job, speeds=measured_speeds(job, Grant.of({"": gpus}, {"": gpus} if job.request.servers else None)))
    service_s = job.reports[-1].service_s
    return replace(
        job,
        since_s=rng.uniform(job.submitted_s, GpuLoad.now),
        service_s=service_s,
        gpu_s=service_s * job.request.gpus,
        heard_s=service_s,
    )


def _reported(job: Job, at_s: float, rng: Random) -> Report:
    return next_report(job, at_s, rng, gradients=int(job.key[1:]) % 2 == 1)


def next_report(job: Job, at_s: float, rng: Random, gradients: bool = False) -> Report:
    """Return what a job reports an epoch further on. gradients: whether it has measured them."""
    done = job.done + job.request.epoch
    service_s = (job.reports[-1].service_s if job.reports else 0.0) + 0.2 * job.request.epoch
    loss = 1.0 / (2e-3 / _difficulty(job) * done + 0.5) + 0.3 * _difficulty(job) + rng.gauss(0.0, 0.01)
    gradient = (1.0, rng.uniform(1.0, 20.0)) if gradients else (0.0, 0.0)
    return Report(at_s, done, loss, service_s, None, *gradient)


def measured_speeds(job: Job, grant: Grant) -> tuple[Speed, ...]:
    """Return what a job has measured, the shape it runs on included."""
    workers, servers, batch = grant.size, grant.served, grant.batch_size or job.request.batch_size
    sync_s = 0.02 * (workers > 1) + 0.01 * (grant.nodes > 1)
    if servers:
        sync_s += 0.05 * workers / servers + 2e-3 * (workers + servers)
    speed = Speed(workers, grant.nodes, servers, batch, _difficulty(job) * (0.05 + 2e-3 * batch / workers) + sync_s, sync_s)
    others = (s for s in job.speeds if (s.gpus, s.nodes, s.servers, s.batch_size) != (workers, grant.nodes, servers, batch))
    return (*others, speed)


def _difficulty(job: Job) -> float:
    return Random(job.key).uniform(0.5, 2.0)


def _decided(policy: GpuPolicy[Any], load: GpuLoad, state: Any, seed: int) -> tuple[float, Any, Allocation]:
    start = time.process_time()
    state, allocation, _ = policy.allocate(state, load.cluster, load.jobs, load.now, Random(seed))
    return time.process_time() - start, state, allocation


def decisions(name: str, loads: Sequence[GpuLoad]) -> tuple[float, float]:
    """Return the median CPU seconds of the first decision about each of `loads`, and of the next one. Raises `InputError`.

    Nothing may be known of the loads from before: draw them anew for each policy that is measured.
    """
    policy = gpu_policy(name)
    first, following = [], []
    for seed, load in enumerate(loads):
        taken, state, allocation = _decided(policy, load, policy.initial(), seed)
        check_allocation(load.cluster, load.jobs, allocation)
        first.append(taken)
        load = load.after(allocation, Random(seed))
        taken, _, allocation = _decided(policy, load, state, seed)
        check_allocation(load.cluster, load.jobs, allocation)
        following.append(taken)
    return median(first), median(following)


def growth(sizes: Sequence[int], repeats: int = REPEATS) -> Iterator[Figures]:
    """Yield the seconds of a decision of each policy on clusters of so many GPUs, policy by policy."""
    base: dict[int, tuple[float, float]] = {}
    for number, name in enumerate(GPU_POLICIES):
        decisions(name, [mixed(sizes[0], Random(name))])  # This imports and compiles what the policy needs.
        taken = {
            gpus: decisions(name, [mixed(gpus, Random(f"{number} {repeat}")) for repeat in range(repeats)]) for gpus in sizes
        }
        base = base or taken
        yield {
            "policy": name,
            "first_s": {gpus: first for gpus, (first, _) in taken.items()},
            "next_s": {gpus: after for gpus, (_, after) in taken.items()},
            "ratio": {gpus: first / base[gpus][0] for gpus, (first, _) in taken.items()},
            "exponent": exponent({gpus: first for gpus, (first, _) in taken.items()}),
        }


def exponent(seconds: dict[int, float]) -> float | None:
    """Return the power of the size with which the time grew between the last two sizes; None with one size."""
    if len(seconds) < 2:
        return None
    (small, small_s), (large, large_s) = list(seconds.items())[-2:]
    return log(max(large_s, 1e-9) / max(small_s, 1e-9)) / log(large / small)


def _anchor_load() -> GpuLoad:
    """Return empty nodes, and as many jobs with parameter servers as come to the published number of tasks."""
    rng = Random(0)
    cluster = Cluster(tuple(Node(f"n{i}", ANCHOR_GPUS, ANCHOR_CPUS) for i in range(ANCHOR_NODES)))
    jobs = []
    for i in range(ANCHOR_JOBS):
        job = _waiting(4 * i + 3, 4 * ANCHOR_JOBS, rng)
        request = replace(job.request, gpus=1, min_gpus=1, max_gpus=rng.randrange(1, ANCHOR_MAX_GPUS + 1))
        job = _experienced(replace(job, request=request), rng)
        for workers, servers in product(SHAPES, SHAPES):
            job = replace(job, speeds=measured_speeds(job, Grant.of({"": workers}, {"": servers})))
        jobs.append(job)
    return GpuLoad(cluster, tuple(jobs))


def anchor(load: GpuLoad | None = None, repeats: int = REPEATS) -> Figures:
    """Return the seconds of a round of Optimus at its published scale; the ratio is to `fifo` on the same load."""
    load = load or _anchor_load()
    seconds: dict[str, float] = {}
    tasks = 0
    for name in ("fifo", "optimus"):
        policy, taken = gpu_policy(name), []
        for seed in range(repeats):
            once, _, allocation = _decided(policy, load, policy.initial(), seed)
            taken.append(once)
        check_allocation(load.cluster, load.jobs, allocation)
        tasks = sum(grant.size + grant.served for grant in allocation.values())
        seconds[name] = median(taken)
    return {
        "nodes": len(load.cluster.nodes),
        "jobs": len(load.jobs),
        "tasks": tasks,
        "seconds": seconds["optimus"],
        "ratio": seconds["optimus"] / seconds["fifo"],
        "published": PUBLISHED,
    }


def generations(sizes: Sequence[int], repeats: int = REPEATS) -> Figures:
    """Return the seconds of a generation of ONES by GPUs: what `GENERATIONS` more of them add to a decision, each."""
    one, more = gpu_policy("ones"), gpu_policy("ones", generations=1 + GENERATIONS)
    seconds = {}
    for gpus in sizes:
        load = mixed(gpus, Random(gpus))
        state, allocation = _decided(one, load, one.initial(), 0)[1:]  # This leaves a population to go on with.
        load = load.after(allocation, Random(gpus))
        taken = [[_decided(policy, load, state, seed)[0] for seed in range(repeats)] for policy in (one, more)]
        seconds[gpus] = (median(taken[1]) - median(taken[0])) / GENERATIONS
    return {"generation_s": seconds, "population": one.population, "exponent": exponent(seconds)}  # type: ignore[attr-defined]


def measure(sizes: Sequence[int], console: Console) -> Figures:
    """Print the tables of the GPU level as they come, and return their figures."""
    rows = list(growth(sizes))
    console.print(_growth_table(rows, sizes))
    published = anchor()
    console.print(_anchor_table(published))
    evolution = generations(sizes)
    console.print(_generation_table(evolution))
    return {"decisions": rows, "anchor": published, "ones": evolution}


def _growth_table(rows: Sequence[Figures], sizes: Sequence[int]) -> Table:
    base = rows[0]["policy"]
    title = f"a decision about {JOBS_PER_GPU} jobs per GPU: CPU time, median of {REPEATS}; ratios to {base}"
    table = Table(title=title, title_justify="left")
    table.add_column("policy")
    columns = [f"{gpus} GPUs" for gpus in sizes]
    for column in (*columns, "ratio", "grows as n^", "next, with what it knows"):
        table.add_column(column, justify="right")
    for row in rows:
        cells = [_seconds(row["first_s"][gpus]) for gpus in sizes]
        power = "" if row["exponent"] is None else f"{row['exponent']:.1f}"
        table.add_row(row["policy"], *cells, f"{row['ratio'][sizes[-1]]:.1f}", power, _seconds(row["next_s"][sizes[-1]]))
    return table


def _anchor_table(figures: Figures) -> Table:
    table = Table(title="a round of optimus at its published scale", title_justify="left")
    for column in ("nodes", "jobs", "tasks", "CPU time", "ratio to fifo"):
        table.add_column(column, justify="right")
    table.add_column("published")
    counts = (str(figures[key]) for key in ("nodes", "jobs", "tasks"))
    table.add_row(*counts, _seconds(figures["seconds"]), f"{figures['ratio']:.1f}", figures["published"])
    return table


def _generation_table(figures: Figures) -> Table:
    table = Table(title=f"a generation of ones, population {figures['population']}", title_justify="left")
    for column in ("GPUs", "CPU time"):
        table.add_column(column, justify="right")
    for gpus, seconds in figures["generation_s"].items():
        table.add_row(str(gpus), _seconds(seconds))
    return table


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1.0 else f"{1e3 * seconds:.1f} ms"
