"""Handing out GPUs one step after another, each to the job to which it is worth most.

A table has a row per job and a column per number of GPUs that it may have, the first being none at all; sizes rise along a row,
and a value of minus infinity marks one that a job may not have. Along the concave hulls of the rows, steepest step first, the
sum of values is the largest that can be had, but for what the last GPUs do not divide into.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def node_sizes(widest: int, most: int, apart: bool) -> Ints:
    """Return the numbers of GPUs worth considering on nodes of `widest`: on one node all, then whole nodes, ever fewer of them.

    apart: leave out what does not fill whole nodes; otherwise up to four nodes are considered GPU by GPU.
    """
    sizes = set(range(1, min(widest, most) + 1))
    nodes = 2
    while widest * nodes <= most:
        sizes.add(widest * nodes)
        nodes += 1 if nodes < 4 else nodes // 2 if nodes & (nodes - 1) == 0 else nodes // 3
    if not apart:
        sizes |= set(range(widest + 1, min(most, 4 * widest) + 1))
    return np.array(sorted(sizes), np.int64)


def fill(sizes: Ints, value: Floats, gpus: int) -> Ints:
    """Return how many of `gpus` each job gets: steps along the hulls, steepest first, then whatever still fits."""
    rows, starts, ends, slope = _hulls(sizes, value)
    at = np.zeros(len(sizes), np.int64)
    for step in np.argsort(-slope, kind="stable").tolist():
        if not gpus:
            break
        row, need = rows[step], sizes[rows[step], ends[step]] - sizes[rows[step], starts[step]]
        if at[row] == starts[step] and need <= gpus:
            at[row] = ends[step]
            gpus -= int(need)
    whole = np.arange(len(sizes))
    while gpus:
        more = sizes - sizes[whole, at][:, None]
        gain = value - value[whole, at][:, None]
        rate = np.where((more > 0) & (more <= gpus) & (gain > 0), gain / np.maximum(more, 1), 0.0)
        best = int(rate.argmax())
        if rate.flat[best] <= 0:
            break
        row, column = divmod(best, sizes.shape[1])
        gpus -= int(more[row, column])
        at[row] = column
    return np.asarray(sizes[whole, at])


def _hulls(sizes: Ints, value: Floats) -> tuple[Ints, Ints, Ints, Floats]:
    """Return the steps along each row's upper concave hull, as far as it rises: row, column before, column after, slope."""
    at = np.zeros(len(sizes), np.int64)
    rows = np.arange(len(sizes))
    found = [(rows[:0], at[:0], at[:0], np.zeros(0))]
    while len(rows):
        more = sizes[rows] - sizes[rows, at][:, None]
        gain = value[rows] - value[rows, at][:, None]
        rate = np.where(more > 0, gain / np.maximum(more, 1), -np.inf)
        ends = rate.argmax(axis=1)
        slope = rate[np.arange(len(rows)), ends]
        rising = slope > 0
        rows, starts, at, slope = rows[rising], at[rising], ends[rising], slope[rising]
        found.append((rows, starts, at, slope))
    return tuple(np.concatenate(column) for column in zip(*found, strict=True))  # type: ignore[return-value]
