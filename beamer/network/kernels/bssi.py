"""Bottleneck-select-scale-iterate (BSSI) over sparse loads, and local search on its orders.

Items are rows: item i loads link[first[i]:first[i+1]] for `seconds` each, E entries in all; there are n items and P links,
numbered below `links`. critical[i], the least time that the item takes, counts as its load on a private link, `links` + i.

`sequence` is the primal-dual algorithm of Agarwal et al. 2018 (SIGCOMM). It orders from the last item to the first. Phases:

1. Transpose the rows into a list of users per link; sum up each link's load.
2. Bottleneck: the link of largest total load among the items not ordered yet.
3. Select: of its users, the one of least weight per load there comes last.
4. Scale: reduce the weights of the other users in proportion to their loads, by so much that the selected one would be at 0.
   The factor is the dual variable of this link and set of items.
5. Iterate: subtract the selected item's loads from the totals and return to 2 until no load is left.

Invariants: totals only decrease; weights stay non-negative, up to rounding that is cut off at 0; the dual variables are
feasible, so that their value is a lower bound for items released together. Bottlenecks are found through maxima of blocks of
`BLOCK` totals that are recomputed when they are needed: O(n^2 + (n + E) (BLOCK + (n + P) / BLOCK)) time, O(n + P + E) memory.

`swap_neighbours` takes O(E) per pass, `move_one` O(n^2 E). Both accept a change only if it lowers the weighted completion by a
relative 1e-9, so that they end.
"""

import numpy as np

from beamer.network.arrays import Floats, Ints
from beamer.network.kernels.jit import kernel

BLOCK = 64  # A block maximum covers so many totals.
MIN_IMPROVEMENT = 1e-9  # The least relative improvement is above what rounding makes of equal orders.


@kernel
def pool(group: Ints, groups: int, first: Ints, link: Ints, seconds: Floats, links: int) -> tuple[Ints, Ints, Floats]:
    """Add up rows by group, which are ascending, in O(E + P); return the groups' rows as (first, link, seconds)."""
    pooled_first = np.zeros(groups + 1, np.int64)
    pooled_link = np.empty(len(link), np.int64)
    pooled = np.empty(len(link))
    # Each link has its latest entry here; an entry before `start` belongs to an earlier group.
    entry_of = np.full(links, -1, np.int64)
    entries = 0
    row = 0
    for g in range(groups):
        start = entries
        while row < len(group) and group[row] == g:
            for e in range(first[row], first[row + 1]):
                p = link[e]
                if entry_of[p] < start:
                    entry_of[p] = entries
                    pooled_link[entries] = p
                    pooled[entries] = seconds[e]
                    entries += 1
                else:
                    pooled[entry_of[p]] += seconds[e]
            row += 1
        pooled_first[g + 1] = entries
    return pooled_first, pooled_link[:entries], pooled[:entries]


