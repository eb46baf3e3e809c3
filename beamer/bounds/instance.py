"""The input of bounds: the items' weights, their loads on the links and their critical paths."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array  # type: ignore[import-untyped]

from beamer.errors import InputError
from beamer.network.arrays import Floats, Ints

Matrix = Any  # a dense array or a scipy.sparse.csr_array, which has no types


@dataclass(frozen=True, eq=False)
class Instance:
    """n items on P links; the objective is the sum of weight x (completion - release).

    weight [n]: above 0. load [n x P]: seconds that the item needs of the link alone. critical_s [n]: the least time from the
    item's release to its completion with the fabric to itself (T_s), compute and barriers included. release_s [n]: seconds.
    head_s [n x P]: the least time from the item's release to its first use of the link. tail_s [n x P]: the least time from
    its last use of the link to its completion. Both are 0 where not given and mean nothing where the load is 0. Matrices may
    be dense or `scipy.sparse.csr_array`, and are stored as the latter.

    Raises `InputError` for a shape that does not fit and for a value that is negative or not finite.
    """

    weight: Floats
    load: Matrix
    critical_s: Floats
    release_s: Floats
    head_s: Matrix = None
    tail_s: Matrix = None

    def __post_init__(self) -> None:
        weight = _vector("weight", self.weight, None)
        if not np.all(weight > 0):
            raise InputError("instance.weight", float(weight.min()), "weights above 0")
        load = _matrix("load", self.load, None)
        if load.shape[0] != len(weight):
            raise InputError("instance.load", load.shape, f"{len(weight)} rows, one per item")
        checked: dict[str, object] = {"weight": weight, "load": load}
        for name in ("critical_s", "release_s"):
            checked[name] = _vector(name, getattr(self, name), len(weight))
        for name in ("head_s", "tail_s"):
            given = getattr(self, name)
            checked[name] = csr_array(load.shape) if given is None else _matrix(name, given, load.shape)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def items(self) -> int:
        """How many items there are."""
        return len(self.weight)

    @cached_property
    def row(self) -> Ints:
        """The item of each entry of `load.data`."""
        return np.repeat(np.arange(self.items), np.diff(self.load.indptr))

    @cached_property
    def ready_s(self) -> Floats:
        """Per entry of `load.data`, the earliest time at which its item can use its link, seconds."""
        return self.release_s[self.row] + self._along(self.head_s)

    @cached_property
    def after_s(self) -> Floats:
        """Per entry of `load.data`, the least time from the last use of its link to its item's completion, seconds."""
        return self._along(self.tail_s)

    @cached_property
    def floor_s(self) -> Floats:
        """The earliest completion [n] of each item, all others away: its critical path or its slowest link, seconds."""
        floor = self.release_s + self.critical_s
        np.maximum.at(floor, self.row, self.ready_s + self.load.data + self.after_s)
        return floor

    @cached_property
    def plain(self) -> bool:
        """Whether every item can use every link from time 0 to its completion: no release dates, heads and tails."""
        return not (self.ready_s.any() or self.after_s.any() or self.release_s.any())

    def dense(self) -> tuple[Floats, Floats, Floats]:
        """Return load, ready and after as [n x P]; where the load is 0, ready is infinite and after too."""
        load = np.zeros(self.load.shape)
        ready, after = np.full(self.load.shape, np.inf), np.full(self.load.shape, np.inf)
        at = (self.row, self.load.indices)
        load[at], ready[at], after[at] = self.load.data, self.ready_s, self.after_s
        return load, ready, after

    def above_release(self, weighted_s: float) -> float:
        """Turn a sum of weight x completion into the objective, never below what the items' own floors give."""
        return max(weighted_s - float(self.weight @ self.release_s), self.floors_s())

    def floors_s(self) -> float:
        """Return the objective if no item delayed another: the weakest bound of all, seconds."""
        return float(self.weight @ (self.floor_s - self.release_s))

    def _along(self, matrix: Matrix) -> Floats:
        if matrix.nnz == 0:
            return np.zeros(len(self.load.data))
        return np.asarray(matrix[self.row, self.load.indices], np.float64).ravel()


def at_most(instance: Instance, limit: int, bound: str) -> None:
    """Raise `InputError` if `instance` has more items than `bound` can take."""
    if instance.items > limit:
        raise InputError("instance.weight", instance.items, f"at most {limit} items, for {bound}")


def distinct_links(load: Floats, ready: Floats, after: Floats) -> Ints:
    """Return the links [K] that matter, busiest first: no other one is at least as tight for every set of items.

    Arrays are those of `Instance.dense`. A link is dropped for one with no smaller load, ready and after time, the same users
    being needed where times are not all 0: a least time over more users may be smaller.
    """
    used = np.isfinite(ready)
    plain = not (np.where(used, ready, 0).any() or np.where(used, after, 0).any())
    _, first = np.unique(np.concatenate([load, ready, after]), axis=1, return_index=True)
    chosen: list[int] = []
    for p in sorted(first.tolist(), key=lambda p: (-load[:, p].sum(), p)):
        if not used[:, p].any():
            continue
        tighter = np.all(load[:, chosen] >= load[:, [p]], axis=0)
        if not plain:
            tighter &= np.all(used[:, chosen] == used[:, [p]], axis=0)
            tighter &= np.all(ready[:, chosen] >= ready[:, [p]], axis=0) & np.all(after[:, chosen] >= after[:, [p]], axis=0)
        if not tighter.any():
            chosen.append(p)
    return np.array(chosen, np.int64)


def _vector(name: str, value: Floats, length: int | None) -> Floats:
    vector = np.asarray(value, np.float64)
    if vector.ndim != 1 or (length is not None and len(vector) != length):
        raise InputError(f"instance.{name}", vector.shape, "one number per item")
    _finite(name, vector)
    return vector


def _matrix(name: str, value: Matrix, shape: tuple[int, int] | None) -> Matrix:
    if getattr(value, "ndim", 0) != 2:
        raise InputError(f"instance.{name}", getattr(value, "shape", value), "an array of items x links")
    matrix = csr_array(value, dtype=np.float64)
    if shape is not None and matrix.shape != shape:
        raise InputError(f"instance.{name}", matrix.shape, f"the shape of load, {shape}")
    _finite(name, matrix.data)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def _finite(name: str, values: Floats) -> None:
    wrong = values[~(np.isfinite(values) & (values >= 0))]
    if len(wrong):
        raise InputError(f"instance.{name}", float(wrong[0]), "finite numbers from 0 on")
