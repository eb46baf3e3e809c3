"""The arithmetic of CoflowSim's allocations: MiB and steps; flows of coflow `k` are `first[k]` to before `first[k + 1]`.

Ports are numbered twice: uplinks from 0, downlinks from the number of ports on. `free` is by port, `left` and `rates` by flow.
"""

import numpy as np

from beamer.network.arrays import Bools, Floats, Ints
from beamer.network.kernels.jit import kernel

NO_RATE = 0.008 / 8 / 2**20  # MiB per step: 1 bit/s
NO_SIZE = 1e-3 / 2**20  # MiB: a thousandth of a byte


@kernel
def madd(listed: Ints, first: Ints, up: Ints, down: Ints, left: Floats, free: Floats, rates: Floats) -> Bools:
    """Give coflows, in order, rates with which their flows end together; return which were skipped."""
    skipped = np.zeros(listed.size, np.bool_)
    load = np.zeros(free.size)
    for i in range(listed.size):
        flows = range(first[listed[i]], first[listed[i] + 1])
        load[:] = 0.0
        for f in flows:
            load[up[f]] += left[f]
            load[down[f]] += left[f]
        steps = 0.0
        for p in range(free.size):
            if load[p] > 0.0:
                steps = max(steps, load[p] / free[p] if free[p] > NO_RATE else np.inf)
        skipped[i] = steps == np.inf
        if not skipped[i]:
            for f in flows:
                rates[f] = left[f] / steps
            for p in range(free.size):
                free[p] = max(free[p] - load[p] / steps, 0.0)
    return skipped


@kernel
def share(listed: Ints, first: Ints, up: Ints, down: Ints, left: Floats, free: Floats, rates: Floats) -> None:
    """Give every flow of these coflows the smaller of free / flows at its two ports, counting flows between free ports."""
    flows = np.zeros(free.size)
    for k in listed:
        for f in range(first[k], first[k + 1]):
            if left[f] > 0.0 and free[up[f]] > NO_RATE and free[down[f]] > NO_RATE:
                flows[up[f]] += 1.0
                flows[down[f]] += 1.0
    used = np.zeros(free.size)
    for k in listed:
        for f in range(first[k], first[k + 1]):
            if left[f] > 0.0 and free[up[f]] > NO_RATE and free[down[f]] > NO_RATE:
                rate = min(free[up[f]] / flows[up[f]], free[down[f]] / flows[down[f]])
                if rate > NO_RATE:
                    rates[f] = rate
                    used[up[f]] += rate
                    used[down[f]] += rate
    for p in range(free.size):
        free[p] = max(free[p] - used[p], 0.0)


@kernel
def backfill(listed: Ints, first: Ints, up: Ints, down: Ints, left: Floats, free: Floats, rates: Floats) -> None:
    """Give coflows, in order and flow by flow, all that is left."""
    for k in listed:
        for f in range(first[k], first[k + 1]):
            rate = min(free[up[f]], free[down[f]])
            if left[f] > 0.0 and rate > NO_RATE:
                rates[f] += rate
                free[up[f]] -= rate
                free[down[f]] -= rate


@kernel
def steps_to_end(listed: Ints, first: Ints, left: Floats, rates: Floats) -> float:
    """Return after how many whole steps the first of these coflows has ended."""
    soonest = np.inf
    for k in listed:
        latest = 0.0
        for f in range(first[k], first[k + 1]):
            if left[f] > 0.0:
                latest = max(latest, (left[f] - NO_SIZE) / rates[f] if rates[f] > 0.0 else np.inf)
        soonest = min(soonest, latest)
    return float(max(np.ceil(soonest), 1.0))


@kernel
def advance(listed: Ints, first: Ints, left: Floats, rates: Floats, steps: float) -> None:
    """Let flows send for so many steps."""
    for k in listed:
        for f in range(first[k], first[k + 1]):
            left[f] -= rates[f] * steps
            if left[f] <= NO_SIZE:
                left[f] = 0.0
