"""Max-min fair sharing within groups, groups strictly one before another: classes of a port, or one group for all.

Flows of one group on one path share a channel. Phases of `allocate`:

1. With a minimum share: fill every group on that share of each link.
2. Find the first channel whose rate may change: of the first group with a flow that started or ended, and there from the level
   at which the first flow ended. Earlier channels keep their rates, which are subtracted from what is free.
3. Fill the groups from there on, one after another, on what is left.

`_fill` is water-filling (Bertsekas, Gallager 1992, Data Networks, section 6.5.2): the link that fills up at the lowest level
fixes the rates of its channels at that level, its other links lose that capacity, and so on until no channel is left.

Invariants: `sequence` has the channels by group and, within it, in the order in which they were fixed, idle ones last; levels
within a fill do not decrease; every active channel has a full link on which no rate of its group is larger. Levels are updated
lazily, when a link is first in the heap: a fill of C channels of h hops on L links takes O(C h + R log L), R being how often a
link comes first, once or again with a level that has risen.
"""

import numpy as np

from beamer.network.arrays import Bools, Floats, Ints
from beamer.network.kernels.channels import NEVER, bits_left, enter, has_traffic, set_rate
from beamer.network.kernels.heap import push, remove, size
from beamer.network.kernels.jit import inner, kernel
from beamer.network.kernels.state import World

EXHAUSTED = 1e-12  # share of a link's capacity below which nothing is free
LEVEL_TOLERANCE = 1e-9  # relative, by which rounding may move a level


@kernel
def rearrange(w: World, order: Ints) -> None:
    """Put the flows of all jobs into channels by group and path, with the bits that they have left, in O(F log F)."""
    flows = np.empty(len(w.flows), np.int64)
    number = 0
    paths = 0
    for j in order:
        for p in range(w.jobs[j].phase_first, w.jobs[j].phase_end):
            for f in range(w.phases[p].flow_first, w.phases[p].flow_end):
                if w.flows[f].active:
                    w.motion[f].finish = bits_left(w, f)
                if has_traffic(w, j, p, f):
                    flows[number] = f
                    number += 1
                    paths = max(paths, w.motion[f].path + 1)
    kind = np.empty(number, np.int64)
    for i in range(number):
        kind[i] = w.jobs[w.motion[flows[i]].job].group * paths + w.motion[flows[i]].path
    c = -1
    before = np.int64(-1)
    for i in np.argsort(kind, kind="mergesort"):
        f = flows[i]
        if kind[i] != before:
            before = kind[i]
            c += 1
            ch = w.channels[c]
            ch.hop_first = w.flows[f].hop_first
            ch.hop_end = w.flows[f].hop_end
            ch.group = w.jobs[w.motion[f].job].group
            ch.rate = 0.0
            ch.served = 0.0
            ch.since = w.now[0].s
            ch.top = -1
            ch.count = 0
        w.motion[f].channel = c
        if w.flows[f].active:
            enter(w, f, w.motion[f].finish)
    w.now[0].channels = c + 1
    _list(w)


@inner
def _list(w: World) -> None:
    """List the channels of every link."""
    for link in w.links:
        link.size = 0
    for c in range(w.now[0].channels):
        w.sequence[c] = c
        w.due[c] = NEVER
        for h in range(w.channels[c].hop_first, w.channels[c].hop_end):
            link = w.links[w.hops[h].link]
            w.entries[link.first + link.size].item = c
            link.size += 1


@inner
def _usable(free: float, capacity: float) -> float:
    """Return what is free of a link, 0 where that is rounding."""
    return free if free > EXHAUSTED * capacity else 0.0


@inner
def _take(w: World, c: int, rate: float) -> None:
    """Take what the flows of channel `c` use at `rate` each from what links have free."""
    ch = w.channels[c]
    for h in range(ch.hop_first, ch.hop_end):
        w.links[w.hops[h].link].free -= ch.count * rate * w.hops[h].use


