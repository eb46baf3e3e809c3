"""What ONES published with its artifact, as far as it was measured: a trace of jobs, their histories, their times by scheduler.

Where the data is absent, `synthetic` draws a trace and histories of the same form from a seed.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from beamer.engines.simulated import Outcome, SimulatedJob, SimulatedProfile
from beamer.errors import InputError
from beamer.gpu.model import Costs, Grant, Request
from beamer.gpu.predictors.progress import ProgressSample


@dataclass(frozen=True)
class OnesSubmission:
    """A row of the trace.

    epoch_samples: samples of an epoch. patience: epochs without improvement after which it stops. batch_size, learning_rate: of
    one GPU; max_learning_rate: the largest, at which the global batch stays. gpus: what it asks for under fixed sizes.
    """

    at_s: float
    model: str
    task: str
    epoch_samples: int
    patience: int
    batch_size: int
    learning_rate: float
    max_learning_rate: float
    target_accuracy: float
    gpus: int

    @property
    def max_batch_size(self) -> int:
        """The largest global batch."""
        return round(self.batch_size * self.max_learning_rate / self.learning_rate)


@dataclass(frozen=True)
class Epoch:
    """What a job reported after an epoch. samples: processed until then. throughput: samples per second."""

    samples: float
    batch_size: int
    learning_rate: float
    loss: float
    accuracy: float
    throughput: float


@dataclass(frozen=True)
class JobHistory:
    """A job from its first epoch to its end. samples: that it had processed when it ended."""

    epoch_samples: int
    samples: float
    initial_loss: float
    epochs: tuple[Epoch, ...]

    @property
    def throughput(self) -> dict[int, float]:
        """Mean samples per second by global batch size."""
        sizes = sorted({epoch.batch_size for epoch in self.epochs})
        by_size = {size: [epoch.throughput for epoch in self.epochs if epoch.batch_size == size] for size in sizes}
        return {size: float(np.mean(values)) for size, values in by_size.items()}

    def rate(self, per_gpu: int, gpus: int, exponent: float) -> float:
        """Return samples per second on so many GPUs.

        Its largest batch size stands for as many GPUs as `per_gpu` samples each make of it; from there, throughput goes with
        the number of GPUs to the power of `exponent`.
        """
        size, rate = max(self.throughput.items())
        return float(rate * (gpus * per_gpu / size) ** exponent)

    def loss(self, done: float) -> float:
        """Return the loss after the share `done` of its samples."""
        return self._at(done, self.initial_loss, [epoch.loss for epoch in self.epochs])

    def accuracy(self, done: float) -> float:
        """Return the accuracy after the share `done` of its samples."""
        return self._at(done, 0.0, [epoch.accuracy for epoch in self.epochs])

    def _at(self, done: float, first: float, values: Sequence[float]) -> float:
        return float(np.interp(done * self.samples, [0.0, *(epoch.samples for epoch in self.epochs)], [first, *values]))

    def samples_of(self) -> tuple[ProgressSample, ...]:
        """Return what the progress model learns from it, an epoch each."""
        size = float(self.epoch_samples)
        return tuple(
            ProgressSample(size, self.initial_loss, epoch.loss, epoch.accuracy, epoch.samples / size, self.samples / size)
            for epoch in self.epochs
        )


@dataclass(frozen=True)
class ReplayedProfile(SimulatedProfile):
    """A job that replays a history over `iterations`. per_gpu, exponent: as in `JobHistory.rate`."""

    history: JobHistory
    iterations: int
    per_gpu: int
    exponent: float

    def step_s(self, grant: Grant, batch_size: int) -> tuple[float, float]:
        """Return the time of a step; what of it is synchronisation was not measured."""
        return batch_size / self.history.rate(self.per_gpu, grant.size, self.exponent), 0.0

    def outcome(self, iteration: float) -> Outcome:
        """Return loss and accuracy."""
        done = iteration / self.iterations
        return Outcome(self.history.loss(done), self.history.accuracy(done))


@dataclass(frozen=True)
class SchedulerTimes:
    """What a scheduler did to a job, seconds."""

    completion_s: float
    execution_s: float
    waiting_s: float


@dataclass(frozen=True)
class OnesData:
    """The trace, the histories, and by scheduler the jobs it was measured with, by row of the trace."""

    trace: tuple[OnesSubmission, ...]
    histories: tuple[JobHistory, ...]
    measured: dict[str, dict[int, SchedulerTimes]]

    @cached_property
    def exponent(self) -> float:
        """The power of the number of GPUs with which throughput grows, by the histories that have several batch sizes.

        1 where none has.
        """
        slopes = [
            float(np.polyfit(np.log(list(history.throughput)), np.log(list(history.throughput.values())), 1)[0])
            for history in self.histories
            if len(history.throughput) > 1
        ]
        return float(np.mean(slopes)) if slopes else 1.0

    def history(self, number: int) -> JobHistory:
        """Return the history of a job like that of a row: near in samples of an epoch and learning rate per sample.

        Rows take turns in the histories that are equally near.
        """
        job = self.trace[number]

        def distance(history: JobHistory) -> float:
            first = history.epochs[0]
            rate = np.log(first.learning_rate / first.batch_size / (job.learning_rate / job.batch_size))
            return abs(float(rate)) + abs(float(np.log(history.epoch_samples / job.epoch_samples)))

        distances = [distance(history) for history in self.histories]
        near = [history for history, far in zip(self.histories, distances, strict=True) if far <= min(distances) + 1e-6]
        return near[number % len(near)]

    def simulated(self, number: int, costs: Costs, elastic: bool) -> SimulatedJob:
        """Return the job of a row of the trace for the simulator.

        elastic: submitted at the batch size of one GPU, free in size and batch size; otherwise at that of all it asks for.
        """
        job, history = self.trace[number], self.history(number)
        batch_size = job.batch_size if elastic else min(job.batch_size * job.gpus, job.max_batch_size)
        samples = history.samples / history.epoch_samples * job.epoch_samples
        request = Request(
            iterations=max(round(samples / batch_size), 1),
            gpus=1 if elastic else job.gpus,
            min_gpus=1,
            max_gpus=max(job.gpus, job.max_batch_size // job.batch_size),
            epoch=max(round(job.epoch_samples / batch_size), 1),
            batch_size=batch_size,
            max_batch_size=job.max_batch_size,
            learning_rate=job.learning_rate * batch_size / job.batch_size,
            max_learning_rate=job.max_learning_rate,
        )
        return SimulatedJob(request, ReplayedProfile(history, request.iterations, job.batch_size, self.exponent), costs)


def read(folder: Path) -> OnesData:
    """Return the data in `folder`. Raises `InputError` where a file is missing or has other columns."""
    trace = tuple(
        OnesSubmission(
            float(row["time"]),
            row["model"],
            row["task"],
            int(row["epoch_size"]),
            int(row["patience"]),
            int(row["batch_size"]),
            float(row["lr"]),
            float(row["max_lr"]),
            float(row["target_acc"]),
            int(row["num_gpus"]),
        )
        for row in _rows(folder / "trace_1.csv", "time")
    )
    grouped: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in _rows(folder / "job_history.csv", "total_workload"):  # two jobs share a number; their workloads tell them apart
        grouped.setdefault((row["id"], row["total_workload"]), []).append(row)
    measured = {
        path.name.removesuffix("_profile.csv").lower(): {
            int(row["id"]): SchedulerTimes(
                *(float(row[name]) for name in ("completion_time", "execution_time", "waiting_time"))
            )
            for row in _rows(path, "completion_time")
        }
        for path in sorted(folder.glob("*_profile.csv"))
    }
    return OnesData(trace, tuple(_history(rows) for rows in grouped.values()), measured)


def synthetic(seed: int, jobs: int = 60, histories: int = 20) -> OnesData:
    """Return a trace of the same form and made-up histories: losses falling with a job's share, speeds less than linear."""
    rng = np.random.default_rng(seed)
    kinds = ((40000, 10, 256, 0.005, 0.08, 0.7, 4), (10000, 10, 32, 0.0005, 0.008, 0.55, 16), (3600, 5, 16, 5e-6, 2e-5, 0.8, 2))
    at = np.cumsum(rng.exponential(30.0, jobs)).round()
    picks = rng.integers(len(kinds), size=jobs)
    trace = tuple(OnesSubmission(float(t), f"model-{k}", f"task-{k}", *kinds[k]) for t, k in zip(at, picks, strict=True))
    drawn = []
    for number in range(histories):
        size, _, batch, rate, _, target, gpus = kinds[number % len(kinds)]
        total = int(np.clip(rng.lognormal(3.0, 0.6), 4, 80))
        first = float(rng.uniform(0.7, 7.0))
        speed = float(rng.uniform(1.0, 3.0)) * batch * 4
        steepness = float(rng.uniform(2.0, 5.0))
        epochs = []
        for epoch in range(1, total + 1):
            held = min(1 << (epoch // 3), gpus)
            left = float(np.exp(-steepness * epoch / total))
            noise = float(rng.normal(1.0, 0.03))
            epochs.append(
                Epoch(size * epoch, batch * held, rate * held, first * left * noise, target * (1 - left), speed * held**0.85)
            )
        drawn.append(JobHistory(size, float(size * total), first, tuple(epochs)))
    return OnesData(trace, tuple(drawn), {})


def _history(rows: Sequence[dict[str, str]]) -> JobHistory:
    first = rows[0]
    epochs = tuple(
        Epoch(
            float(row["num_samples"]),
            int(row["batch_size"]),
            float(row["lr"]),
            float(row["loss"]),
            float(row["acc"]),
            float(row["throughput"]),
        )
        for row in rows
    )
    return JobHistory(int(first["epoch_size"]), float(first["total_workload"]), float(first["initial_loss"]), epochs)


def _rows(path: Path, column: str) -> list[dict[str, str]]:
    if not path.is_file():
        raise InputError("data", str(path), "a file that is there")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or column not in rows[0]:
        raise InputError("data", str(path), f"rows with a column {column!r}")
    return rows
