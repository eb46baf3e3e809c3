"""DL2's measured speeds by parameter servers and workers, and how well Optimus' speed model tells those it was not fitted to.

A line of `config_speed.txt` is a tuple: model, mode, batch size, servers, workers, [speed of each worker], [cores used by each
server], [cores used by each worker].
"""

import ast
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from beamer.errors import InputError
from beamer.gpu.model import Speed
from beamer.gpu.predictors.speed import ASYNC, SYNC, fit_speed

MODES = {"dist_sync": SYNC, "dist_async": ASYNC}
FITTED = 10
SPLITS = 50


@dataclass(frozen=True)
class SpeedMeasurement:
    """A configuration's speed: the sum of its workers', as in the file; batch_size: samples of all workers together."""

    model: str
    mode: str
    batch_size: int
    servers: int
    workers: int
    speed: float

    @property
    def sample(self) -> Speed:
        """What a speed model is fitted to."""
        return Speed(self.workers, 1, self.servers, self.batch_size, 1.0 / self.speed)


@dataclass(frozen=True)
class SpeedModelError:
    """How far a speed model is off on configurations it was not fitted to, relative to the measured speed.

    batch_size: of the configurations. points: there are. fitted: it was fitted to, drawn anew for each of `splits`.
    median: over all held-out points of all splits. mean: as well. split_median_p50, split_median_p95: of the splits' medians.
    """

    model: str
    mode: str
    batch_size: int
    points: int
    fitted: int
    splits: int
    median: float
    mean: float
    split_median_p50: float
    split_median_p95: float


def read_speeds(path: Path) -> tuple[SpeedMeasurement, ...]:
    """Return the configurations of DL2's file that ran; one with a worker without progress did not.

    Raises `InputError` naming the file or the line that cannot be read.
    """
    if not path.is_file():
        raise InputError("data", str(path), "a file that is there")
    measured = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            model, mode, batch_size, servers, workers, speeds, *_ = ast.literal_eval(line)
            usable = len(speeds) == workers and all(speed > 0 for speed in speeds)
            entry = SpeedMeasurement(str(model), str(mode), int(batch_size), int(servers), int(workers), float(sum(speeds)))
        except (ValueError, SyntaxError, TypeError) as error:
            raise InputError(f"{path}:{number}", line[:80], "(model, mode, batch size, ps, workers, [speeds], ...)") from error
        if entry.mode not in MODES:
            raise InputError(f"{path}:{number}", entry.mode, " or ".join(MODES))
        if usable:
            measured.append(entry)
    return tuple(measured)


def speed_model_errors(path: Path, splits: int = SPLITS, seed: int = 0, fitted: int = FITTED) -> tuple[SpeedModelError, ...]:
    """Fit the speed model to `fitted` random configurations of each model and batch size, `splits` times; test on others."""
    groups: dict[tuple[str, str, int], list[SpeedMeasurement]] = {}
    for entry in read_speeds(path):
        groups.setdefault((entry.model, entry.mode, entry.batch_size), []).append(entry)
    return tuple(_errors(entries, splits, random.Random(f"{seed} {key}"), fitted) for key, entries in groups.items())


def _errors(entries: list[SpeedMeasurement], splits: int, rng: random.Random, fitted: int) -> SpeedModelError:
    if len(entries) <= fitted:
        raise InputError("fitted", fitted, f"fewer than the {len(entries)} points of {entries[0].model}")
    by_split = []
    for _ in range(splits):
        shuffled = rng.sample(entries, len(entries))
        model = fit_speed(MODES[entries[0].mode], [entry.sample for entry in shuffled[:fitted]])
        assert model is not None, "as many points as are fitted are enough, and all have a speed"
        by_split.append(
            [abs(1.0 / (model.step_s(e.workers, e.servers, e.batch_size) * e.speed) - 1.0) for e in shuffled[fitted:]]
        )
    off = np.array(by_split)
    medians = np.median(off, axis=1)
    first = entries[0]
    return SpeedModelError(
        first.model,
        first.mode,
        first.batch_size,
        len(entries),
        fitted,
        splits,
        float(np.median(off)),
        float(off.mean()),
        float(np.median(medians)),
        float(np.percentile(medians, 95)),
    )
