"""A search whose every step leaves a line: what was computed, when, and on which GPUs."""

import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from ray import get_gpu_ids, get_runtime_context, tune
from ray.tune import Callback, CheckpointConfig, FailureConfig, ResultGrid, RunConfig, TuneConfig, Tuner

from beamer.engines.ray_tune.scheduler import BeamerScheduler

ROWS, COLUMNS = 64, 8


@dataclass(frozen=True)
class Step:
    """A line. devices: the GPUs of the process, with their node. process: of the trial, its id."""

    trial: str
    step: int
    loss: float
    begin_s: float
    end_s: float
    devices: tuple[tuple[str, int], ...]
    gpus: float
    batch_size: int
    process: int


class Regression:
    """Least squares by gradient descent: the same weights after the same steps, to the last bit."""

    def __init__(self, rate: float) -> None:
        rng = np.random.default_rng(1)
        self.rows, self.rate = rng.normal(size=(ROWS, COLUMNS)), rate
        self.aim = self.rows @ rng.normal(size=COLUMNS)
        self.weights = np.zeros(COLUMNS)

    def step(self) -> float:
        error = self.rows @ self.weights - self.aim
        self.weights = self.weights - self.rate * self.rows.T @ error / ROWS
        return float(np.mean(error**2))


def undisturbed(rate: float, steps: int) -> list[float]:
    """Return the losses of a run that was never paused."""
    model = Regression(rate)
    return [model.step() for _ in range(steps)]


class Trial(tune.Trainable):  # type: ignore[misc]
    """A trial that computes a step, sleeps for `pause_s`, and writes its line."""

    def setup(self, config: dict[str, Any]) -> None:
        self.model = Regression(config["rate"])

    def step(self) -> dict[str, Any]:
        begin_s = time.time()
        loss = self.model.step()
        time.sleep(self.config["pause_s"])
        write(self.config, self.trial_id, self.iteration + 1, loss, begin_s, self.trial_resources.required_resources["GPU"])
        return {"loss": loss}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        np.save(Path(checkpoint_dir) / "weights.npy", self.model.weights)

    def load_checkpoint(self, checkpoint: str) -> None:
        self.model.weights = np.load(Path(checkpoint) / "weights.npy")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True


def write(config: dict[str, Any], trial: str, step: int, loss: float, begin_s: float, gpus: float) -> None:
    """Add a line."""
    node = get_runtime_context().get_node_id()
    devices = [(node, int(gpu)) for gpu in get_gpu_ids()]
    line = [trial, step, loss, begin_s, time.time(), devices, gpus, config.get("batch_size", 0), os.getpid()]
    with Path(config["lines"], trial).open("a") as file:
        file.write(json.dumps(line) + "\n")


def steps(folder: Path) -> dict[str, list[Step]]:
    """Return the lines of each trial, oldest first."""
    found: dict[str, list[Step]] = {}
    for path in sorted((folder / "lines").iterdir()):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        found[path.name] = [Step(*line[:5], tuple(map(tuple, line[5])), *line[6:]) for line in lines]
    return found


def overlaps(lines: Iterable[Step]) -> list[tuple[Step, Step]]:
    """Return the steps of different trials that had a GPU at the same time."""
    by_device: dict[tuple[str, int], list[Step]] = {}
    for line in lines:
        for device in line.devices:
            by_device.setdefault(device, []).append(line)
    return [
        (a, b)
        for on in by_device.values()
        for ordered in [sorted(on, key=lambda line: line.begin_s)]
        for a, b in pairwise(ordered)
        if b.begin_s < a.end_s and a.trial != b.trial
    ]


def run(
    folder: Path,
    scheduler: BeamerScheduler,
    rates: Sequence[float],
    *,
    trainable: Any = Trial,
    iterations: int | None = None,
    gpus: int = 1,
    pause_s: float = 0.02,
    reuse: bool = False,
    saved_every: int = 0,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> ResultGrid:
    """Run a search with a trial per rate under `folder`."""
    (folder / "lines").mkdir()
    stop = {"training_iteration": iterations} if iterations else None
    return Tuner(
        tune.with_resources(trainable, {"cpu": 1, "gpu": gpus}),
        param_space={"rate": tune.grid_search(list(rates)), "lines": str(folder / "lines"), "pause_s": pause_s},
        tune_config=TuneConfig(scheduler=scheduler, reuse_actors=reuse),
        run_config=RunConfig(
            name="search",
            storage_path=str(folder / "results"),
            callbacks=list(callbacks),
            stop=stop,
            verbose=0,
            failure_config=FailureConfig(max_failures=options.get("failures", 0)),
            checkpoint_config=CheckpointConfig(checkpoint_frequency=saved_every),
        ),
    ).fit()
