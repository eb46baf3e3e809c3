"""`python -m eval processes`: what suspending, resuming and restarting a job takes on real processes of the local engine."""

import importlib.util
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
from beamer.engines.local.retire import wait_for_exit
from beamer.engines.local.supervisor import groups
from beamer.engines.local.supervisor.processes import marked, stat
from beamer.engines.local.supervisor.supervisor import mark
from beamer.errors import EngineError, InputError, nearest
from beamer.gpu.engine import Placement, RunState
from beamer.gpu.model import Report
from eval.machine import Machine

PATIENCE_S = 120.0
OBSERVED_S = 1.0
EVERY_S = 0.01
KINDS = tuple(kind for kind in groups.KINDS if kind != "auto")
ROOT = Path(__file__).parents[2]
RANKS = 2
"""Of the job that is suspended and resumed."""
SIZES = ((RANKS, RANKS), (1, 4))
"""Ranks between which jobs are restarted, there and back: moved, and grown as a policy grows a job that was started small."""
DDP_WIDTH = 1024  # of the DDP trainer's layers: 1.1 million parameters, so that its checkpoint is not negligible


@dataclass(frozen=True)
class Trainer:
    """A program that is measured.

    title: what it is. package: that it needs; "": none beside the project's. command: after the interpreter. env: of its
    processes. batch_size: samples of an iteration.
    """

    title: str
    package: str
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    batch_size: int

    @property
    def is_installed(self) -> bool:
        """Whether it can run here."""
        return not self.package or importlib.util.find_spec(self.package) is not None

    def spec(self) -> LaunchSpec:
        """Return how it is launched, without an end."""
        command = (sys.executable, "-m", *self.command, "--iterations", str(10**9))
        return LaunchSpec(command, cwd=str(ROOT), env=self.env, batch_size=self.batch_size)


TRAINERS: Mapping[str, Trainer] = {
    "numpy": Trainer(
        "NumPy trainer of the tests", "", ("beamer.testing.trainer", "--work", "20"), (("OPENBLAS_NUM_THREADS", "1"),), 64
    ),
    "ddp": Trainer(
        "PyTorch DDP on gloo", "torch", ("eval.gpu.ddp_trainer", "--width", str(DDP_WIDTH)), (("OMP_NUM_THREADS", "1"),), 24
    ),
}
"""By name. The first shows what the engine itself takes, the second what a training program adds, imports above all."""


def this_machine() -> Machine:
    """Return this machine, with the versions of the packages that trainers need."""
    return Machine.here(*(one.package for one in TRAINERS.values() if one.package and one.is_installed))


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
class RestartCost:
    """Seconds without a step, from the last before the stop to the first of the new run, by ranks before and after."""

    before: int
    after: int
    restart: Quantiles


@dataclass(frozen=True)
class ProcessCosts:
    """What the local engine takes on this machine, for a trainer and a kind of process group.

    suspend, resume: the engine's calls for a job of `ranks` processes, until all are known to be frozen or running.
    suspended_cpu: processor time of a suspended job's processes, as a share of one core.
    """

    trainer: str
    group: str
    ranks: int
    suspend: Quantiles
    resume: Quantiles
    restarts: tuple[RestartCost, ...]
    suspended_cpu: float

    @property
    def restart(self) -> Quantiles:
        """The restart of the job that is suspended, on as many ranks."""
        return next(one.restart for one in self.restarts if (one.before, one.after) == (self.ranks, self.ranks))


def measure(
    trainer: str = "numpy",
    group: str = "auto",
    suspensions: int = 200,
    restarts: int = 3,
    seed: int = 0,
    sizes: Sequence[tuple[int, int]] = SIZES,
) -> ProcessCosts:
    """Measure on a trainer. restarts: of each of `sizes`, there and back.

    Raises `EngineError` if a step is lost or done twice.
    """
    rng, spec = Random(seed), TRAINERS[trainer].spec()
    with tempfile.TemporaryDirectory(prefix="beamer-costs-") as root:
        cluster = LocalCluster.here(max(before + after for before, after in sizes))
        engine = LocalEngine(cluster, Path(root), lambda job: spec, group=group)
        try:
            engine.start("job", _places(RANKS, RANKS)[0], PATIENCE_S)
            _progress(engine)
            suspend, resume, suspended_cpu = _suspensions(engine, Path(root), suspensions, rng)
            found: dict[tuple[int, int], list[float]] = {}
            for before, after in sizes:
                places = _places(before, after)
                engine.resize("job", places[0], PATIENCE_S)
                _progress(engine, placement=places[0])
                for change in range(2 * restarts):
                    there = places[(change + 1) % 2]
                    engine.resize("job", there, PATIENCE_S)
                    key = (before, after) if change % 2 == 0 else (after, before)
                    found.setdefault(key, []).append(_restart(engine, there))
        finally:
            engine.stop("job", PATIENCE_S)
            engine.close()
            for lock in Path(root).glob("*/*/lock"):  # or a supervisor would write what the directory is to be removed with
                wait_for_exit(lock.parent)
    costs = tuple(RestartCost(*key, Quantiles.of(seconds)) for key, seconds in found.items())
    return ProcessCosts(trainer, group, RANKS, Quantiles.of(suspend), Quantiles.of(resume), costs, suspended_cpu)


