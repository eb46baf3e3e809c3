"""A large cluster: 2 000 jobs on a 512-host leaf-spine, a million iteration-coflows."""

import time
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from beamer.allocation import Classes, Greedy, MaxMin
from beamer.scenario import Scenario, load, parse, shipped
from beamer.sim import Assumptions, simulate
from beamer.workloads import RandomSearch, Workload, generate

TOPOLOGY: Mapping[str, Any] = {
    "shape": "leaf-spine", "leaves": 16, "spines": 8, "hosts_per_leaf": 32, "rate": "10gbit", "uplink_rate": "40gbit",
}  # fmt: skip
CONTENDERS = (("beamer", Greedy()), ("beamer", Classes(queues=8)), ("fair", MaxMin()))
COMPUTE_RATIO = 4.0  # some sixteen jobs share a host: most compute most of the time


def cluster() -> Scenario:
    """Return 100 searches of 20 jobs with 500 iterations each, all at once."""
    search = RandomSearch(trials=20, batch=20, iterations=500)
    workload = Workload(
        seed=0, topology=TOPOLOGY, studies=100, search=search, workers=(4,), placement="random", compute_ratio=COMPUTE_RATIO
    )
    return parse(generate(workload))


def scale_table() -> Table:
    """Return a table with a row per policy; the first is the baseline of the times."""
    scenario = cluster()
    jobs = [job for study in scenario.studies for stage in study.stages for job in stage.jobs]
    coflows = sum(job.iterations for job in jobs)
    title = f"{len(jobs)} jobs, {coflows} iteration-coflows on {len(scenario.fabric.hosts)} hosts"
    table = Table(title=title, title_justify="left")
    for column in ("policy", "allocator", "mean SCT", "wall", "against the first", "coflows/s"):
        table.add_column(column, justify="left" if column in ("policy", "allocator") else "right")
    for policy, allocator in CONTENDERS:
        simulate(load(shipped()), policy, allocator=allocator)  # compile
    base = None
    for policy, allocator in CONTENDERS:
        start = time.perf_counter()
        run = simulate(
            scenario, policy, assumptions=Assumptions(acknowledgements=False, coflows_known=False), allocator=allocator
        )
        wall = time.perf_counter() - start
        base = base or wall
        cells = (f"{run.mean_sct_s:.1f} s", f"{wall:.0f} s", f"{wall / base:.2f}", f"{coflows / wall:.0f}")
        table.add_row(policy, allocator.name, *cells)
    return table
