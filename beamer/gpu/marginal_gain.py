"""Allocation by marginal gain: GPUs are handed out step by step, each step to the job whose value it raises most per GPU.

A table has a row per job and a column per number of GPUs that it may have, the first being none at all; sizes rise along a row,
and a value of minus infinity marks one that a job may not have. Steps go along the upper concave hulls of the rows, steepest
first: greedy allocation is optimal for a sum of concave functions of integers [Fox 1966, "Discrete optimization via marginal
analysis"], so that the sum of values is the largest possible, but for the last GPUs, which may be fewer than the next step.
Of steps that are equally steep the first row's comes first, of sizes of a row the smallest (`beamer.gpu.ties`).
"""

import numpy as np

from beamer.gpu.arrays import Floats, Ints
from beamer.gpu.ties import comparable

EVERY_COUNT_UP_TO = 4  # Beyond so many nodes, sizes are considered ever further apart, so that tables stay narrow.


def candidate_sizes(node_gpus: int, most: int, whole_nodes: bool) -> Ints:
    """Return the numbers of GPUs to consider, at most `most`: every one within a node of `node_gpus`, then whole nodes.

    Up to `EVERY_COUNT_UP_TO` nodes every number of them, then only powers of two and the middles between these.
    whole_nodes: beyond one node consider nothing else; otherwise up to `EVERY_COUNT_UP_TO` nodes are considered GPU by GPU.
    """
    sizes = set(range(1, min(node_gpus, most) + 1))
    nodes = 2
    while node_gpus * nodes <= most:
        sizes.add(node_gpus * nodes)
        nodes += 1 if nodes < EVERY_COUNT_UP_TO else nodes // 2 if nodes & (nodes - 1) == 0 else nodes // 3
    if not whole_nodes:
        sizes |= set(range(node_gpus + 1, min(most, EVERY_COUNT_UP_TO * node_gpus) + 1))
    return np.array(sorted(sizes), np.int64)


def allocate_by_gain(sizes: Ints, value: Floats, gpus: int) -> Ints:
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
        rate = comparable(np.where((more > 0) & (more <= gpus) & (gain > 0), gain / np.maximum(more, 1), 0.0))
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
        rate = comparable(np.where(more > 0, gain / np.maximum(more, 1), -np.inf))
        ends = rate.argmax(axis=1)
        slope = rate[np.arange(len(rows)), ends]
        rising = slope > 0
        rows, starts, at, slope = rows[rising], at[rising], ends[rising], slope[rising]
        found.append((rows, starts, at, slope))
    return tuple(np.concatenate(column) for column in zip(*found, strict=True))  # type: ignore[return-value]
