"""Max-min fair rates."""

import math
from collections.abc import Sequence

from tests.support.reference.demand import FlowDemand


def maxmin(demands: Sequence[FlowDemand], capacity: Sequence[float]) -> list[float]:
    """Return max-min fair rates by water-filling, bit/s: no rate can grow without a smaller or equal one shrinking.

    capacity: bit/s by link. Classes are ignored. Bertsekas, Gallager 1992, section 6.5.2.
    """
    rates = [math.inf] * len(demands)
    active = {i for i, demand in enumerate(demands) if demand.usage}
    left: dict[int, float] = {}
    weight: dict[int, float] = {}
    users: dict[int, set[int]] = {}
    for i in sorted(active):
        for link, use in demands[i].usage.items():
            left[link] = max(capacity[link], 0.0)
            weight[link] = weight.get(link, 0.0) + use
            users.setdefault(link, set()).add(i)
    while active:
        tightest = min(users, key=lambda link: left[link] / weight[link])
        level = left[tightest] / weight[tightest]
        for i in sorted(users[tightest]):
            rates[i] = level
            active.remove(i)
            for link, use in demands[i].usage.items():
                left[link] = max(left[link] - level * use, 0.0)
                weight[link] -= use
                users[link].remove(i)
                if not users[link]:
                    del users[link]
    return rates
