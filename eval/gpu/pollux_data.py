"""What Pollux published with its artifact, as far as it was measured: step times, convergence by batch size, workloads.

A job's work is counted as in the traces, in iterations of the smallest batch size; what a step of a larger one is worth is what
was measured. Where the data is absent, `synthetic` draws applications of the same form from a seed, `synthetic_workload` jobs.
"""

import csv
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from beamer.engines.simulated import Outcome, SimulatedJob, SimulatedProfile
from beamer.errors import InputError
from beamer.gpu.model import Costs, Grant, Request

Floats = NDArray[np.float64]

LARGEST = 64  # GPUs that a job whose size is free may have
NEIGHBOURS = 4  # measured shapes that stand for one that was not


@dataclass(frozen=True)
class StepTimeCurve:
    """Times by samples per GPU, rising. step_s: of a step. sync_s: of it, synchronising."""

    local: tuple[float, ...]
    step_s: tuple[float, ...]
    sync_s: tuple[float, ...]

    def at(self, local: float) -> tuple[float, float]:
        """Return both times, linear between what was measured; beyond it, steps grow in proportion."""
        beyond = max(local / self.local[-1], 1.0)
        return float(np.interp(local, self.local, self.step_s)) * beyond, float(np.interp(local, self.local, self.sync_s))


@dataclass(frozen=True)
class TrainingRun:
    """What a run at one batch size showed, a row per epoch.

    progress: iterations of the smallest batch size that it was worth. iteration: steps taken. metric: 0 to 1, rising.
    gradient_sqr, gradient_var: of a gradient of the smallest batch size.
    """

    progress: tuple[float, ...]
    iteration: tuple[float, ...]
    metric: tuple[float, ...]
    gradient_sqr: tuple[float, ...]
    gradient_var: tuple[float, ...]

    def gain(self, progress: float) -> float:
        """Return how many iterations of the smallest batch size one step is worth."""
        row = min(bisect_right(self.progress, progress), len(self.progress) - 1)
        before = (self.progress[row - 1], self.iteration[row - 1]) if row else (0.0, 0.0)
        return (self.progress[row] - before[0]) / (self.iteration[row] - before[1])


@dataclass(frozen=True)
class Application:
    """A model that was trained.

    shapes: by GPUs of each node, ascending. sizes: by nodes and GPUs. runs: by batch size, rising.
    """

    name: str
    shapes: Mapping[tuple[int, ...], StepTimeCurve]
    sizes: Mapping[tuple[int, int], StepTimeCurve]
    runs: Mapping[int, TrainingRun]

    @cached_property
    def batch_size(self) -> int:
        """The smallest batch size."""
        return min(self.runs)

    @cached_property
    def max_batch_size(self) -> int:
        """The largest batch size."""
        return max(self.runs)

    @cached_property
    def max_local_batch_size(self) -> int:
        """The most samples that fit a GPU."""
        return int(max(curve.local[-1] for curve in self.shapes.values()))

    def step_s(self, gpus: Iterable[int], batch_size: int) -> tuple[float, float]:
        """Return the time of a step and of its synchronisation on so many GPUs of each node, seconds."""
        shape = tuple(sorted(gpus))
        local = batch_size / sum(shape)
        if shape in self.shapes:
            return self.shapes[shape].at(local)
        size = (len(shape), sum(shape))
        if size in self.sizes:
            return self.sizes[size].at(local)
        near = sorted((math.dist(np.log(size), np.log(known)), known) for known in self.sizes)[:NEIGHBOURS]
        weight = np.array([1.0 / distance for distance, _ in near])
        times = np.array([self.sizes[known].at(local) for _, known in near])
        step_s, sync_s = (weight @ times / weight.sum()).tolist()
        return step_s, sync_s

    def gain(self, batch_size: float, progress: float) -> float:
        """Return what a step of a batch size is worth, linear between the logarithms of those measured."""
        sizes = self._sizes
        above = min(max(bisect_right(sizes, batch_size), 1), len(sizes) - 1)
        low, high = (self.runs[size].gain(progress) for size in sizes[above - 1 : above + 1])
        share = math.log(batch_size / sizes[above - 1]) / math.log(sizes[above] / sizes[above - 1])
        return float(low * (high / low) ** min(max(share, 0.0), 1.0))

    @cached_property
    def _sizes(self) -> list[int]:
        return sorted(self.runs)


