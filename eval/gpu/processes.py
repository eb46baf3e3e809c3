"""`python -m eval processes`: what suspending, resuming and restarting a job takes on real processes of the local engine."""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from beamer.engines.local import LaunchSpec, LocalCluster, LocalEngine
from beamer.engines.local.supervisor import groups
from beamer.engines.local.supervisor.processes import marked, processor_ticks
from beamer.engines.local.supervisor.supervisor import mark
from beamer.errors import EngineError, InputError, nearest
from beamer.gpu.engine import Placement, RunState
from beamer.gpu.model import Report

PATIENCE_S = 120.0
OBSERVED_S = 1.0
EVERY_S = 0.01
KINDS = tuple(kind for kind in groups.KINDS if kind != "auto")
CHANGES = ("suspend", "resume", "restart")


@dataclass(frozen=True)
class Quantiles:
    """Median and 99th percentile of some measurements, seconds. count: how many they are."""

    p50_s: float
    p99_s: float
    count: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Quantiles":
        """Return the quantiles of measurements; the 99th percentile is no lower than one of them."""
        p50, p99 = np.quantile(seconds, (0.5, 0.99), method="higher")
        return cls(float(p50), float(p99), len(seconds))


@dataclass(frozen=True)
class ProcessCosts:
    """What the local engine takes on this machine, by kind of process group.

    suspend, resume: the engine's calls, until all ranks are known to be frozen or running. restart: without a step, from
    the last before the stop to the first of the new run. suspended_cpu: processor time of a suspended job's processes, as a
    share of one core.
    """

    group: str
    world_size: int
    suspend: Quantiles
    resume: Quantiles
    restart: Quantiles
    suspended_cpu: float
    cores: int


def measure(
    group: str = "auto", world_size: int = 2, suspensions: int = 200, restarts: int = 10, seed: int = 0, work: int = 20
) -> ProcessCosts:
    """Measure on the deterministic trainer. work: of an iteration, see `beamer.testing.trainer`; restarts: to the same size."""
    rng = Random(seed)
    with tempfile.TemporaryDirectory(prefix="beamer-costs-") as root:
        command = (sys.executable, "-m", "beamer.testing.trainer", "--iterations", str(10**9), "--work", str(work))
        spec = LaunchSpec(command, env=(("OPENBLAS_NUM_THREADS", "1"),), batch_size=64)
        engine = LocalEngine(LocalCluster.here(2 * world_size), Path(root), lambda job: spec, group=group)
        try:
            return _measure(engine, Path(root), group, world_size, suspensions, restarts, rng)
        finally:
            engine.stop("job", PATIENCE_S)
            engine.close()


def _measure(
    engine: LocalEngine, root: Path, group: str, world_size: int, suspensions: int, restarts: int, rng: Random
) -> ProcessCosts:
    places = [Placement(tuple(("localhost", first + i) for i in range(world_size))) for first in (0, world_size)]
    engine.start("job", places[0], PATIENCE_S)
    _progress(engine)
    suspend: list[float] = []
    resume: list[float] = []
    restart: list[float] = []
    for _ in range(suspensions):
        time.sleep(rng.uniform(0.0, 0.05))
        suspend.append(_timed(lambda: engine.suspend("job")))
        resume.append(_timed(lambda: engine.resume("job")))
    engine.suspend("job")
    pids = [pid for directory in root.glob("*/localhost") for pid in marked(mark(directory.resolve()))]
    if len(pids) < world_size:
        raise EngineError(f"job: {len(pids)} of {world_size} ranks were found")
    before, begun = processor_ticks(pids), time.monotonic()
    time.sleep(OBSERVED_S)
    ticks, seconds = processor_ticks(pids) - before, time.monotonic() - begun
    engine.resume("job")
    for i in range(restarts):
        _progress(engine)
        engine.resize("job", places[(i + 1) % 2], PATIENCE_S)
        restart.append(_restart(engine, places[(i + 1) % 2]))
    return ProcessCosts(
        group,
        world_size,
        Quantiles.of(suspend),
        Quantiles.of(resume),
        Quantiles.of(restart),
        ticks / os.sysconf("SC_CLK_TCK") / seconds,
        os.cpu_count() or 1,
    )


def _timed(call: Callable[[], None]) -> float:
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


def _progress(engine: LocalEngine, lines: int = 10, placement: Placement | None = None) -> list[Report]:
    """Return reports that come from now on, so many at least of them; placement: and until it holds this."""
    until = time.monotonic() + PATIENCE_S
    reports: list[Report] = []
    new = 0
    while new < lines:
        seen = engine.report()["job"]
        if seen.state is RunState.FAILED or time.monotonic() > until:
            raise EngineError(f"job: {seen.state}: {seen.exit}")
        reports += seen.reports
        if placement is None or (seen.placement == placement and seen.state is RunState.RUNNING):
            new += len(seen.reports)
        time.sleep(EVERY_S)
    return reports


def _restart(engine: LocalEngine, placement: Placement) -> float:
    """Return the longest time between two reports in which no step was computed: that of the restart under way."""
    return max(
        after.at_s - before.at_s - (after.service_s - before.service_s)
        for before, after in pairwise(_progress(engine, 20, placement))
    )


def processes(
    groups_named: Annotated[list[str] | None, typer.Option("--group", help=f"Kinds of group: {', '.join(KINDS)}.")] = None,
    repetitions: Annotated[int, typer.Option(min=1, help="Measurements of each, one kind after another.")] = 5,
    suspensions: Annotated[int, typer.Option(min=2, help="Suspensions in a measurement.")] = 200,
    restarts: Annotated[int, typer.Option(min=1, help="Restarts in a measurement.")] = 10,
    world_size: Annotated[int, typer.Option(min=1, help="Processes of the job.")] = 2,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every measurement here.", dir_okay=False)] = None,
) -> None:
    """Measure what suspending, resuming and restarting a job of real processes takes on this machine."""
    kinds = groups_named or list(KINDS)
    for kind in kinds:
        if kind not in KINDS:
            raise InputError("--group", kind, nearest(kind, KINDS))
    found: dict[str, list[ProcessCosts]] = {kind: [] for kind in kinds}
    for seed in range(repetitions):
        for kind in kinds:
            found[kind].append(measure(kind, world_size, suspensions, restarts, seed))
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps({kind: [asdict(one) for one in costs] for kind, costs in found.items()}, indent=1))
    Console(width=None if sys.stdout.isatty() else 160).print(table(found))


def table(found: Mapping[str, Sequence[ProcessCosts]]) -> Table:
    """Return a table of what every kind of group takes."""
    first = next(iter(found.values()))
    title = (
        f"a job of {first[0].world_size} processes on {first[0].cores} cores, {len(first)} measurements: median (least to most)"
    )
    shown = Table(title=title, title_justify="left")
    for column in ("group", *(f"{what} {of}, ms" for what in CHANGES for of in ("p50", "p99")), "CPU while suspended"):
        shown.add_column(column, justify="left" if column == "group" else "right")
    for kind, costs in found.items():
        quantiles = [[getattr(one, what) for one in costs] for what in CHANGES]
        milliseconds = [[1e3 * value for value in values] for q in quantiles for values in _columns(q)]
        cells = [f"{median(values):.3g} ({min(values):.3g} to {max(values):.3g})" for values in milliseconds]
        shown.add_row(kind, *cells, f"{max(one.suspended_cpu for one in costs):.1%}")
    return shown


def _columns(quantiles: Sequence[Quantiles]) -> tuple[list[float], list[float]]:
    return [one.p50_s for one in quantiles], [one.p99_s for one in quantiles]
