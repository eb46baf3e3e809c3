"""Strict priority between classes, max-min inside a class."""

from collections.abc import Sequence

from beamer.errors import InputError
from tests.support.reference.demand import FlowDemand
from tests.support.reference.maxmin import maxmin


def classes(
    demands: Sequence[FlowDemand], capacity: Sequence[float], minimum_share: float = 0.0, shared: int | None = None
) -> list[float]:
    """Return the rates of flows in strict-priority classes, bit/s.

    minimum_share: of every link's capacity guaranteed to each class present, whatever is above it; the shares of all classes
    present must fit, or `InputError` is raised. shared: how many links classes divide so; each of those that follow limits what
    one sender sends (None: all are shared). Work-conserving: every flow has a full link on its path.
    """
    divided = len(capacity) if shared is None else shared
    present = sorted({demand.klass for demand in demands})
    if minimum_share < 0 or minimum_share * len(present) > 1:
        raise InputError("minimum_share", minimum_share, f"0 to 1/{len(present)}, as {len(present)} classes are present")
    rates = [0.0] * len(demands)
    left = list(capacity)
    members = {klass: [i for i, demand in enumerate(demands) if demand.klass == klass] for klass in present}

    def fill(klass: int, available: Sequence[float]) -> None:
        these = [demands[i] for i in members[klass]]
        for i, demand, rate in zip(members[klass], these, maxmin(these, available), strict=True):
            rates[i] += rate
            for link, use in demand.usage.items():
                left[link] -= use * rate

    if minimum_share:
        for klass in present:
            fill(klass, [minimum_share * c for c in capacity[:divided]] + list(capacity[divided:]))
    for klass in present:
        fill(klass, left)
    return rates
