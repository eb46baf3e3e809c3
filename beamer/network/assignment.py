"""From an order of tiers to a class on K queues for every job, pure."""

import math
from collections.abc import Mapping, Sequence

from beamer.network.policy import Order, Tier

SEPARATION = 4  # Telling two jobs of the most urgent tier apart is worth so many moved jobs.


def assign_classes(order: Order, queues: int, current: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the class of every job of `order`, 0 served first.

    A class per tier in order; tiers that find none left share the lowest. Classes that tiers leave over separate the jobs of
    divisible tiers, slowest first, the most urgent tier's before the next one's. Sincronia's implementation gives the first
    ranks a queue each and all others the lowest [Agarwal et al. 2018, "Sincronia: near-optimal network design for coflows"];
    dividing tiers, and what follows, is ours. current: the classes that jobs have; of all assignments that keep the order, one
    that moves few of them, as every move touches rules, marks and packets under way.
    """
    tiers = [tier for tier in order if tier.jobs]
    fresh = _fresh_classes(tiers, queues)
    if not current or len(tiers) > queues:
        return fresh
    return _least_moves(tiers, queues, current, fresh)


def _least_moves(tiers: Sequence[Tier], queues: int, current: Mapping[str, int], fresh: Mapping[str, int]) -> dict[str, int]:
    """Return the assignment that moves fewest jobs, leaves fewest of the most urgent tier together, nearest to `fresh`.

    A dynamic programme over groups of jobs that share a class, in order: classes never fall, and rise between tiers. O(n K^2).
    """
    groups: list[tuple[int, tuple[str, ...]]] = []
    for number, tier in enumerate(tiers):
        groups += [(number, (key,)) for key in tier.jobs] if tier.divisible else [(number, tier.jobs)]
    move = 1 + queues * len(groups)
    costs = [0.0] * queues  # costs of the groups so far, by the class of the last one
    reached_from: list[list[int]] = []
    for position, (number, keys) in enumerate(groups):
        same_tier = position > 0 and groups[position - 1][0] == number
        row, parents = [], []
        for klass in range(queues):
            own = sum(move * (current.get(key, klass) != klass) + abs(klass - fresh[key]) for key in keys)
            together = SEPARATION * move if number == 0 else 0
            options = [(costs[last], last) for last in range(klass)] if position else [(0.0, 0)]
            if same_tier:
                options.append((costs[klass] + together, klass))
            cost, parent = min(options, default=(math.inf, 0))
            row.append(cost + own)
            parents.append(parent)
        costs = row
        reached_from.append(parents)
    klass = min(range(queues), key=costs.__getitem__)
    chosen: dict[str, int] = {}
    for (_, keys), parents in zip(reversed(groups), reversed(reached_from), strict=True):
        chosen.update(dict.fromkeys(keys, klass))
        klass = parents[klass]
    return chosen


def _fresh_classes(tiers: Sequence[Tier], queues: int) -> dict[str, int]:
    spare = max(queues - len(tiers), 0)
    klass: dict[str, int] = {}
    first = 0
    for tier in tiers:
        extra = min(spare, len(tier.jobs) - 1) if tier.divisible else 0
        klass.update(zip(tier.jobs[:extra], range(first, first + extra), strict=True))
        klass.update(dict.fromkeys(tier.jobs[extra:], min(first + extra, queues - 1)))
        first += 1 + extra
        spare -= extra
    return klass
