"""The operators of ONES' evolutionary search, on arrays: which job owns which GPU, for a population of such genomes at once.

A *genome* has one gene per GPU, node by node: the row of the job that owns it, or `EMPTY`. Populations are arrays of a row per
genome; *held* is the same without positions, GPUs by genome and job. Refresh, uniform crossover, uniform mutation and
reordering are those of Bian, Li, Wang and You 2021 and of their artifact, re-written; which GPUs `reorder` gives to jobs whose
size has changed is ours, as the publication gives no detail.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from beamer.gpu.arrays import Bools, Floats, Ints
from beamer.gpu.ties import comparable

EMPTY = -1
MIN_RATE = 1e-12  # samples per second; keeps scores finite where a job makes no progress


def gpus_per_job(genomes: Ints, jobs: int) -> Ints:
    """Return the GPUs of each job, a row per genome."""
    rows = len(genomes)
    keys = (np.arange(rows)[:, None] * (jobs + 1) + genomes + 1).ravel()
    return np.bincount(keys, minlength=rows * (jobs + 1)).reshape(rows, jobs + 1)[:, 1:].astype(np.int64)


def trim_to_limits(genomes: Ints, limit: Ints) -> Ints:
    """Empty the last genes of jobs that hold more than their `limit`."""
    held = gpus_per_job(genomes, len(limit))
    over = held > limit
    if not over.any():
        return genomes
    at = np.nonzero(over[np.arange(len(genomes))[:, None], genomes] & (genomes != EMPTY))
    key = at[0] * len(limit) + genomes[at]
    order = np.argsort(key, kind="stable")
    _, first, inverse = np.unique(key[order], return_index=True, return_inverse=True)
    rank = np.empty(len(key), np.int64)
    rank[order] = np.arange(len(key)) - first[inverse]
    excess = rank >= limit[genomes[at]]
    result = genomes.copy()
    result[at[0][excess], at[1][excess]] = EMPTY
    return result


def uniform_crossover(parents: Ints, rng: np.random.Generator) -> Ints:
    """Pair the genomes at random and swap each of a pair's genes with probability one half."""
    pairs = rng.permutation(len(parents))[: len(parents) // 2 * 2].reshape(-1, 2)
    one, other = parents[pairs[:, 0]], parents[pairs[:, 1]]
    swap = rng.random(one.shape) < 0.5
    return np.concatenate((np.where(swap, other, one), np.where(swap, one, other)))


def uniform_mutation(genomes: Ints, protected: Bools, probability: float, rng: np.random.Generator) -> Ints:
    """Drop each job of each genome with `probability`, but for those that are `protected`."""
    dropped = (rng.random((len(genomes), len(protected))) < probability) & ~protected
    gone = dropped[np.arange(len(genomes))[:, None], genomes] & (genomes != EMPTY)
    return np.where(gone, EMPTY, genomes)


def fill_free_gpus(held: Ints, gpus: int, order: Ints, limit: Ints, least: Ints) -> Ints:
    """Hand out free GPUs: to jobs as `order` lists them, to each up to its limit, to none fewer than its `least`.

    Jobs that hold fewer than their least lose them first.
    """
    held = np.where(held < least, 0, held)
    need = np.maximum(limit - held, 0)
    while True:
        free = gpus - held.sum(axis=1)
        need[(least - held > free[:, None]) | (held >= limit)] = 0
        ordered = need[:, order]
        before = np.cumsum(ordered, axis=1) - ordered
        take = np.empty_like(need)
        take[:, order] = np.clip(free[:, None] - before, 0, ordered)
        short = (take > 0) & (held + take < least)  # A row has at most one such job, the last that was reached.
        if not take.any():
            return held
        take[short] = 0
        need[short] = 0
        held = held + take
        need -= take


def reorder(held: Ints, deployed: Ints, order: Ints) -> Ints:
    """Return genomes in which few GPUs change their owner against the genome `deployed`.

    A job of unchanged size keeps its GPUs, the others get what is left in contiguous runs, as `order` lists them.
    """
    jobs = held.shape[1]
    now = gpus_per_job(deployed[None], jobs)[0]
    same = (held == now) & (now > 0)
    result = np.where(same[:, deployed] & (deployed != EMPTY), deployed, EMPTY)
    moved = np.where(same, 0, held)[:, order]
    for row, counts in zip(result, moved, strict=True):
        row[np.flatnonzero(row == EMPTY)[: counts.sum()]] = np.repeat(order, counts)
    return result


@dataclass(frozen=True, eq=False)
class Throughputs:
    """Samples per second by GPUs, of many jobs: a row of known points each, padded on the right.

    gpus: rising, from 0. last: column of each row's last point.
    """

    gpus: Floats
    rate: Floats
    last: Ints

    @classmethod
    def of(cls, points: Sequence[Sequence[tuple[float, float]]]) -> "Throughputs":
        """Take each job's points (GPUs, samples per second), GPUs rising from 1 or more; at least one point each."""
        columns = 1 + max(map(len, points), default=1)
        gpus = np.full((len(points), columns), np.inf)
        rate = np.zeros((len(points), columns))
        gpus[:, 0] = 0.0
        sizes = np.array([len(row) for row in points], np.int64)
        rows = np.repeat(np.arange(len(points)), sizes)
        at = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
        flat = np.array([point for row in points for point in row], np.float64).reshape(-1, 2)
        gpus[rows, at], rate[rows, at] = flat.T
        return cls(gpus, rate, sizes)

    def at(self, jobs: Ints, gpus: Ints) -> Floats:
        """Return the throughput of each of `jobs` on as many GPUs: linear between points, not falling beyond."""
        upper = np.minimum((self.gpus[jobs] <= gpus[:, None]).sum(axis=1), self.last[jobs])
        lower = upper - 1
        x, y = self.gpus[jobs, lower], self.rate[jobs, lower]
        slope = (self.rate[jobs, upper] - y) / (self.gpus[jobs, upper] - x)
        beyond = gpus > self.gpus[jobs, upper]
        value = np.where(
            beyond,
            self.rate[jobs, upper] + np.maximum(slope, 0.0) * (gpus - self.gpus[jobs, upper]),
            y + slope * (gpus - x),
        )
        return np.asarray(np.maximum(value, MIN_RATE))


def scores(held: Ints, remaining: Floats, rates: Throughputs) -> Floats:
    """Return the GPU-seconds that each genome's jobs still need, to be minimised, as `comparable`. remaining: samples by job.

    A job that is so many times faster on so many GPUs needs as many on any number of them: genomes often tie.
    """
    rows, jobs = np.nonzero(held)
    gpus = held[rows, jobs]
    return comparable(np.bincount(rows, gpus * remaining[jobs] / rates.at(jobs, gpus), minlength=len(held)))


def select_best(held: Ints, score: Floats, count: int) -> Ints:
    """Return the rows of the `count` least scores, best first, each assignment once unless there are too few."""
    order = np.argsort(score, kind="stable")
    seen: set[bytes] = set()
    first: list[int] = []
    again: list[int] = []
    for row in order.tolist():
        key = held[row].tobytes()
        (again if key in seen else first).append(row)
        seen.add(key)
    return np.array((first + again)[:count], np.int64)


def encode_genome(genome: Ints) -> tuple[int, ...]:
    """Return a genome as owner, length, owner, length, ..."""
    if not len(genome):
        return ()
    starts = np.concatenate(([0], np.flatnonzero(np.diff(genome)) + 1))
    lengths = np.diff(np.concatenate((starts, [len(genome)])))
    return tuple(np.stack((genome[starts], lengths), axis=1).ravel().tolist())


def decode_genome(runs: Sequence[int]) -> Ints:
    """Return the genome that `encode_genome` made these runs of."""
    pairs = np.array(runs, np.int64).reshape(-1, 2)
    return np.repeat(pairs[:, 0], pairs[:, 1])
