"""The time that one order of count stages takes, beside a plain dense numpy loop over the same loads."""

import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from statistics import median

import numpy as np
from rich.table import Table

from beamer.network.arrays import Floats, Ints
from beamer.network.assignment import assign_classes
from beamer.network.bssi import Items, improved, sequence
from beamer.network.policies import Order, network_policy
from beamer.network.snapshot import CoflowColumns, JobColumns, RunningStudy, Snapshot
from beamer.network.work import remaining_work

JOBS = 8  # A stage has so many jobs.
HOSTS = 8  # A job has so many hosts: a ring loads an uplink and a downlink of each.
REPEATS = 5
LINKS_PER_STAGE = 10
DENSEST = 1_000  # The dense loop is worth waiting for up to so many stages.


def situation(stages: int, rng: Random) -> Snapshot:
    """Return `stages` running stages of ring jobs on ten times as count links, each a study of its own."""
    links = LINKS_PER_STAGE * stages
    count = JOBS * stages
    hosts = np.sort(np.array([rng.sample(range(links // 2), min(HOSTS, links // 2)) for _ in range(count)], np.int64), axis=1)
    link = np.concatenate((hosts, hosts + links // 2), axis=1)
    gamma = np.array([rng.uniform(0.01, 0.1) for _ in range(count)])
    compute = np.array([rng.uniform(0.0, 0.1) for _ in range(count)])
    first = np.arange(count + 1) * link.shape[1]
    stage = np.repeat(np.arange(stages), JOBS)
    jobs = JobColumns(
        key=tuple(f"s{i // JOBS}/r/j{i % JOBS}" for i in range(count)),
        stage=stage,
        study=stage,
        started_s=np.zeros(count),
        compute_s=compute,
        overlap=np.zeros(count),
        iteration_s=compute + gamma,
        size_bits=gamma * 1e9,
        longest_bits=gamma * 1e9,
        senders=np.full(count, HOSTS),
        receivers=np.full(count, HOSTS),
        sender_bps=np.full(count, 1e10),
        first=first,
        link=link.ravel(),
        seconds=np.repeat(gamma, link.shape[1]),
    )
    return Snapshot(
        capacity_bps=np.full(links, 1e10),
        studies=tuple(RunningStudy(f"s{i}", 1.0) for i in range(stages)),
        stages=tuple(f"s{i}/r" for i in range(stages)),
        stage_weight=np.ones(stages),
        since_s=np.zeros(stages),
        jobs=jobs,
        remaining=np.array([rng.randint(1, 50) for _ in range(count)], np.int64),
        klass=np.full(count, -1),
        coflows=CoflowColumns.to_come(jobs),
    )


def dense(weights: Floats, load: Floats) -> list[int]:
    """Order the rows of a dense table by BSSI, a numpy statement per step: the baseline."""
    weight, left, total, order = weights.copy(), np.ones(len(load), np.bool_), load.sum(axis=0), []
    for _ in range(len(load)):
        column = load[:, int(np.argmax(total))]
        ratio = np.where(left & (column > 0), weight / np.maximum(column, 1e-300), np.inf)
        last = int(np.argmin(ratio))
        weight = np.maximum(weight - ratio[last] * column, 0.0)
        left[last] = False
        total = total - load[last]
        order.append(last)
    return order[::-1]


def _stage_loads(snapshot: Snapshot) -> Floats:
    jobs = snapshot.jobs
    load = np.zeros((len(snapshot.stages), len(snapshot.capacity_bps)))
    np.add.at(load, (jobs.stage[jobs.owner], jobs.link), snapshot.left_s)
    return load


def _fresh(snapshot: Snapshot) -> Snapshot:
    """Return a copy which has nothing worked out yet."""
    return replace(snapshot, jobs=replace(snapshot.jobs))


def _seconds(act: Callable[[], object]) -> float:
    act()
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        act()
        taken.append(time.perf_counter() - start)
    return median(taken)


def ordering_table(sizes: Sequence[int]) -> Table:
    """Return a table with a row per number of stages."""
    table = Table(title=f"ordering stages of {JOBS} ring jobs, median of {REPEATS} after warm-up", title_justify="left")
    columns = ("stages", "links", "non-zero loads", "dense loop", "BSSI", "beamer's order", "/ dense", "plan", "memory")
    for column in columns:
        table.add_column(column, justify="right")
    policy = network_policy("beamer")
    for stages in sizes:
        snapshot = situation(stages, Random(stages))
        order: list[Order] = []

        def sort(snapshot: Snapshot = snapshot) -> Ints:
            work = remaining_work(_fresh(snapshot), looks_ahead=True)
            return improved(work.items, sequence(work.items)[0])

        def decide(snapshot: Snapshot = snapshot, order: list[Order] = order) -> None:
            order[:] = [policy.order(policy.initial(), _fresh(snapshot), 0.0, Random(0))[1]]

        beamer_s = _seconds(sort)
        whole_s = _seconds(decide)
        plan_s = whole_s - beamer_s + _seconds(partial(assign_classes, order[0], 8))
        tracemalloc.start()
        sort()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        dense_s = bssi_s = None
        if stages <= DENSEST:
            load = _stage_loads(snapshot)
            items = Items.of([1.0] * stages, load.tolist(), [0.0] * stages)
            dense_s = _seconds(partial(dense, np.ones(len(load)), load))
            bssi_s = _seconds(partial(sequence, items))
        table.add_row(
            str(stages),
            str(len(snapshot.capacity_bps)),
            str(len(snapshot.jobs.link)),
            *("" if s is None else f"{1e3 * s:.2f} ms" for s in (dense_s, bssi_s)),
            f"{1e3 * beamer_s:.2f} ms",
            "" if dense_s is None else f"{beamer_s / dense_s:.2f}",
            f"{1e3 * plan_s:.2f} ms",
            f"{peak / 1e6:.1f} MB",
        )
    return table
