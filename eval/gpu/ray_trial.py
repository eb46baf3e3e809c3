"""The trials of `eval.gpu.ray_search`, in a module that processes of Ray load quickly."""

import time
from pathlib import Path
from typing import Any

import numpy as np
from ray import tune

ROWS, INPUTS, HIDDEN, STEPS = 512, 10, 32, 3


class SmallNetwork:
    """A network with one hidden layer that learns the labels of another of its kind. Equal rates give equal losses."""

    def __init__(self, rate: float) -> None:
        rng = np.random.default_rng(0)
        self.rate = rate
        self.rows = rng.normal(size=(ROWS, INPUTS))
        self.labels = np.tanh(self.rows @ rng.normal(size=(INPUTS, 4))).sum(axis=1) > 0
        self.first = rng.normal(size=(INPUTS, HIDDEN)) / 3
        self.second = rng.normal(size=HIDDEN) / 6

    def train(self) -> float:
        """Make `STEPS` steps and return the loss."""
        for _ in range(STEPS):
            hidden, scores = self._scores()
            error = (1 / (1 + np.exp(-scores)) - self.labels) / ROWS
            slope = np.outer(error, self.second) * (1 - hidden * hidden)
            self.second = self.second - self.rate * hidden.T @ error
            self.first = self.first - self.rate * self.rows.T @ slope
        _, scores = self._scores()
        return float(np.mean(np.logaddexp(0, scores) - self.labels * scores))

    def _scores(self) -> tuple[Any, Any]:
        hidden = np.tanh(self.rows @ self.first)
        return hidden, np.clip(hidden @ self.second, -50, 50)


class NetworkTrial(tune.Trainable):  # type: ignore[misc]  # Ray is untyped where it is not installed
    """A configuration: its rate."""

    def setup(self, config: dict[str, Any]) -> None:
        """Begin anew."""
        self.network = SmallNetwork(config["rate"])

    def step(self) -> dict[str, float]:
        """Train for an iteration."""
        loss = self.network.train()
        time.sleep(self.config["pause_s"])
        return {"loss": loss}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the weights."""
        np.savez(Path(checkpoint_dir) / "weights.npz", first=self.network.first, second=self.network.second)

    def load_checkpoint(self, checkpoint: str) -> None:
        """Read the weights."""
        with np.load(Path(checkpoint) / "weights.npz") as weights:
            self.network.first, self.network.second = weights["first"], weights["second"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Become another trial."""
        self.setup(new_config)
        return True
