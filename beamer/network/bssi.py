"""Bottleneck-select-scale-iterate (BSSI): an order of items that share links, and the lower bound that comes with it.

It is the algorithm that orders coflows in Sincronia (Agarwal et al. 2018, SIGCOMM). To take stages or studies as items, each
with a private virtual link for its critical path, is our extension, and so is the local search. This module gives the compiled
loops of `beamer.network.kernels.bssi` types and units.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from beamer.network.arrays import Floats, Ints
from beamer.network.kernels import bssi

# An order of few items has so many passes over its neighbours; with many items, one pass is enough to wait for.
SWAP_PASSES = 3
MAX_MOVED_ITEMS = 16  # Every move of one item is tried up to so many items: n^2 moves, each evaluated anew.


@dataclass(frozen=True, eq=False)
class Items:
    """The items to be ordered, by row.

    weight: share in the objective. first, link, seconds: item i needs link[first[i]:first[i+1]] alone for that long.
    critical_s: the least time that it takes with the whole fabric to itself (T_s). links: how many there are.
    """

    weight: Floats
    first: Ints
    link: Ints
    seconds: Floats
    critical_s: Floats
    links: int

    @classmethod
    def of(cls, weight: Sequence[float], load: Sequence[Sequence[float]], critical_s: Sequence[float]) -> "Items":
        """Make items of a dense table, a row of seconds by link for each."""
        rows = np.array(load, np.float64).reshape(len(weight), -1 if weight else 0)
        first = np.concatenate(([0], np.cumsum((rows > 0).sum(axis=1)))).astype(np.int64)
        return cls(
            np.array(weight, np.float64),
            first,
            np.nonzero(rows)[1].astype(np.int64),
            rows[rows > 0],
            np.array(critical_s, np.float64),
            rows.shape[1],
        )


def sequence(items: Items) -> tuple[Ints, float]:
    """Return positions in the order of least weighted completion, first served first, and its dual value in seconds.

    The dual is a lower bound on the sum of weight x completion time of *any* schedule in which all items are released at 0.
    Equal items stay in the order given; items without load come first. O(n (n + |P|)), sparse.
    """
    return bssi.sequence(items.weight, items.first, items.link, items.seconds, items.critical_s, items.links)


def improved(items: Items, order: Ints) -> Ints:
    """Return an order of no greater `weighted_completion`, by exchanges of neighbours and, of few items, by moving one.

    BSSI considers one link at a time and may order a short item last for its load on a link where it matters little.
    """
    better = order.copy()
    rows = (items.weight, items.first, items.link, items.seconds, items.critical_s, items.links)
    bssi.swap_neighbours(*rows, better, SWAP_PASSES if len(order) <= MAX_MOVED_ITEMS else 1)
    if len(order) <= MAX_MOVED_ITEMS:
        while bssi.move_one(*rows, better):
            pass
    return better


def weighted_completion(items: Items, order: Ints) -> float:
    """Estimate the sum of weight x completion time when every link serves the items one after another in `order`, seconds.

    An item is complete when its slowest link has served it and everything before it, and not before its critical path.
    """
    return bssi.weighted_completion(items.weight, items.first, items.link, items.seconds, items.critical_s, items.links, order)
