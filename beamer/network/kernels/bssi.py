"""Bottleneck-select-scale-iterate over sparse loads, and what it needs around it.

Items are rows: item i loads link[first[i]:first[i+1]] for `seconds` each; links are below `links`. critical[i], the time that
the item takes at least, counts as its load on a link of its own.
"""

import numpy as np

from beamer.network.arrays import Floats, Ints
from beamer.network.kernels.jit import kernel

BLOCK = 64


@kernel
def pool(group: Ints, groups: int, first: Ints, link: Ints, seconds: Floats, links: int) -> tuple[Ints, Ints, Floats]:
    """Add up rows by group, which are ascending; return the groups' rows as (first, link, seconds)."""
    pooled_first = np.zeros(groups + 1, np.int64)
    pooled_link = np.empty(len(link), np.int64)
    pooled = np.empty(len(link))
    place = np.full(links, -1, np.int64)
    entries = 0
    row = 0
    for g in range(groups):
        start = entries
        while row < len(group) and group[row] == g:
            for e in range(first[row], first[row + 1]):
                p = link[e]
                if place[p] < start:
                    place[p] = entries
                    pooled_link[entries] = p
                    pooled[entries] = seconds[e]
                    entries += 1
                else:
                    pooled[place[p]] += seconds[e]
            row += 1
        pooled_first[g + 1] = entries
    return pooled_first, pooled_link[:entries], pooled[:entries]


@kernel
def sequence(weights: Floats, first: Ints, link: Ints, seconds: Floats, critical: Floats, links: int) -> tuple[Ints, float]:
    """Return the order, first served first, and its dual value; ties keep the order given, items without load come first."""
    many = len(weights)
    total = np.zeros(links + many)
    users = np.zeros(links + many, np.int64)
    for e in range(len(link)):
        if seconds[e] > 0.0:
            total[link[e]] += seconds[e]
            users[link[e]] += 1
    for i in range(many):
        if critical[i] > 0.0:
            total[links + i] = critical[i]
            users[links + i] = 1
    start = np.zeros(links + 1, np.int64)
    for p in range(links):
        start[p + 1] = start[p] + users[p]
    put = start[:-1].copy()
    item = np.empty(start[links], np.int64)
    load = np.empty(start[links])
    for i in range(many):
        for e in range(first[i], first[i + 1]):
            if seconds[e] > 0.0:
                item[put[link[e]]] = i
                load[put[link[e]]] = seconds[e]
                put[link[e]] += 1
    blocks = (links + many + BLOCK - 1) // BLOCK
    most = np.zeros(blocks)  # at least the largest total of each block: totals only shrink, so that old maxima are bounds
    for p in range(links + many):
        most[p // BLOCK] = max(most[p // BLOCK], total[p])
    weight = weights.copy()
    placed = np.zeros(many, np.bool_)
    order = np.empty(many, np.int64)
    free = many
    dual = 0.0
    while blocks > 0:
        block = np.argmax(most)
        p = int(block * BLOCK)
        for q in range(p + 1, min(p + BLOCK, links + many)):
            if total[q] > total[p]:
                p = q
        if total[p] < most[block]:
            most[block] = total[p]
            continue
        if total[p] <= 0.0:
            break
        if p >= links:
            last = p - links
            scale = weight[last] / critical[last]
            dual += scale * critical[last] * critical[last]
        else:
            last = -1
            scale = 0.0
            once = 0.0
            squares = 0.0
            for at in range(start[p], start[p + 1]):
                i = item[at]
                if placed[i]:
                    continue
                once += load[at]
                squares += load[at] * load[at]
                ratio = weight[i] / load[at]
                if last < 0 or ratio < scale or (ratio == scale and i > last):
                    last = i
                    scale = ratio
            for at in range(start[p], start[p + 1]):
                if item[at] != last:
                    weight[item[at]] = max(weight[item[at]] - scale * load[at], 0.0)
            dual += scale * (once * once + squares) / 2.0
        for e in range(first[last], first[last + 1]):
            q = link[e]
            if seconds[e] <= 0.0:
                continue
            total[q] -= seconds[e]
            users[q] -= 1
            if users[q] == 0:
                total[q] = 0.0  # or rounding would leave something
        total[links + last] = 0.0
        placed[last] = True
        free -= 1
        order[free] = last
    for i in range(many - 1, -1, -1):
        if not placed[i]:
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
def _end(first: Ints, link: Ints, seconds: Floats, critical: Floats, served: Floats, just: Floats, i: int) -> float:
    """Return when item `i` completes after what `served` and `just` hold."""
    end = float(critical[i])
    for e in range(first[i], first[i + 1]):
        end = max(end, float(served[link[e]] + just[link[e]] + seconds[e]))
    return end


@kernel
def swap_neighbours(
    weights: Floats, first: Ints, link: Ints, seconds: Floats, critical: Floats, links: int, order: Ints, passes: int
) -> None:
    """Exchange neighbours in `order` while that lowers their weighted completion, in at most `passes` passes.

    An exchange leaves all others where they are, so that only the two have to be looked at.
    """
    just = np.zeros(links)  # what the first of the two adds
    for _ in range(passes):
        served = np.zeros(links)
        swapped = False
        for k in range(len(order) - 1):
            value = np.zeros(2)
            for way in range(2):
                one, other = order[k + way], order[k + 1 - way]
                value[way] += weights[one] * _end(first, link, seconds, critical, served, just, one)
                for e in range(first[one], first[one + 1]):
                    just[link[e]] = seconds[e]
                value[way] += weights[other] * _end(first, link, seconds, critical, served, just, other)
                for e in range(first[one], first[one + 1]):
                    just[link[e]] = 0.0
            if value[1] < value[0] * (1.0 - 1e-9):
                order[k], order[k + 1] = order[k + 1], order[k]
                swapped = True
            for e in range(first[order[k]], first[order[k] + 1]):
                served[link[e]] += seconds[e]
        if not swapped:
            return


@kernel
def move_one(weights: Floats, first: Ints, link: Ints, seconds: Floats, critical: Floats, links: int, order: Ints) -> bool:
    """Take one item of `order` to the place that lowers the weighted completion most; return False if none does."""
    best = weighted_completion(weights, first, link, seconds, critical, links, order) * (1.0 - 1e-9)
    found = order.copy()
    better = False
    for a in range(len(order)):
        for b in range(len(order)):
            if a == b:
                continue
            tried = np.empty(len(order), np.int64)
            k = 0
            for c in range(len(order)):
                if c == a:
                    continue
                if k == b:
                    k += 1
                tried[k] = order[c]
                k += 1
            tried[b] = order[a]
            value = weighted_completion(weights, first, link, seconds, critical, links, tried)
            if value < best:
                best = value
                found = tried
                better = True
    order[:] = found
    return better