def _places(before: int, after: int) -> tuple[Placement, Placement]:
    """Return placements of so many GPUs that share none."""
    slots = [("localhost", i) for i in range(before + after)]
    return Placement(tuple(slots[:before])), Placement(tuple(slots[before:]))


def _suspensions(engine: LocalEngine, root: Path, count: int, rng: Random) -> tuple[list[float], list[float], float]:
    """Return the seconds of each suspension and of each resumption, and the processor time of a suspended job."""
    suspend: list[float] = []
    resume: list[float] = []
    for _ in range(count):
        time.sleep(rng.uniform(0.0, 0.05))
        suspend.append(_timed(lambda: engine.suspend("job")))
        resume.append(_timed(lambda: engine.resume("job")))
    engine.suspend("job")
    pids = [pid for directory in root.glob("*/localhost") for pid in marked(mark(directory.resolve()))]
    if len(pids) < RANKS:
        raise EngineError(f"job: {len(pids)} of {RANKS} ranks were found")
    before, begun = _processor_ticks(pids), time.monotonic()
    time.sleep(OBSERVED_S)
    ticks, seconds = _processor_ticks(pids) - before, time.monotonic() - begun
    engine.resume("job")
    return suspend, resume, ticks / os.sysconf("SC_CLK_TCK") / seconds


def _processor_ticks(pids: Sequence[int]) -> int:
    """Return the processor time of some processes in all, clock ticks; those that are gone count as none."""
    return sum(process.ticks for pid in pids if (process := stat(pid)) is not None)


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
    reports = _progress(engine, 20, placement)
    for before, after in pairwise(reports):
        if after.iteration != before.iteration + 1:
            raise EngineError(f"job: iteration {after.iteration:g} came after {before.iteration:g}, expected the next")
    return max(after.at_s - before.at_s - (after.service_s - before.service_s) for before, after in pairwise(reports))


def processes(
    groups_named: Annotated[list[str] | None, typer.Option("--group", help=f"Kinds of group: {', '.join(KINDS)}.")] = None,
    trainers_named: Annotated[
        list[str] | None,
        typer.Option("--trainer", help=f"Programs: {', '.join(TRAINERS)}; without it, those that are installed."),
    ] = None,
    repetitions: Annotated[int, typer.Option(min=1, help="Measurements of each, one after another.")] = 3,
    suspensions: Annotated[int, typer.Option(min=2, help="Suspensions in a measurement.")] = 200,
    restarts: Annotated[int, typer.Option(min=1, help="Restarts in a measurement, there and back, of each size.")] = 3,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every measurement here.", dir_okay=False)] = None,
) -> None:
    """Measure what suspending, resuming and restarting a job of real processes takes on this machine."""
    kinds = groups_named or list(KINDS)
    trainers = trainers_named or [name for name, trainer in TRAINERS.items() if trainer.is_installed]
    for option, chosen, known in (("--group", kinds, KINDS), ("--trainer", trainers, tuple(TRAINERS))):
        for one in chosen:
            if one not in known:
                raise InputError(option, one, nearest(one, known))
    for name in trainers:
        if not TRAINERS[name].is_installed:
            raise InputError("--trainer", name, f"the package {TRAINERS[name].package}")
    machine = this_machine()
    found = [
        measure(trainer, kind, suspensions, restarts, seed)
        for seed in range(repetitions)
        for trainer in trainers
        for kind in kinds
    ]
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        document = {"machine": asdict(machine), "measurements": [asdict(one) for one in found]}
        json_file.write_text(json.dumps(document, indent=1) + "\n")
    console = Console(width=None if sys.stdout.isatty() else 200)
    for name in trainers:
        console.print(table(machine, [one for one in found if one.trainer == name]))


def table(machine: Machine, found: Sequence[ProcessCosts]) -> Table:
    """Return a table of what every kind of group takes with one trainer: of several measurements, the median of each figure."""
    title = f"{TRAINERS[found[0].trainer].title}, suspended with {found[0].ranks} ranks, on {machine.cores} cores"
    by_kind = {kind: [one for one in found if one.group == kind] for kind in dict.fromkeys(one.group for one in found)}
    shown = Table(title=f"{title}; medians of {len(next(iter(by_kind.values())))} measurements", title_justify="left")
    changes = [(one.before, one.after) for one in found[0].restarts]
    names = ("suspend", "resume", *(f"restart {before} to {after}" for before, after in changes))
    for column in ("group", *(f"{name} {of}, ms" for name in names for of in ("p50", "p99")), "CPU while suspended"):
        shown.add_column(column, justify="left" if column == "group" else "right")
    for kind, costs in by_kind.items():
        columns = [[one.suspend for one in costs], [one.resume for one in costs]]
        columns += [[one.restarts[i].restart for one in costs] for i in range(len(changes))]
        cells = [f"{1e3 * median(values):.3g}" for quantiles in columns for values in _seconds(quantiles)]
        shown.add_row(kind, *cells, f"{max(one.suspended_cpu for one in costs):.1%}")
    return shown


def _seconds(quantiles: Sequence[Quantiles]) -> tuple[list[float], list[float]]:
    return [one.p50_s for one in quantiles], [one.p99_s for one in quantiles]