@inner
def _fill(w: World, first: int, last: int, rate: Floats, unfixed: Bools) -> None:
    """Share what links have free among the channels at `first` to `last` - 1 of the sequence by water-filling.

    unfixed: working space, all false before and after. Adds to `rate`, subtracts from `free` and sorts the active channels of
    the sequence into the order in which they are fixed.
    """
    for link in w.links:
        link.weight = 0.0
        link.users = 0
    # Move idle channels to the end; count the others on their links.
    idle = last
    for at in range(last - 1, first - 1, -1):
        c = w.sequence[at]
        ch = w.channels[c]
        if ch.count == 0:
            idle -= 1
            w.sequence[at] = w.sequence[idle]
            w.sequence[idle] = c
            continue
        unfixed[c] = True
        for h in range(ch.hop_first, ch.hop_end):
            link = w.links[w.hops[h].link]
            link.weight += ch.count * w.hops[h].use
            link.users += 1
    # Queue links by the level at which they fill up.
    for i in range(len(w.links)):
        link = w.links[i]
        if link.users > 0:
            push(w.fills, i, _usable(link.free, link.capacity) / link.weight)
    # Fix the channels of the link that fills up first.
    position = first
    while size(w.fills) > 0:
        tightest = w.fills[0].item
        full = w.links[tightest]
        if full.users > 0:
            level = _usable(full.free, full.capacity) / full.weight
            if level > w.fills[tightest].key:  # levels only rise as others are fixed: out of date
                push(w.fills, tightest, level)
                continue
            for at in range(full.first, full.first + full.size):
                c = w.entries[at].item
                if not unfixed[c]:
                    continue
                unfixed[c] = False
                w.sequence[position] = c
                position += 1
                rate[c] += level
                ch = w.channels[c]
                for h in range(ch.hop_first, ch.hop_end):
                    link = w.links[w.hops[h].link]
                    use = ch.count * w.hops[h].use
                    link.free -= use * level
                    link.weight -= use
                    link.users -= 1
        remove(w.fills, tightest)


@inner
def _group_end(w: World, first: int) -> int:
    """Return the first position in the sequence after the group of the channel at `first`."""
    group = w.channels[w.sequence[first]].group
    last = first
    while last < w.now[0].channels and w.channels[w.sequence[last]].group == group:
        last += 1
    return last


@inner
def _first_changed(w: World, group: int, slowest: float) -> int:
    """Return the first position in the sequence whose channel may get another rate."""
    number = w.now[0].channels
    at = 0
    while at < number and w.channels[w.sequence[at]].group < group:
        at += 1
    while at < number and w.channels[w.sequence[at]].group == group:
        ch = w.channels[w.sequence[at]]
        if ch.count > 0 and ch.rate >= slowest * (1.0 - LEVEL_TOLERANCE):
            break
        at += 1
    return at


@kernel
def allocate(w: World, group: int, slowest: float, minimum_share: float) -> None:
    """Give the channels of `group` and of later groups their rates.

    slowest: the least rate of the flows of `group` that have ended, 0 if any has started. No link fills up otherwise below that
    level, so that slower channels keep their rates. minimum_share: of each link, guaranteed to every group; above 0, all groups
    are allocated anew.
    """
    number = w.now[0].channels
    rate = np.zeros(number)
    unfixed = np.zeros(number, np.bool_)
    begin = 0
    # 1. Minimum shares, or 2. what keeps its rate.
    if minimum_share > 0.0:
        first = 0
        while first < number:
            for link in w.links:
                link.free = link.capacity if link.own else link.capacity * minimum_share
            last = _group_end(w, first)
            _fill(w, first, last, rate, unfixed)
            first = last
    else:
        begin = _first_changed(w, group, slowest)
    for link in w.links:
        link.free = link.capacity
    for at in range(begin):
        c = w.sequence[at]
        rate[c] = w.channels[c].rate
    for c in range(number):
        if rate[c] > 0.0:
            _take(w, c, rate[c])
    # 3. Fill the other groups.
    first = begin
    while first < number:
        last = _group_end(w, first)
        _fill(w, first, last, rate, unfixed)
        first = last
    for at in range(begin, number):
        c = w.sequence[at]
        if rate[c] != w.channels[c].rate:
            set_rate(w, c, rate[c])
