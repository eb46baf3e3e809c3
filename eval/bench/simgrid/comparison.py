"""Our fluid network and SimGrid on one load: the ends of all jobs, and iteration-coflows per CPU second.

The load is `eval.bench.scale.cluster`, once as it is there and once with computing that differs from job to job. Where all jobs
are alike and start together, flows end in step: which of them end first is then a matter of rounding, and shares differ from
there on. On such a load (32 hosts, 200 iterations) the ends of jobs in SimGrid's own modes, lazy and full, are up to 1.3 %
apart, at precisions of 1e-12 as at its default ones, and up to 17 % with events 1e-5 s apart counted as one. No two programs
can be expected to agree there: agreement is required on loads with jitter alone.
"""

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from beamer.network.allocation import Allocator, Classes, MaxMin
from beamer.network.allocation.base import Arrangement
from beamer.network.arrays import Floats
from beamer.network.fluid.flows import Block, Routes
from beamer.network.fluid.network import FluidNetwork
from beamer.network.footprint import Footprints
from beamer.workloads.scenario import Scenario
from eval.bench.scale import HOSTS, ITERATIONS, cluster, whole
from eval.bench.simgrid.description import describe
from eval.bench.simgrid.program import MODES, build, run

SIZES = (32, 128, HOSTS)
JITTER = 0.3  # The spread of the logarithm of what a job computes: a third more or less is common.
AGREEMENT = 1e-9  # The relative difference of the ends of jobs; rounding comes to 1e-13.
CACHE = Path("results/bench")


@dataclass(frozen=True, eq=False)
class NetworkLoad:
    """Jobs on links. capacity: bit/s. start_s: of each job's first iteration."""

    capacity: Floats
    block: Block
    start_s: Floats

    @property
    def coflows(self) -> int:
        """Iterations of all jobs."""
        return int(self.block.iterations.sum())


@dataclass(frozen=True)
class SimGridComparison:
    """The CPU seconds of one load: in our network alone under max-min, in whole simulations, in SimGrid by mode.

    jitter: of what a job computes, of its logarithm; 0: jobs run in step.
    difference: the largest between the ends of a job in both, relative.
    """

    jitter: float
    hosts: int
    jobs: int
    coflows: int
    network_s: float
    maxmin_s: float
    classes_s: float
    simgrid_s: dict[str, float]
    difference: float


def load_of(scenario: Scenario) -> NetworkLoad:
    """Return all jobs of a scenario's studies on its links, all at once, without acknowledgements, as it would be simulated."""
    fabric, footprints = scenario.fabric, Footprints(scenario.fabric)
    specs = [job for study in scenario.studies for stage in study.stages for job in stage.jobs]
    placed = [(spec, fabric.plane_of(seq)) for seq, spec in enumerate(specs, 1)]
    block = Routes(fabric, acknowledgements=False).block(placed, [footprints.of(*of) for of in placed])
    return NetworkLoad(np.array([float(link.rate_bps) for link in fabric.links]), block, np.zeros(len(specs)))


def ends_of(load: NetworkLoad) -> tuple[float, Floats]:
    """Run a load in our fluid network under max-min; return the CPU seconds of that, and when each job ends."""
    network = FluidNetwork(load.capacity, MaxMin())
    network.add(load.block)
    end_s = np.full(len(load.start_s), np.nan)
    for job, start_s in enumerate(load.start_s.tolist()):
        network.start([job], start_s)
    network.arrange(Arrangement(np.arange(len(end_s)), np.zeros(len(end_s), np.int64)))
    begun_s = time.process_time()
    left = len(end_s)
    while left:
        for _, job in network.run(math.inf, by_coflow=False):
            end_s[job] = network.now_s
            left -= 1
    return time.process_time() - begun_s, end_s


