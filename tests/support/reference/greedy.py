"""Greedy order-preserving rates, computed from scratch."""

import math
from collections.abc import Sequence

from tests.support.reference.demand import FlowDemand

SPENT = 1e-12  # share of a link's capacity below which it counts as taken


def greedy(demands: Sequence[FlowDemand], capacity: Sequence[float]) -> list[float]:
    """Return the rates of flows that take, one after another, what those before them leave of their paths, bit/s.

    Flows come by class, then in the order given. Agarwal et al. 2018 (SIGCOMM).
    """
    rates = [math.inf] * len(demands)
    left = list(capacity)
    for i in sorted(range(len(demands)), key=lambda i: demands[i].klass):
        usage = demands[i].usage
        if any(left[link] <= SPENT * capacity[link] for link in usage):
            rates[i] = 0.0
        elif usage:
            rates[i] = min(left[link] / use for link, use in usage.items())
            for link, use in usage.items():
                left[link] -= rates[i] * use
    return rates