@kernel
def sequence(weights: Floats, first: Ints, link: Ints, seconds: Floats, critical: Floats, links: int) -> tuple[Ints, float]:
    """Return the order, first served first, and its dual value; ties keep the order given, items without load come first."""
    count = len(weights)
    # 1. Transpose: users of link p are item[start[p]:start[p+1]]. Private links have one user and need no list.
    total = np.zeros(links + count)
    users = np.zeros(links + count, np.int64)
    for e in range(len(link)):
        if seconds[e] > 0.0:
            total[link[e]] += seconds[e]
            users[link[e]] += 1
    for i in range(count):
        if critical[i] > 0.0:
            total[links + i] = critical[i]
            users[links + i] = 1
    start = np.zeros(links + 1, np.int64)
    for p in range(links):
        start[p + 1] = start[p] + users[p]
    end = start[:-1].copy()
    item = np.empty(start[links], np.int64)
    load = np.empty(start[links])
    for i in range(count):
        for e in range(first[i], first[i + 1]):
            if seconds[e] > 0.0:
                item[end[link[e]]] = i
                load[end[link[e]]] = seconds[e]
                end[link[e]] += 1
    blocks = (links + count + BLOCK - 1) // BLOCK
    # A bound is at least the largest total of its block: totals only decrease, so old maxima are bounds.
    block_max = np.zeros(blocks)
    for p in range(links + count):
        block_max[p // BLOCK] = max(block_max[p // BLOCK], total[p])
    weight = weights.copy()
    ordered = np.zeros(count, np.bool_)
    order = np.empty(count, np.int64)
    free = count
    dual = 0.0
    while blocks > 0:
        # 2. Bottleneck: the first block of largest bound, recomputed if the bound is out of date.
        block = np.argmax(block_max)
        p = int(block * BLOCK)
        for q in range(p + 1, min(p + BLOCK, links + count)):
            if total[q] > total[p]:
                p = q
        if total[p] < block_max[block]:
            block_max[block] = total[p]
            continue
        if total[p] <= 0.0:
            break
        # 3. Select, and 4. scale; a private link has one user, and nothing to scale.
        if p >= links:
            last = p - links
            scale = weight[last] / critical[last]
            dual += scale * critical[last] * critical[last]
        else:
            last = -1
            scale = 0.0
            total_load = 0.0
            squares = 0.0
            for at in range(start[p], start[p + 1]):
                i = item[at]
                if ordered[i]:
                    continue
                total_load += load[at]
                squares += load[at] * load[at]
                ratio = weight[i] / load[at]
                if last < 0 or ratio < scale or (ratio == scale and i > last):
                    last = i
                    scale = ratio
            for at in range(start[p], start[p + 1]):
                if item[at] != last:
                    weight[item[at]] = max(weight[item[at]] - scale * load[at], 0.0)
            dual += scale * (total_load * total_load + squares) / 2.0
        # 5. Iterate without the selected item.
        for e in range(first[last], first[last + 1]):
            q = link[e]
            if seconds[e] <= 0.0:
                continue
            total[q] -= seconds[e]
            users[q] -= 1
            if users[q] == 0:
                total[q] = 0.0  # The total is set exactly, as rounding may have left a rest.
        total[links + last] = 0.0
        ordered[last] = True
        free -= 1
        order[free] = last
    # Items without load come first, in the order given.
    for i in range(count - 1, -1, -1):
        if not ordered[i]:
            free -= 1
            order[free] = i
    return order, dual


@kernel
def weighted_completion(
    weights: Floats, first: Ints, link: Ints, seconds: Floats, critical: Floats, links: int, order: Ints
) -> float:
    """Return the sum of weight x completion time where every link serves the items one after another in `order`, seconds."""
    served = np.zeros(links)
    objective = 0.0
    for i in order:
        end = critical[i]
        for e in range(first[i], first[i + 1]):
            served[link[e]] += seconds[e]
            end = max(end, served[link[e]])
        objective += weights[i] * end
    return objective


@kernel
def _end(first: Ints, link: Ints, seconds: Floats, critical: Floats, served: Floats, neighbour: Floats, i: int) -> float:
    """Return when item `i` completes after the loads in `served` and those of its `neighbour`."""
    end = float(critical[i])
    for e in range(first[i], first[i + 1]):
        end = max(end, float(served[link[e]] + neighbour[link[e]] + seconds[e]))
    return end


@kernel
def swap_neighbours(
    weights: Floats, first: Ints, link: Ints, seconds: Floats, critical: Floats, links: int, order: Ints, passes: int
) -> None:
    """Exchange neighbours in `order` while that lowers their weighted completion, in at most `passes` passes.

    An exchange changes the completion of these two alone, as all others have the same items before them.
    """
    neighbour = np.zeros(links)  # load of the first of the two
    for _ in range(passes):
        served = np.zeros(links)
        swapped = False
        for k in range(len(order) - 1):
            value = np.zeros(2)
            for swap in range(2):  # The pair is tried as it is, then exchanged.
                one, other = order[k + swap], order[k + 1 - swap]
                value[swap] += weights[one] * _end(first, link, seconds, critical, served, neighbour, one)
                for e in range(first[one], first[one + 1]):
                    neighbour[link[e]] = seconds[e]
                value[swap] += weights[other] * _end(first, link, seconds, critical, served, neighbour, other)
                for e in range(first[one], first[one + 1]):
                    neighbour[link[e]] = 0.0
            if value[1] < value[0] * (1.0 - MIN_IMPROVEMENT):
                order[k], order[k + 1] = order[k + 1], order[k]
                swapped = True
            for e in range(first[order[k]], first[order[k] + 1]):
                served[link[e]] += seconds[e]
        if not swapped:
            return


@kernel
def move_one(weights: Floats, first: Ints, link: Ints, seconds: Floats, critical: Floats, links: int, order: Ints) -> bool:
    """Move one item of `order` to the position that lowers the weighted completion most; return False if none does."""
    best = weighted_completion(weights, first, link, seconds, critical, links, order) * (1.0 - MIN_IMPROVEMENT)
    best_order = order.copy()
    better = False
    for a in range(len(order)):
        for b in range(len(order)):
            if a == b:
                continue
            # The item at `a` goes to `b`; the others keep their order around it.
            candidate = np.empty(len(order), np.int64)
            k = 0
            for c in range(len(order)):
                if c == a:
                    continue
                if k == b:
                    k += 1
                candidate[k] = order[c]
                k += 1
            candidate[b] = order[a]
            value = weighted_completion(weights, first, link, seconds, critical, links, candidate)
            if value < best:
                best = value
                best_order = candidate
                better = True
    order[:] = best_order
    return better
