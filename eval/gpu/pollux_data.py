"""What Pollux published with its artifact, as far as it was measured: step times, convergence by batch size, workloads.

[Qiao, Choe, Subramanya, Neiswanger, Ho, Zhang, Ganger and Xing 2021, "Pollux: co-adaptive cluster scheduling for
goodput-optimized deep learning", section 5.3; the artifact: petuum/adaptdl, branch osdi21-artifact, folder simulator/] What was
not measured follows as in that simulator: times of a placement that was measured are linear between its samples per GPU, those
of others linear between numbers of nodes, of GPUs and of samples per GPU; the statistics of gradients are linear between the
batch sizes that were validated, and the progress of a step follows from them. A job's work is counted as there, in iterations
of the smallest batch size, and it ends after its last epoch. Our reconstruction, made without that simulator's code. Where the
data is absent, `synthetic` draws applications of the same form from a seed, `synthetic_workload` jobs.
"""

import csv
import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator  # type: ignore[import-untyped]

from beamer.engines.simulated import Outcome, SimulatedJob, SimulatedProfile
from beamer.errors import InputError, nearest
from beamer.gpu.model import Costs, Grant, Request

MAX_GPUS = 64  # GPUs that a job may have, the whole cluster of the evaluation
MAX_LOCAL_BATCH_SIZE = {"yolov3": 8}  # samples on a GPU, where the evaluation stays below what was measured (its applications)
ON_ONE_GPU = {"ncf": 32768}  # applications that run on one GPU at a batch size under every policy of the evaluation


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

    progress: iterations of the smallest batch size that it was worth. metric: 0 to 1, rising.
    gradient_sqr, gradient_var: of a gradient of the smallest batch size.
    """

    progress: tuple[float, ...]
    metric: tuple[float, ...]
    gradient_sqr: tuple[float, ...]
    gradient_var: tuple[float, ...]


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
    def min_local_batch_size(self) -> int:
        """The fewest samples that were measured on a GPU."""
        return int(min(curve.local[0] for curve in self.shapes.values()))

    @cached_property
    def max_local_batch_size(self) -> int:
        """The most samples that fit a GPU."""
        measured = int(max(curve.local[-1] for curve in self.shapes.values()))
        return min(measured, MAX_LOCAL_BATCH_SIZE.get(self.name, measured))

    @cached_property
    def epoch_ends(self) -> tuple[float, ...]:
        """The progress after each epoch: the least of all batch sizes."""
        return tuple(map(min, zip(*(run.progress for run in self.runs.values()), strict=False)))

    def step_s(self, gpus: Iterable[int], batch_size: int) -> tuple[float, float]:
        """Return the time of a step and of its synchronisation on so many GPUs of each node, seconds."""
        shape = tuple(sorted(gpus))
        if (shape, batch_size) not in self._steps:
            self._steps[shape, batch_size] = self._step_s(shape, batch_size / sum(shape))
        return self._steps[shape, batch_size]

    def _step_s(self, shape: tuple[int, ...], local: float) -> tuple[float, float]:
        if shape in self.shapes:
            return self.shapes[shape].at(local)
        size = (len(shape), sum(shape))
        if size in self.sizes:
            return self.sizes[size].at(local)
        linear, nearest = self._interpolators
        point = np.array([*size, np.clip(local, self.min_local_batch_size, self.max_local_batch_size)])
        step_s, sync_s = linear(point)[0].tolist()
        if math.isnan(step_s):  # outside of what was measured
            step_s, sync_s = nearest(np.log(point))[0].tolist()
        return step_s, sync_s

    @cached_property
    def _steps(self) -> dict[tuple[tuple[int, ...], int], tuple[float, float]]:
        return {}

    @cached_property
    def _interpolators(self) -> tuple[Any, Any]:
        """Both times by nodes, GPUs and samples per GPU, and the nearest ones by the logarithms of these."""
        rows = [(*size, local) for size, curve in self.sizes.items() for local in curve.local]
        times = [times for curve in self.sizes.values() for times in zip(curve.step_s, curve.sync_s, strict=True)]
        points = np.array(rows, np.float64)
        return LinearNDInterpolator(points, np.array(times)), NearestNDInterpolator(np.log(points), np.array(times))

    def gradient(self, batch_size: float, epoch: int) -> tuple[float, float]:
        """Return the squared norm of a gradient and the variance of one of the smallest batch size, as measured at another."""
        sizes = sorted(self.runs)
        rows = [(run.gradient_sqr[epoch], run.gradient_var[epoch]) for run in (self.runs[size] for size in sizes)]
        sqr, var = (float(np.interp(batch_size, sizes, column)) for column in zip(*rows, strict=True))
        return sqr, var

    def gain(self, batch_size: float, epoch: int) -> float:
        """Return how many iterations of the smallest batch size a step is worth."""
        sqr, var = self.gradient(batch_size, epoch)
        return (var + sqr) / (var * self.batch_size / batch_size + sqr)


@dataclass(frozen=True)
class PolluxProfile(SimulatedProfile):
    """A job that trains an application, submitted at the batch size `requested`."""

    application: Application
    requested: int

    def __post_init__(self) -> None:
        least, most = self.application.batch_size, self.application.max_batch_size
        if not least <= self.requested <= most:
            raise InputError("requested", self.requested, f"{least} to {most}, between which was measured")

    @cached_property
    def _epoch_ends(self) -> tuple[float, ...]:
        """The iterations of the batch size requested after which epochs end."""
        done, ends = 0.0, []
        for epoch, (start, end) in enumerate(pairwise((0.0, *self.application.epoch_ends))):
            done += (end - start) / self.application.gain(self.requested, epoch)
            ends.append(done)
        return tuple(ends)

    @property
    def iterations(self) -> int:
        """Iterations of the batch size requested until it ends."""
        return max(round(self._epoch_ends[-1]), 1)

    @property
    def epochs(self) -> int:
        """Epochs until it ends."""
        return len(self._epoch_ends)

    def epoch(self, iteration: float) -> int:
        """Return the epoch that it is in, counted from 0."""
        return min(bisect_right(self._epoch_ends, iteration), self.epochs - 1)

    def progress(self, iteration: float) -> float:
        """Return iterations of the smallest batch size."""
        return float(np.interp(iteration, (0.0, *self._epoch_ends), (0.0, *self.application.epoch_ends)))

    def epoch_end(self, request: Request, iteration: float) -> float:
        """Return the iteration at which the epoch that it is in ends."""
        end = self._epoch_ends[self.epoch(iteration)]
        return end if end > iteration else math.inf

    def step_s(self, grant: Grant, batch_size: int) -> tuple[float, float]:
        """Return the measured time of a step."""
        return self.application.step_s((count for _, count in grant.gpus), batch_size)

    def sub_steps(self, request: Request, gpus: int, batch_size: int) -> int:
        """Return at least two where one GPU alone measures its gradients' variance, which takes two."""
        alone = gpus == 1 and batch_size > self.application.batch_size
        return max(request.sub_steps(gpus, batch_size), 2 if alone else 1)

    def outcome(self, iteration: float) -> Outcome:
        """Return the metric as accuracy, and what it lacks as loss."""
        first = self.application.runs[self.application.batch_size]
        metric = float(np.interp(self.progress(iteration), (0.0, *first.progress), (0.0, *first.metric)))
        return Outcome(1.0 - metric, metric)

    def gradient(self, batch_size: int, iteration: float) -> tuple[float, float]:
        """Return what the run at the job's own batch size measured."""
        sqr, var = self.application.gradient(batch_size, self.epoch(iteration))
        return sqr, var * self.application.batch_size / self.requested

    def efficiency(self, batch_size: int, iteration: float) -> float:
        """Return the progress per sample at `batch_size`, relative to that at the one requested."""
        if batch_size == self.requested:
            return 1.0
        epoch = self.epoch(iteration)
        ours, theirs = (self.application.gain(size, epoch) / size for size in (batch_size, self.requested))
        return ours / theirs


