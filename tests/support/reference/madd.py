"""Minimum allocation for desired duration, then backfilling."""

import math
from collections.abc import Sequence

from tests.support.reference.demand import FlowDemand

SPENT = 1e-9  # share of a link's capacity below which a coflow that needs it is skipped


def madd(demands: Sequence[FlowDemand], capacity: Sequence[float]) -> list[float]:
    """Return rates at which the flows of each coflow end together, bit/s, and give away the rest.

    Coflows come by class, then by number; flows of one in the order given. One that needs a link which has nothing left is
    skipped; each of these then splits evenly what is left, and what is left after that goes to all flows one by one.
    Chowdhury, Zhong, Stoica 2014 (SIGCOMM); the backfilling is our reconstruction.
    """
    left = list(capacity)
    rates = [0.0 if demand.usage else math.inf for demand in demands]
    by_key: dict[tuple[int, int], list[int]] = {}
    for i, demand in enumerate(demands):
        if demand.usage:
            by_key.setdefault((demand.klass, demand.coflow), []).append(i)
    coflows = [by_key[key] for key in sorted(by_key)]

    def has_capacity(i: int) -> bool:
        return all(left[link] > SPENT * capacity[link] for link in demands[i].usage)

    def give(i: int, rate: float) -> None:
        rates[i] += rate
        for link, use in demands[i].usage.items():
            left[link] -= use * rate

    skipped: list[list[int]] = []
    for flows in coflows:
        load: dict[int, float] = {}
        for i in flows:
            for link, use in demands[i].usage.items():
                load[link] = load.get(link, 0.0) + use * demands[i].bits
        if all(has_capacity(i) for i in flows):
            duration = max(bits / left[link] for link, bits in load.items())
            for i in flows:
                give(i, demands[i].bits / duration)
        else:
            skipped.append(flows)
    for flows in skipped:
        weight: dict[int, float] = {}
        moving = [i for i in flows if has_capacity(i)]
        for i in moving:
            for link, use in demands[i].usage.items():
                weight[link] = weight.get(link, 0.0) + use
        shares = [min(left[link] / weight[link] for link in demands[i].usage) for i in moving]
        for i, rate in zip(moving, shares, strict=True):
            give(i, rate)
    for flows in coflows:
        for i in flows:
            if has_capacity(i):
                give(i, min(left[link] / use for link, use in demands[i].usage.items()))
    return rates