def compare(hosts: int, iterations: int, jitter: float, driver: Path) -> SimGridComparison:
    """Simulate the load of a cluster in all ways.

    Raises `RuntimeError` if, on a load with jitter, ours and SimGrid's ends of jobs do not agree.
    """
    scenario = cluster(iterations, hosts, jitter)
    load = load_of(scenario)
    network_s, end_s = ends_of(load)
    simgrid_s, difference = {}, 0.0
    with tempfile.TemporaryDirectory() as folder:
        description = Path(folder) / "load.txt"
        description.write_text(describe(load.capacity, load.block, load.start_s))
        for mode in MODES:
            outcome = run(driver, description, mode)
            simgrid_s[mode] = outcome.cpu_s
            # The difference is NaN where a job has not ended.
            difference = float(np.maximum(difference, differ(end_s, outcome.end_s)))
    if jitter and not difference <= AGREEMENT:
        raise RuntimeError(
            f"jobs on {hosts} hosts end {difference:.1e} apart in SimGrid, relative; at most {AGREEMENT} is rounding"
        )
    return SimGridComparison(
        jitter=jitter,
        hosts=hosts,
        jobs=len(end_s),
        coflows=load.coflows,
        network_s=network_s,
        maxmin_s=_timed(scenario, "fair", MaxMin()),
        classes_s=_timed(scenario, "beamer", Classes(queues=8)),
        simgrid_s=simgrid_s,
        difference=difference,
    )


def differ(end_s: Floats, other_s: Floats) -> float:
    """Return the largest difference of two ends of a job, relative."""
    return float((np.abs(other_s - end_s) / end_s).max(initial=0.0))


def _timed(scenario: Scenario, policy: str, allocator: Allocator) -> float:
    begun_s = time.process_time()
    whole(scenario, policy, allocator)
    return time.process_time() - begun_s


def simgrid_tables(sizes: Sequence[int]) -> Iterator[Table]:
    """Yield a table of agreement and speed with a row per size, and one of SimGrid's modes.

    Raises `PlatformError` where the driver cannot be built.
    """
    driver = build(CACHE)
    compare(min(sizes), 1, JITTER, driver)  # This compiles what is timed below.
    rows = [compare(hosts, ITERATIONS, jitter, driver) for jitter in (0.0, JITTER) for hosts in sizes]
    yield _speeds(rows)
    yield _modes(rows)


def _speeds(rows: list[SimGridComparison]) -> Table:
    title = "iteration-coflows per CPU second; max-min fair sharing, and classes of beamer, which SimGrid does not have"
    table = Table(title=title, title_justify="left")
    for column in ("jobs run", "hosts", "jobs", "coflows", "SimGrid", "its mode", "our network", "to SimGrid", "ends differ"):
        table.add_column(column, justify="left" if column in ("jobs run", "its mode") else "right")
    for column in ("simulate: maxmin", "classes", "maxmin to classes"):
        table.add_column(column, justify="right")
    for row in rows:
        mode = min(row.simgrid_s, key=lambda mode: row.simgrid_s[mode])
        best_s = row.simgrid_s[mode]
        simgrid, network, maxmin, classes = (
            f"{row.coflows / seconds:.0f}" for seconds in (best_s, row.network_s, row.maxmin_s, row.classes_s)
        )
        table.add_row(
            _how(row),
            *(str(count) for count in (row.hosts, row.jobs, row.coflows)),
            *(simgrid, mode, network, f"{best_s / row.network_s:.2f}", f"{row.difference:.0e}"),
            *(maxmin, classes, f"{row.classes_s / row.maxmin_s:.2f}"),
        )
    return table


def _modes(rows: list[SimGridComparison]) -> Table:
    table = Table(title="CPU seconds of SimGrid by mode", title_justify="left")
    for column in ("jobs run", "hosts", *MODES):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(_how(row), str(row.hosts), *(f"{row.simgrid_s[mode]:.2f}" for mode in MODES))
    return table


def _how(row: SimGridComparison) -> str:
    return "apart" if row.jitter else "in step"
