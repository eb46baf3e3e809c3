"""A large cluster: 2 000 jobs on a 512-host leaf-spine, up to a million iteration-coflows; smaller and larger ones.

Greedy rates change along the order. Of max-min rates, and those of classes, an event changes a few percent, and costs what it
changes.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from beamer.network.allocation import Allocator, Classes, Greedy, MaxMin
from beamer.sim import Assumptions, SimResult, simulate
from beamer.workloads.generate import Workload, generate
from beamer.workloads.scenario import Scenario, load, parse, shipped
from beamer.workloads.searches import RandomSearch
from eval.bench.gpu import exponent
from eval.bench.phases import PHASES, measured_phases

TOPOLOGY: Mapping[str, Any] = {
    "shape": "leaf-spine", "spines": 8, "hosts_per_leaf": 32, "rate": "10gbit", "uplink_rate": "40gbit",
}  # fmt: skip
HOSTS = 512
GROWTH = (64, 128, 256, 512, 1024)
ITERATIONS = 10
CONTENDERS = (("beamer", Greedy(), 500), ("beamer", Classes(queues=8), ITERATIONS), ("fair", MaxMin(), ITERATIONS))
COMPUTE_RATIO = 4.0  # some sixteen jobs share a host: most compute most of the time


def cluster(iterations: int, hosts: int = HOSTS, compute_jitter: float = 0.0) -> Scenario:
    """Return 100 searches of 20 jobs with so many iterations each, all at once; on fewer hosts, as many fewer searches.

    compute_jitter: by which the computing of a search's jobs differs, as of a `Workload`.
    """
    per_leaf = min(int(TOPOLOGY["hosts_per_leaf"]), hosts // 2)  # There are two leaves at least, or spines would carry nothing.
    workload = Workload(
        seed=0,
        topology={**TOPOLOGY, "leaves": hosts // per_leaf, "hosts_per_leaf": per_leaf},
        studies=100 * hosts // HOSTS,
        search=RandomSearch(trials=20, batch=20, iterations=iterations),
        workers=(4,),
        placement="random",
        compute_ratio=COMPUTE_RATIO,
        compute_jitter=compute_jitter,
    )
    return parse(generate(workload))


def whole(scenario: Scenario, policy: str, allocator: Allocator) -> SimResult:
    """Simulate a scenario, decisions included, with what a live system knows."""
    return simulate(scenario, policy, assumptions=Assumptions(acknowledgements=False, coflows_known=False), allocator=allocator)


def growth_table(policy: str, allocator: Allocator, sizes: Sequence[int] = GROWTH) -> Table:
    """Return a table with a row per number of hosts, as many jobs on each: CPU seconds by phase, and how they grow."""
    title = f"{ITERATIONS} iterations under {policy} and {allocator.name}: CPU seconds, and the power of hosts they grow by"
    table = Table(title=title, title_justify="left")
    for column in ("hosts", "jobs", "coflows", "coflows/s", *PHASES, "all"):
        table.add_column(column, justify="right")
    whole(cluster(1, min(sizes)), policy, allocator)  # This compiles what is timed below.
    taken: dict[str, dict[int, float]] = {name: {} for name in (*PHASES, "all")}
    for hosts in sizes:
        scenario = cluster(ITERATIONS, hosts)
        jobs = [job for study in scenario.studies for stage in study.stages for job in stage.jobs]
        with measured_phases() as seconds:
            whole(scenario, policy, allocator)
        for name, phase_s in (*seconds.items(), ("all", sum(seconds.values()))):
            taken[name][hosts] = phase_s
        coflows = sum(job.iterations for job in jobs)
        cells = [f"{of[hosts]:.2f}{_power(of)}" for of in taken.values()]
        table.add_row(str(hosts), str(len(jobs)), str(coflows), f"{coflows / taken['all'][hosts]:.0f}", *cells)
    return table


def _power(seconds: dict[int, float]) -> str:
    power = exponent(seconds)
    return "" if power is None else f" (n^{power:.1f})"


def scale_table() -> Table:
    """Return a table with a row per policy; the first is the baseline of the coflows simulated per second."""
    table = Table(title=f"2 000 jobs on {HOSTS} hosts", title_justify="left")
    for column in ("policy", "allocator", "iteration-coflows", "mean SCT", "wall", "coflows/s", "against the first"):
        table.add_column(column, justify="left" if column in ("policy", "allocator") else "right")
    for policy, allocator, _ in CONTENDERS:
        simulate(load(shipped()), policy, allocator=allocator)  # This compiles what is timed below.
    base = None
    for policy, allocator, iterations in CONTENDERS:
        scenario = cluster(iterations)
        coflows = sum(job.iterations for study in scenario.studies for stage in study.stages for job in stage.jobs)
        start = time.perf_counter()
        run = whole(scenario, policy, allocator)
        wall = time.perf_counter() - start
        rate = coflows / wall
        base = base or rate
        cells = (f"{coflows}", f"{run.mean_sct_s:.1f} s", f"{wall:.0f} s", f"{rate:.0f}", f"{rate / base:.3f}")
        table.add_row(policy, allocator.name, *cells)
    return table
