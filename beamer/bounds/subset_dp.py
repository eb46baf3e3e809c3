"""The subset bound: a dynamic programme over the set of items that are complete.

The recursion is that of Held, Karp 1962 (J. SIAM 10) for sequencing; the earliest end of a set on many links is ours.
"""

import numpy as np

from beamer.bounds.instance import Instance, at_most, distinct_links
from beamer.network.arrays import Floats
from beamer.network.kernels.jit import kernel

MAX_ITEMS = 18


def subset_dp(instance: Instance) -> float:
    """Return the subset bound on the sum of weight x (completion - release), seconds.

    In the order of completion, the last item of a set A ends at M(A) at the earliest, so the objective is at least
    `f(A) = min over s in A of f(A - {s}) + weight_s M(A)`. M(A) is the largest over all subsets B of A of
    `max over links of (least ready + sum of loads + least after, over the users in B)` and of the items' floors: no item uses
    the link before the first is ready; it then carries all loads; and the item that uses it last still has its own tail.
    Release dates are part of `ready`, so items need not be released together. O(2^n (n + P)) time, O(2^n + 2^(n/2) P) memory.

    Raises `InputError` for more than 18 items.
    """
    at_most(instance, MAX_ITEMS, "the subset bound")
    return instance.above_release(float(remaining(instance.weight, ends(instance))[0]))


def ends(instance: Instance) -> Floats:
    """Return M(A), the earliest end of the last of the items in A, for every set A as a bit mask, seconds."""
    load, ready, after = instance.dense()
    links = distinct_links(load, ready, after)
    low = instance.items // 2
    halves = [
        _half(load[part][:, links], ready[part][:, links], after[part][:, links]) for part in (slice(0, low), slice(low, None))
    ]
    return _ends(instance.floor_s, *halves[0], *halves[1])


def _half(load: Floats, ready: Floats, after: Floats) -> tuple[Floats, Floats, Floats]:
    """Return sums of `load` and least `ready` and `after` for every subset of the rows, [2^rows x links]."""
    sums, earliest, least = np.zeros((1, load.shape[1])), *(np.full((1, load.shape[1]), np.inf) for _ in range(2))
    for row in range(len(load)):
        sums = np.concatenate([sums, sums + load[row]])
        earliest = np.concatenate([earliest, np.minimum(earliest, ready[row])])
        least = np.concatenate([least, np.minimum(least, after[row])])
    return sums, earliest, least


@kernel
def remaining(weight: Floats, last: Floats) -> Floats:
    """Return, for every set A of complete items as a bit mask, the least weighted sum of the ends of all others.

    last: M of every set.
    """
    n = len(weight)
    least = np.full(1 << n, np.inf)
    least[-1] = 0.0
    for members in range((1 << n) - 2, -1, -1):
        for s in range(n):
            more = members | 1 << s
            if more != members:
                least[members] = min(least[members], weight[s] * last[more] + least[more])
    return least


@kernel
def _ends(
    floor: Floats,
    low_load: Floats,
    low_ready: Floats,
    low_after: Floats,
    high_load: Floats,
    high_ready: Floats,
    high_after: Floats,
) -> Floats:
    n = len(floor)
    lows = len(low_load)
    last = np.zeros(1 << n)
    for members in range(1, 1 << n):
        a, b = members % lows, members // lows
        end = 0.0
        for p in range(low_load.shape[1]):
            seconds = low_load[a, p] + high_load[b, p]
            if seconds > 0.0:
                seconds += min(low_ready[a, p], high_ready[b, p]) + min(low_after[a, p], high_after[b, p])
                end = max(end, seconds)
        for s in range(n):
            if members >> s & 1:
                end = max(end, max(floor[s], last[members ^ (1 << s)]))
        last[members] = end
    return last