@dataclass(frozen=True)
class PolluxProfile(SimulatedProfile):
    """A job that trains an application, submitted at the batch size `requested`, one of those measured.

    The gradients that it reports are those of the run at the middle batch size: what a job would measure changes with its own.
    """

    application: Application
    requested: int

    def __post_init__(self) -> None:
        if self.requested not in self.application.runs:
            raise InputError("requested", self.requested, f"one of {sorted(self.application.runs)}")

    @property
    def iterations(self) -> int:
        """Iterations of the batch size requested until it ends."""
        return int(self.application.runs[self.requested].iteration[-1])

    @property
    def epochs(self) -> int:
        """Epochs until it ends."""
        return len(self.application.runs[self.requested].iteration)

    def progress(self, iteration: float) -> float:
        """Return iterations of the smallest batch size."""
        run = self.application.runs[self.requested]
        return float(np.interp(iteration, (0.0, *run.iteration), (0.0, *run.progress)))

    def step_s(self, grant: Grant, batch_size: int) -> tuple[float, float]:
        """Return the measured time of a step."""
        return self.application.step_s((count for _, count in grant.gpus), batch_size)

    def outcome(self, iteration: float) -> Outcome:
        """Return the metric as accuracy, and what it lacks as loss."""
        first = self.application.runs[self.application.batch_size]
        metric = float(np.interp(self.progress(iteration), (0.0, *first.progress), (0.0, *first.metric)))
        return Outcome(1.0 - metric, metric)

    def gradient(self, batch_size: int, iteration: float) -> tuple[float, float]:
        """Return the gradients of a batch of the size requested."""
        application, progress = self.application, self.progress(iteration)
        sizes = sorted(application.runs)
        middle = application.runs[sizes[len(sizes) // 2]]
        sqr = float(np.interp(progress, middle.progress, middle.gradient_sqr))
        var = float(np.interp(progress, middle.progress, middle.gradient_var))
        return sqr, var * application.batch_size / self.requested

    def efficiency(self, batch_size: int, iteration: float) -> float:
        """Return the progress per sample at `batch_size`, relative to that at the one requested."""
        if batch_size == self.requested:
            return 1.0
        progress, application = self.progress(iteration), self.application
        ours, theirs = (application.gain(size, progress) / size for size in (batch_size, self.requested))
        return ours / theirs


@dataclass(frozen=True)
class PolluxSubmission:
    """A row of a workload. gpus, batch_size: what its user tuned it for."""

    name: str
    at_s: float
    application: str
    gpus: int
    batch_size: int


def simulated(job: PolluxSubmission, application: Application, costs: Costs, tuned: bool) -> SimulatedJob:
    """Return a job for the simulator.

    tuned: at the batch size of the workload and asking for its GPUs; otherwise at the smallest, asking for one, both free.
    """
    profile = PolluxProfile(application, job.batch_size if tuned else application.batch_size)
    per_gpu = application.max_local_batch_size
    least = -(-job.batch_size // per_gpu) if tuned else 1
    request = Request(
        iterations=profile.iterations,
        gpus=max(job.gpus, least) if tuned else 1,
        min_gpus=least,
        max_gpus=max(LARGEST, job.gpus, least),
        epoch=max(profile.iterations // profile.epochs, 1),
        batch_size=profile.requested,
        max_batch_size=0 if tuned else application.max_batch_size,
        max_local_batch_size=per_gpu,
    )
    return SimulatedJob(request, profile, costs)


def read(folder: Path) -> dict[str, Application]:
    """Return the applications in `folder`, by name. Raises `InputError` where there is none or a file has other columns."""
    found = {path.name: _application(path) for path in sorted((folder / "traces").glob("*")) if path.is_dir()}
    if not found:
        raise InputError("data", str(folder), "a folder with traces of applications")
    return found


def read_workload(file: Path) -> tuple[PolluxSubmission, ...]:
    """Return the jobs of a workload, in order of submission; some may be of applications that were not traced."""
    rows = _rows(file, ("name", "time", "application", "num_replicas", "batch_size"))
    return tuple(
        PolluxSubmission(row["name"], float(row["time"]), row["application"], int(row["num_replicas"]), int(row["batch_size"]))
        for row in rows
    )


def synthetic(seed: int, count: int = 3) -> dict[str, Application]:
    """Return made-up applications: from small models that synchronise fast to large ones, of growing noise scale."""
    rng = np.random.default_rng(seed)
    return {f"made-up-{number}": _made_up(f"made-up-{number}", 10.0 ** (number - 1), rng) for number in range(count)}


def synthetic_workload(
    seed: int, applications: Mapping[str, Application], jobs: int = 40, span_s: float = 8 * 3600.0
) -> tuple[PolluxSubmission, ...]:
    """Return jobs that arrive evenly over a time, small applications more often than large ones."""
    rng = np.random.default_rng(seed)
    names = list(applications)
    share = 0.5 ** np.arange(len(names))
    picks = rng.choice(len(names), size=jobs, p=share / share.sum())
    found: list[PolluxSubmission] = []
    for at_s, pick in zip(np.sort(rng.uniform(0.0, span_s, jobs)).tolist(), picks.tolist(), strict=True):
        application = applications[names[pick]]
        sizes = sorted(application.runs)
        batch_size = int(rng.choice(sizes[len(sizes) // 2 :]))
        gpus = max(int(rng.choice((1, 2, 4, 8, 16))), -(-batch_size // application.max_local_batch_size))
        found.append(PolluxSubmission(f"{names[pick]}-{len(found)}", at_s, names[pick], gpus, batch_size))
    return tuple(found)


def _application(folder: Path) -> Application:
    shapes: dict[tuple[int, ...], list[tuple[float, float, float]]] = {}
    sizes: dict[tuple[int, int], list[tuple[float, float, float]]] = {}
    for row in _rows(folder / "placements.csv", ("placement", "local_bsz", "step_time", "sync_time")):
        shape = tuple(sorted(map(int, row["placement"])))
        point = (float(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"]))
        shapes.setdefault(shape, []).append(point)
        sizes.setdefault((len(shape), sum(shape)), []).append(point)
    for row in _rows(folder / "scalability.csv", ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")):
        point = (float(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"]))
        sizes.setdefault((int(row["num_nodes"]), int(row["num_replicas"])), []).append(point)
    runs = {int(path.stem.split("-")[1]): _training_run(path) for path in folder.glob("validation-*.csv")}
    return Application(
        folder.name,
        {shape: _curve(points) for shape, points in shapes.items()},
        {size: _curve(points) for size, points in sizes.items()},
        dict(sorted(runs.items())),
    )


def _curve(points: Iterable[tuple[float, float, float]]) -> StepTimeCurve:
    by_local: dict[float, list[tuple[float, float]]] = {}
    for local, step_s, sync_s in points:
        by_local.setdefault(local, []).append((step_s, sync_s))
    means = np.array([np.mean(times, axis=0) for _, times in sorted(by_local.items())])
    return StepTimeCurve(tuple(sorted(by_local)), tuple(means[:, 0].tolist()), tuple(means[:, 1].tolist()))


def _training_run(path: Path) -> TrainingRun:
    columns = ("progress", "iteration", "metric", "grad_sqr", "grad_var")
    table = np.array([[float(row[name]) for name in columns] for row in _rows(path, columns)]).T
    metric = table[2] / 100.0 if table[2].max() > 1.0 else table[2]
    table[2] = 1.0 - metric if metric[-1] < metric[0] / 2 else metric  # an error rate falls
    return TrainingRun(*(tuple(column) for column in table.tolist()))


def _made_up(name: str, scale: float, rng: np.random.Generator) -> Application:
    compute_s = 0.001 * scale**0.5 * float(rng.uniform(0.7, 1.4))
    local = tuple(float(round(32 * 2**power)) for power in range(6))
    near_s, far_s = (0.01 * scale**0.5 * float(rng.uniform(low, 2 * low)) for low in (1.0, 4.0))

    def curve(nodes: int, gpus: int) -> StepTimeCurve:
        sync_s = 0.0 if gpus == 1 else (near_s if nodes == 1 else far_s) * (1.0 + 0.05 * (gpus - 2))
        steps = tuple(math.hypot(0.01 + compute_s * size, sync_s) for size in local)
        return StepTimeCurve(local, steps, (sync_s,) * len(local))

    shapes = {s: curve(len(s), sum(s)) for nodes in range(1, 5) for s in combinations_with_replacement(range(1, 5), nodes)}
    wide = [(nodes, nodes * each) for nodes in (6, 8, 12, 16) for each in range(1, 5)]
    sizes = {(len(s), sum(s)): shape for s, shape in shapes.items()} | {size: curve(*size) for size in wide}
    epochs, per_epoch = 40, int(300 * scale**0.5)
    progress = per_epoch * np.arange(1, epochs + 1, dtype=np.float64)
    noise = 3.0 * np.linspace(1.0, 40.0, epochs) * float(rng.uniform(0.5, 2.0))  # variance over square at 64 samples
    metric = 0.95 * (1.0 - np.exp(-np.arange(1, epochs + 1) / 8.0))
    runs = {}
    for power in range(6):
        gain = (noise + 1.0) / (noise / 2**power + 1.0)
        iteration = np.cumsum(per_epoch / gain)
        columns = (progress, iteration, metric, 1.0 / noise, np.ones(epochs))
        runs[64 * 2**power] = TrainingRun(*(tuple(column.tolist()) for column in columns))
    return Application(name, shapes, sizes, runs)


def _rows(path: Path, columns: Iterable[str]) -> list[dict[str, str]]:
    if not path.is_file():
        raise InputError("data", str(path), "a file that is there")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    missing = [name for name in columns if not rows or name not in rows[0]]
    if missing:
        raise InputError("data", str(path), f"rows with columns {', '.join(missing)}")
    return rows