@dataclass(frozen=True)
class PolluxSubmission:
    """A row of a workload. gpus, batch_size: what its user tuned it for."""

    name: str
    at_s: float
    application: str
    gpus: int
    batch_size: int


def simulated(
    job: PolluxSubmission, application: Application, costs: Costs, tuned: bool, report_s: float = 0.0, start_s: float = 0.0
) -> SimulatedJob:
    """Return a job for the simulator.

    tuned: at the batch size of the workload and asking for its GPUs; otherwise at the smallest, asking for one, both free.
    report_s, start_s: as of `SimulatedJob`.
    """
    fixed = ON_ONE_GPU.get(application.name, job.batch_size if tuned else 0)
    profile = PolluxProfile(application, fixed or application.batch_size)
    most = 1 if application.name in ON_ONE_GPU else (fixed or application.max_batch_size) // application.min_local_batch_size
    gpus = job.gpus if fixed else 1
    request = Request(
        iterations=profile.iterations,
        gpus=gpus,
        min_gpus=1,
        max_gpus=max(min(MAX_GPUS, most), gpus),
        epoch=max(profile.iterations // profile.epochs, 1),
        batch_size=profile.requested,
        max_batch_size=0 if fixed else application.max_batch_size,
        max_local_batch_size=application.max_local_batch_size,
        accumulates=True,
    )
    return SimulatedJob(request, profile, costs, report_s, start_s)


def read(folder: Path) -> dict[str, Application]:
    """Return the applications in `folder`, by name. Raises `InputError` where there is none or a file has other columns."""
    found = {path.name: _application(path) for path in sorted((folder / "traces").glob("*")) if path.is_dir()}
    if not found:
        raise InputError("data", str(folder), "a folder with traces of applications")
    return found


def traced(folder: Path, without: Collection[str]) -> dict[str, Application]:
    """Return the applications in `folder` but those of `without`.

    Raises `InputError` for one whose jobs are in a workload and which has no traces, unless it is left out.
    """
    found, named = read(folder), named_in_workloads(folder)
    for name in without:
        if name not in named:
            raise InputError("without", name, nearest(name, named) if named else "nothing, as there are no workloads")
    for name in sorted(named - found.keys() - set(without)):
        expected = f"a folder with traces/{name}/, as workloads have jobs of it, or `without: [{name}]` in the claim's section"
        raise InputError("--data", str(folder), expected)
    return {name: application for name, application in found.items() if name not in without}


def named_in_workloads(folder: Path) -> set[str]:
    """Return the applications of the jobs in all workloads of a folder, traced or not."""
    return {row.application for file in workload_files(folder) for row in read_workload(file)}


def workload_files(folder: Path) -> list[Path]:
    """Return the files of a folder's workloads, in their order."""
    return sorted((folder / "workloads").glob("*.csv"))


def left_out(without: Collection[str]) -> str:
    """Return what descriptions of runs say of the applications that are left out."""
    return f" without {', '.join(without)}" if without else ""


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
        gpus = int(rng.choice((1, 2, 4, 8, 16)))
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
    columns = ("progress", "metric", "grad_sqr", "grad_var")
    table = np.array([[float(row[name]) for name in columns] for row in _rows(path, columns)]).T
    metric = table[1] / 100.0 if table[1].max() > 1.0 else table[1]
    table[1] = 1.0 - metric if metric[-1] < metric[0] / 2 else metric  # an error rate falls
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
        columns = (progress, metric, 1.0 / noise, np.ones(epochs))
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
