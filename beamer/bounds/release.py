"""Bounds for release dates: the best preemptive schedule of a single link, for disjoint sets of items on several links.

What a schedule does to the items of a set U on one link is a fractional single-machine schedule, and every item outside U
completes no earlier than its floor. So the optimum of U on that machine plus the floors of the others is a bound, for any U;
so is the sum over links of disjoint sets, each item counted once. Which sets are best is searched, not solved: every choice
is valid.
"""

import numpy as np

from beamer.bounds.instance import Instance
from beamer.errors import InputError
from beamer.network.arrays import Bools, Floats
from beamer.network.kernels.jit import kernel

ROUNDS = 16  # At most so many links hold a set, as few links are bottlenecks.


def release_srpt(instance: Instance) -> float:
    """Return the shortest-remaining-time bound on the sum of weight x (completion - release), seconds.

    On one machine that is usable by an item from its release plus its head, preemptive shortest remaining processing time
    gives the least total completion time (Schrage 1968, Operations Research 16); every item then still has its tail.

    Raises `InputError` unless all weights are equal.
    """
    if instance.items and np.ptp(instance.weight) > 0:
        raise InputError("instance.weight", float(np.ptp(instance.weight)), "equal weights, for shortest remaining time")
    return _search(instance, True)


def release_busy(instance: Instance) -> float:
    """Return the mean-busy-time bound on the sum of weight x (completion - release), seconds.

    An item that a link serves at no more than its capacity completes at least half its load after its mean busy time; serving
    the largest weight / load first, preemptively, gives the least weighted sum of those (Goemans 1997, SODA). Weights may
    differ.
    """
    return _search(instance, False)


def _search(instance: Instance, shortest: bool) -> float:
    columns = instance.load.tocsc()
    value = instance.floors_s()
    free = np.ones(instance.items, np.bool_)
    links = {p for p in range(columns.shape[1]) if columns.indptr[p + 1] > columns.indptr[p]}
    row, link = instance.row, instance.load.indices
    order = np.lexsort((row, link))  # The entries come link by link, as in the columns.
    ready, after = instance.ready_s[order], instance.after_s[order]
    for _ in range(ROUNDS):
        promise, best = 0.0, -1
        for p in links:
            part = slice(columns.indptr[p], columns.indptr[p + 1])
            at = columns.indices[part]
            late = _lateness(
                ready[part], columns.data[part], after[part], instance.weight[at], instance.floor_s[at], free[at], shortest
            )
            gain = float(np.maximum(late, 0.0).sum())
            if gain > promise:
                promise, best = gain, p
        if best < 0:
            break
        links.remove(best)
        part = slice(columns.indptr[best], columns.indptr[best + 1])
        at = columns.indices[part]
        chosen, gain = _choose(
            ready[part], columns.data[part], after[part], instance.weight[at], instance.floor_s[at], free[at], shortest
        )
        if gain > 0:
            value += gain
            free[at[chosen]] = False
    return value


def _choose(
    ready: Floats, load: Floats, after: Floats, weight: Floats, floor: Floats, free: Bools, shortest: bool
) -> tuple[Bools, float]:
    """Return the set of items to take on one link and what it adds to their floors; drop items while that adds more."""
    chosen = free.copy()
    late = _lateness(ready, load, after, weight, floor, chosen, shortest)
    gain = float(late.sum())
    for i in np.argsort(late, kind="stable"):
        if not chosen[i]:
            continue
        fewer = chosen.copy()
        fewer[i] = False
        without = float(_lateness(ready, load, after, weight, floor, fewer, shortest).sum())
        if without > gain:
            chosen, gain = fewer, without
    return chosen, gain


@kernel
def _lateness(
    ready: Floats, load: Floats, after: Floats, weight: Floats, floor: Floats, chosen: Bools, shortest: bool
) -> Floats:
    """Return weight x (completion bound on the machine - floor) per item, 0 for those not chosen.

    shortest: serve the least remaining time and take the completion times; otherwise the largest weight / load and take mean
    busy times plus half the load. Sums over the chosen items are the bound, single values are not.
    """
    n = len(load)
    left = load.copy()
    moment = np.zeros(n)
    late = np.zeros(n)
    now = 0.0
    while True:
        serve, upcoming = -1, np.inf
        for i in range(n):
            if not chosen[i] or left[i] <= 0.0:
                continue
            if ready[i] > now:
                upcoming = min(upcoming, ready[i])
                continue
            if serve < 0:
                serve = i
            elif shortest:
                if left[i] < left[serve]:
                    serve = i
            elif weight[i] * load[serve] > weight[serve] * load[i]:
                serve = i
        if serve < 0:
            if upcoming == np.inf:
                break
            now = upcoming
            continue
        until = min(now + left[serve], upcoming)
        moment[serve] += (until - now) * (until + now) / 2.0
        left[serve] = left[serve] - (until - now) if until < now + left[serve] else 0.0
        now = until
        if left[serve] == 0.0:
            end = now if shortest else moment[serve] / load[serve] + load[serve] / 2.0
            late[serve] = weight[serve] * (end + after[serve] - floor[serve])
    return late
