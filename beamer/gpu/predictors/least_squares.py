"""Small least-squares problems, as predictors solve them by the thousand."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from beamer.gpu.arrays import Floats

RIDGE = 1e-12
"""Added to the diagonal relative to it, so that columns that say the same thing do no harm."""

MIN_RIDGE = 1e-300  # This is added besides, so that a problem without any data has a solution, 0.
# A column is at least so long, relative to the longest: a column of zeros has a large variance, not an infinite one.
MIN_LENGTH = 1e-12


def nnls_of_each(gram: Floats, moment: Floats) -> Floats:
    """Return the non-negative least-squares solutions of many problems with up to three unknowns.

    gram: (g, p, p). moment: (g, p). Where the solution without bounds has unknowns below 0, every smaller set of them is tried.
    """
    unknowns = moment.shape[1]
    ridge = RIDGE * np.trace(gram, axis1=1, axis2=2)[:, None, None] + MIN_RIDGE
    gram = gram + ridge * np.eye(unknowns)
    best = np.asarray(np.linalg.solve(gram, moment[:, :, None])[:, :, 0], np.float64)
    rest = (best < 0).any(1)
    if not rest.any():
        return best
    best[rest] = _few_above_0(gram[rest], moment[rest])
    return best


def _few_above_0(gram: Floats, moment: Floats) -> Floats:
    """Return the best solutions with one or two unknowns above 0."""
    count, unknowns = moment.shape
    first, second = _pairs(unknowns)
    diagonal = np.diagonal(gram, axis1=1, axis2=2)
    alone = np.maximum(moment / diagonal, 0.0)
    g, h, between = diagonal[:, first], diagonal[:, second], gram[:, first, second]
    determinant = np.maximum(g * h - between**2, RIDGE * g * h)
    left = (moment[:, first] * h - moment[:, second] * between) / determinant
    right = (moment[:, second] * g - moment[:, first] * between) / determinant
    gained = np.concatenate(
        [
            alone * moment,
            np.where((left >= 0) & (right >= 0), left * moment[:, first] + right * moment[:, second], 0.0),
        ],
        axis=1,
    )
    chosen = gained.argmax(1)
    found = np.zeros_like(moment)
    rows = np.arange(count)
    single = chosen < unknowns
    found[rows[single], chosen[single]] = alone[single, chosen[single]]
    pair, rows = chosen[~single] - unknowns, rows[~single]
    found[rows, first[pair]] = left[rows, pair]
    found[rows, second[pair]] = right[rows, pair]
    return found


@cache
def _pairs(unknowns: int) -> tuple[NDArray[np.intp], ...]:
    return np.triu_indices(unknowns, 1)


def inverse_grams(rows: Floats) -> Floats:
    """Return the inverses of `rows.T @ rows`, (g, p, p), of many problems of one size. rows: (g, n, p).

    They are the covariances of least-squares solutions for errors of variance 1. Directions that the rows say nothing about
    have a large variance, not an infinite one.
    """
    length = np.sqrt((rows**2).sum(1))
    longest = length.max(1, keepdims=True)
    length = np.where(longest > 0, np.maximum(length, MIN_LENGTH * longest), 1.0)
    unit = rows / length[:, None, :]
    inverse = np.linalg.inv(unit.transpose(0, 2, 1) @ unit + RIDGE * np.eye(rows.shape[2]))
    return np.asarray(inverse / (length[:, :, None] * length[:, None, :]), np.float64)
