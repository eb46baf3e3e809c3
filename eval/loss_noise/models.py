"""Small models that are trained by gradient descent, each with the samples that it learns from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.gpu.fresh_samples import CLASSES, FEATURES, SIGNAL

Floats = NDArray[np.float64]
Samples = tuple[NDArray[Any], NDArray[np.int64]]
"""Inputs and targets."""
Weights = tuple[Floats, ...]

HIDDEN = 64  # units of the perceptron
SYMBOLS, LENGTH, WIDTH = 16, 8, 16  # of the language model: its alphabet, a sequence, and an embedding


@dataclass(frozen=True)
class LearningProblem:
    """A model and what it learns.

    weights: the initial ones. draw: returns so many samples. gradient: returns the mean cross-entropy of samples, nats, and its
    derivatives by the weights.
    """

    weights: Weights
    draw: Callable[[np.random.Generator, int], Samples]
    gradient: Callable[[Weights, Samples], tuple[float, Weights]]


def softmax_regression(rng: np.random.Generator) -> LearningProblem:
    """Return a linear classifier of normal features. Labels are drawn by the logits of a random linear map."""
    teacher = SIGNAL * _matrix(rng, FEATURES, CLASSES)
    weights = (np.zeros((FEATURES, CLASSES)), np.zeros(CLASSES))
    return LearningProblem(weights, _labelled(lambda inputs: inputs @ teacher), _layers)


def perceptron(rng: np.random.Generator) -> LearningProblem:
    """Return a classifier with one hidden layer. Labels are drawn by the logits of a random network of its shape."""
    first, second = _matrix(rng, FEATURES, HIDDEN), SIGNAL * _matrix(rng, HIDDEN, CLASSES)
    weights = (_matrix(rng, FEATURES, HIDDEN), np.zeros(HIDDEN), _matrix(rng, HIDDEN, CLASSES), np.zeros(CLASSES))
    return LearningProblem(weights, _labelled(lambda inputs: np.maximum(inputs @ first, 0.0) @ second), _layers)


def attention(rng: np.random.Generator) -> LearningProblem:
    """Return a language model with one head of causal self-attention, and sequences of a second-order Markov chain."""
    logits = rng.normal(size=(SYMBOLS, 1, SYMBOLS)) + rng.normal(size=(1, SYMBOLS, SYMBOLS))
    below = _softmax(SIGNAL / 2 * logits).cumsum(axis=-1)[..., :-1]

    def draw(samples: np.random.Generator, count: int) -> Samples:
        sequences = samples.integers(SYMBOLS, size=(count, LENGTH + 1))
        drawn = samples.random((count, LENGTH + 1, 1))
        for place in range(2, LENGTH + 1):
            limits = below[sequences[:, place - 2], sequences[:, place - 1]]
            sequences[:, place] = (drawn[:, place] > limits).sum(axis=-1)
        return sequences[:, :-1], sequences[:, 1:]

    embeddings = (rng.normal(size=(SYMBOLS, WIDTH)), rng.normal(size=(LENGTH, WIDTH)))
    projections = (_matrix(rng, WIDTH, WIDTH) for _ in range(3))
    return LearningProblem((*embeddings, *projections, *(_matrix(rng, WIDTH, SYMBOLS) for _ in range(2))), draw, _attention)


PROBLEMS: Mapping[str, Callable[[np.random.Generator], LearningProblem]] = {
    "softmax regression": softmax_regression,
    "perceptron": perceptron,
    "attention": attention,
}
"""By name."""


def _matrix(rng: np.random.Generator, size: int, to: int) -> Floats:
    return np.asarray(rng.normal(size=(size, to)) / np.sqrt(size))


def _labelled(logits: Callable[[Floats], Floats]) -> Callable[[np.random.Generator, int], Samples]:
    def draw(rng: np.random.Generator, count: int) -> Samples:
        inputs = rng.normal(size=(count, FEATURES))
        return inputs, (logits(inputs) + rng.gumbel(size=(count, CLASSES))).argmax(axis=-1)

    return draw


def _softmax(logits: Floats) -> Floats:
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def _cross_entropy(logits: Floats, targets: NDArray[np.int64]) -> tuple[float, Floats]:
    """Return the mean over all targets, and its derivatives by the logits."""
    chances, places = _softmax(logits), targets[..., None]
    right = np.take_along_axis(chances, places, -1)
    np.put_along_axis(chances, places, right - 1.0, -1)
    return float(-np.log(right).mean()), chances / targets.size


def _layers(weights: Weights, samples: Samples) -> tuple[float, Weights]:
    """Return loss and derivatives of dense layers with rectifiers between them."""
    activations, targets = [samples[0]], samples[1]
    layers = list(zip(weights[::2], weights[1::2], strict=True))
    for matrix, bias in layers[:-1]:
        activations.append(np.maximum(activations[-1] @ matrix + bias, 0.0))
    loss, error = _cross_entropy(activations[-1] @ layers[-1][0] + layers[-1][1], targets)
    found: list[Floats] = []
    for (matrix, _), below in zip(reversed(layers), reversed(activations), strict=True):
        found = [below.T @ error, error.sum(axis=0), *found]
        error = error @ matrix.T * (below > 0)
    return loss, tuple(found)


def _attention(weights: Weights, samples: Samples) -> tuple[float, Weights]:
    """Return loss and derivatives of a head of attention [Vaswani et al. 2017, section 3.2.1] beside a direct connection."""
    embedding, position, query, key, value, direct, mixed = weights
    symbols, targets = np.eye(SYMBOLS)[samples[0]], samples[1]
    later = np.triu(np.ones((LENGTH, LENGTH), bool), 1)
    x = symbols @ embedding + position
    q, k, v = x @ query / np.sqrt(WIDTH), x @ key, x @ value
    shares = _softmax(np.where(later, -np.inf, q @ k.swapaxes(1, 2)))
    context = shares @ v
    loss, error = _cross_entropy(x @ direct + context @ mixed, targets)
    d_context = error @ mixed.T
    d_shares = d_context @ v.swapaxes(1, 2)
    d_scores = shares * (d_shares - (d_shares * shares).sum(axis=-1, keepdims=True))
    d_q, d_k, d_v = d_scores @ k / np.sqrt(WIDTH), d_scores.swapaxes(1, 2) @ q, shares.swapaxes(1, 2) @ d_context
    d_x = error @ direct.T + d_q @ query.T + d_k @ key.T + d_v @ value.T
    pairs = ((symbols, d_x), (x, d_q), (x, d_k), (x, d_v), (x, error), (context, error))
    d_embedding, *others = (np.einsum("nti,ntj->ij", one, other, optimize=True) for one, other in pairs)
    return loss, (d_embedding, d_x.sum(axis=0), *others)
