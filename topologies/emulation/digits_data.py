"""What `topologies.emulation.digits` is asked to train, on which samples and in which order, without PyTorch."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from topologies.emulation.program_options import ProgramOptions

TRAINING = 1437  # So many of the 1 797 samples are for training; the others, a fifth, are for the validation loss.

Images = NDArray[np.float32]
Labels = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class DigitsOptions(ProgramOptions):
    """What to do; a start is counted from the process's own on."""

    timeout_s: float = 600.0
    """The time-out of a collective, seconds."""
    data: str = ""
    """A file that `store` has written; "": scikit-learn is asked."""
    learning_rate: float
    """The configuration's learning rate."""
    momentum: float = 0.0
    """The configuration's momentum."""
    channels: int = 8
    """The configuration's channels of the first convolution."""
    hidden: int = 64
    """Units of the hidden layer, whose weights most of the gradient belongs to."""

    @property
    def seed(self) -> int:
        """What seeds the weights and the order of the samples."""
        return seed_of(self.learning_rate, self.momentum, self.channels)


def digits() -> tuple[Images, Labels]:
    """Return all digits, their pixels of mean 0 and variance 1, in an order of no meaning, and what they are."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    mixed = np.random.default_rng(0).permutation(len(labels))
    pixels = (images[mixed] - images.mean()) / images.std()
    return pixels.astype(np.float32).reshape(-1, 1, 8, 8), labels[mixed].astype(np.int64)


def store(path: Path) -> None:
    """Write the digits to a file for many ranks: importing scikit-learn would take each as long as importing PyTorch."""
    images, labels = digits()
    np.savez(path, images=images, labels=labels)


def stored(path: str) -> tuple[Images, Labels]:
    """Return what `store` has written."""
    with np.load(path) as file:
        return file["images"], file["labels"]


def seed_of(*configuration: float) -> int:
    """Return what seeds the weights and the order of the samples of a configuration."""
    return int.from_bytes(hashlib.sha256(json.dumps(configuration).encode()).digest()[:4], "big")


def batch(seed: int, iteration: int, size: int) -> NDArray[np.int64]:
    """Return the samples of an iteration, counted from 0: the training set again and again, each time in another order."""
    wanted = np.arange(iteration * size, (iteration + 1) * size)
    turns = {turn: np.random.default_rng([seed, turn]).permutation(TRAINING) for turn in {*(wanted // TRAINING).tolist()}}
    return np.array([turns[number // TRAINING][number % TRAINING] for number in wanted.tolist()])
