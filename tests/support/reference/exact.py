"""Optima of tiny cases: bags of coflows exactly, anything that can be simulated by trying every static order."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import scipy  # type: ignore[import-untyped]  # SciPy loads scipy.optimize at its first use, as that takes a while.
from scipy.sparse import coo_array  # type: ignore[import-untyped]

from beamer.errors import InputError
from beamer.network.arrays import Floats

MAX_ITEMS = 6  # All n! orders are tried.


@dataclass(frozen=True)
class Optimum:
    """The least sum of weight x completion, and the order of items that has it, first complete first."""

    total_s: float
    order: tuple[int, ...]


def exact(weight: Floats, demand: Floats) -> Optimum:
    """Return the least sum of weight x completion of coflows on a big switch, all released at 0, seconds.

    weight [n]: above 0. demand [n x ports x ports]: seconds that the flow from port to port takes alone. Flows are divisible
    and wait for nothing. For a given order of completion the optimum is a linear programme over the intervals between
    completions: what a port carries in an interval fits into it, and any amounts that fit can be sent at constant rates.
    Orders are tried by their prefix-load bound, until that exceeds the best value found.

    Raises `InputError` for more than 6 items, a shape that does not fit, a value that is negative or not finite.
    """
    weight, demand = np.asarray(weight, np.float64), np.asarray(demand, np.float64)
    n = _checked(len(weight))
    if demand.ndim != 3 or len(demand) != n or demand.shape[1] != demand.shape[2]:
        raise InputError("demand", demand.shape, f"{n} items x ports x ports")
    if not np.all(np.isfinite(weight) & (weight > 0)):
        raise InputError("weight", weight.tolist(), "finite weights above 0")
    if not np.all(np.isfinite(demand) & (demand >= 0)):
        raise InputError("demand", float(demand.min(initial=0)), "finite numbers from 0 on")
    load = np.concatenate([demand.sum(axis=2), demand.sum(axis=1)], axis=1)

    def prefix_bound(order: tuple[int, ...]) -> float:
        return float(weight[list(order)] @ np.cumsum(load[list(order)], axis=0).max(axis=1, initial=0.0))

    best = Optimum(np.inf, tuple(range(n)))
    for bound, order in sorted((prefix_bound(order), order) for order in permutations(range(n))):
        if bound >= best.total_s * (1 - 1e-12):
            break
        total = _ordered(weight[list(order)], demand[list(order)])
        if total < best.total_s:
            best = Optimum(total, order)
    return best


def best_static(items: int, evaluate: Callable[[tuple[int, ...]], float]) -> Optimum:
    """Return the best of all static orders by `evaluate`, the value of a simulated schedule: an upper bound on the optimum.

    A dynamic order may beat it. Raises `InputError` for more than 6 items.
    """
    _checked(items)
    total, order = min((evaluate(order), order) for order in permutations(range(items)))
    return Optimum(total, order)


def _ordered(weight: Floats, demand: Floats) -> float:
    """Return the least weighted sum where item k completes in interval k at the latest; variables are ends and amounts."""
    n, ports = demand.shape[:2]
    item, src, dst = np.nonzero(demand)
    if not len(item):
        return 0.0
    # Each flow has one amount per interval, up to the interval of its own item.
    flow = np.repeat(np.arange(len(item)), item + 1)
    interval = np.concatenate([np.arange(k + 1) for k in item])
    amount = n + np.arange(len(flow))
    carried = [interval * 2 * ports + src[flow], interval * 2 * ports + ports + dst[flow]]
    end = np.repeat(np.arange(n), 2 * ports)
    rows = np.arange(n * 2 * ports)
    later = end > 0
    fits = coo_array(
        (
            np.concatenate([np.ones(2 * len(flow)), -np.ones(len(rows)), np.ones(later.sum())]),
            (np.concatenate([*carried, rows, rows[later]]), np.concatenate([amount, amount, end, end[later] - 1])),
        ),
        shape=(len(rows), n + len(flow)),
    ).tocsr()
    moved = coo_array((np.ones(len(flow)), (flow, amount)), shape=(len(item), n + len(flow))).tocsr()
    result = scipy.optimize.linprog(
        np.concatenate([weight, np.zeros(len(flow))]),
        A_ub=fits,
        b_ub=np.zeros(len(rows)),
        A_eq=moved,
        b_eq=demand[item, src, dst],
        method="highs",
    )
    return float(result.fun)


def _checked(items: int) -> int:
    if not 1 <= items <= MAX_ITEMS:
        raise InputError("items", items, f"1 to {MAX_ITEMS}, of which all orders can be tried")
    return items
