"""Models that learn on samples which they have never seen, so that their losses are noisy: a loss at each iteration."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

FEATURES, BATCH, CLASSES = 32, 64, 4
NOISE = 0.3  # standard deviation of a regression's labels, whose square no loss falls below for long
SIGNAL = 3.0  # standard deviation of the logits that classes are drawn by: some labels stay wrong


def regression(rate: float, seed: int) -> Iterator[float]:
    """Yield the mean squared errors of a linear map that is fitted by gradient descent. rate: its learning rate."""
    rng = np.random.default_rng(seed)
    truth, weights = rng.normal(size=FEATURES) / np.sqrt(FEATURES), np.zeros(FEATURES)
    while True:
        samples = rng.normal(size=(BATCH, FEATURES))
        with np.errstate(all="ignore"):  # One that diverges overflows.
            residuals = samples @ weights - samples @ truth - NOISE * rng.normal(size=BATCH)
            loss = float(np.mean(residuals**2))
            weights = weights - rate * 2.0 / BATCH * samples.T @ residuals
        yield loss


def classification(rate: float, seed: int) -> Iterator[float]:
    """Yield the cross-entropies of a linear classifier that is fitted by gradient descent. rate: its learning rate."""
    rng = np.random.default_rng(seed)
    truth, weights = SIGNAL * rng.normal(size=(FEATURES, CLASSES)) / np.sqrt(FEATURES), np.zeros((FEATURES, CLASSES))
    while True:
        samples = rng.normal(size=(BATCH, FEATURES))
        labels = (samples @ truth + rng.gumbel(size=(BATCH, CLASSES))).argmax(axis=1)
        with np.errstate(all="ignore"):
            logits = samples @ weights
            logits -= logits.max(axis=1, keepdims=True)
            wrong = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
            loss = float(-np.log(wrong[np.arange(BATCH), labels]).mean())
            wrong[np.arange(BATCH), labels] -= 1.0
            weights = weights - rate / BATCH * samples.T @ wrong
        yield loss


PROBLEMS: Mapping[str, Callable[[float, int], Iterator[float]]] = {
    "regression": regression,
    "classification": classification,
}
"""By name."""
