"""Max-min fair sharing inside groups, groups strictly one before another: classes of a port, or one group for all.

Flows of one group on one path share a channel. A change reaches its own group and those behind it.
"""

import numpy as np

from beamer.network.arrays import Bools, Floats, Ints
from beamer.network.kernels.channels import NEVER, bits_left, enter, listed, set_rate
from beamer.network.kernels.heap import push, remove, size
from beamer.network.kernels.jit import inner, kernel
from beamer.network.kernels.state import World

SPENT = 1e-12
ALIKE = 1e-9  # share by which rounding may move a level


@kernel
def rearrange(w: World, order: Ints) -> None:
    """Put the flows of all jobs into channels by group and path; what they have moved stays."""
    flows = np.empty(len(w.flows), np.int64)
    number = 0
    paths = 0
    for j in order:
        for p in range(w.jobs[j].phase_first, w.jobs[j].phase_end):
            for f in range(w.phases[p].flow_first, w.phases[p].flow_end):
                if w.flows[f].active:
                    w.motion[f].mark = bits_left(w, f)
                if listed(w, j, p, f):
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
            enter(w, f, w.motion[f].mark)
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
def _spare(free: float, capacity: float) -> float:
    """Return what is free of a link, nothing where only rounding has left something."""
    return free if free > SPENT * capacity else 0.0


@inner
def _take(w: World, c: int, rate: float) -> None:
    """Take what the flows of channel `c` use at `rate` each from what links have free."""
    ch = w.channels[c]
    for h in range(ch.hop_first, ch.hop_end):
        w.links[w.hops[h].link].free -= ch.count * rate * w.hops[h].use


@inner
def _fill(w: World, first: int, last: int, rate: Floats, waits: Bools) -> None:
    """Share what links have free among the channels at `first` to `last` - 1 of the sequence by water-filling.

    waits: all false, before and after. Adds to `rate`, takes from `free` and puts the channels, those that move, in the order
    in which links fill up.
    """
    for link in w.links:
        link.weight = 0.0
        link.users = 0
    idle = last
    for at in range(last - 1, first - 1, -1):
        c = w.sequence[at]
        ch = w.channels[c]
        if ch.count == 0:
            idle -= 1
            w.sequence[at] = w.sequence[idle]
            w.sequence[idle] = c
            continue
        waits[c] = True
        for h in range(ch.hop_first, ch.hop_end):
            link = w.links[w.hops[h].link]
            link.weight += ch.count * w.hops[h].use
            link.users += 1
    for i in range(len(w.links)):
        link = w.links[i]
        if link.users > 0:
            push(w.fills, i, _spare(link.free, link.capacity) / link.weight)
    place = first
    while size(w.fills) > 0:
        tightest = w.fills[0].item
        full = w.links[tightest]
        if full.users > 0:
            level = _spare(full.free, full.capacity) / full.weight
            if level > w.fills[tightest].key:  # levels only rise as others are fixed, so that looking again is enough
                push(w.fills, tightest, level)
                continue
            for at in range(full.first, full.first + full.size):
                c = w.entries[at].item
                if not waits[c]:
                    continue
                waits[c] = False
                w.sequence[place] = c
                place += 1
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
    """Return the first place in the sequence behind the group of the channel at `first`."""
    group = w.channels[w.sequence[first]].group
    last = first
    while last < w.now[0].channels and w.channels[w.sequence[last]].group == group:
        last += 1
    return last


@inner
def _first_changed(w: World, group: int, slowest: float) -> int:
    """Return the first place in the sequence whose channel may get another rate."""
    number = w.now[0].channels
    at = 0
    while at < number and w.channels[w.sequence[at]].group < group:
        at += 1
    while at < number and w.channels[w.sequence[at]].group == group:
        ch = w.channels[w.sequence[at]]
        if ch.count > 0 and ch.rate >= slowest * (1.0 - ALIKE):
            break
        at += 1
    return at


@kernel
def allocate(w: World, group: int, slowest: float, minimum_share: float) -> None:
    """Give the channels of `group` and those behind it their rates.

    slowest: of the flows of `group` that have ended, if none has started. What has changed fills no link before that level,
    so that slower channels keep their rates. minimum_share: of each link, that every group is sure of; above 0 all groups are
    allocated anew.
    """
    number = w.now[0].channels
    rate = np.zeros(number)
    waits = np.zeros(number, np.bool_)
    begin = 0
    if minimum_share > 0.0:
        first = 0
        while first < number:
            for link in w.links:
                link.free = link.capacity * minimum_share
            last = _group_end(w, first)
            _fill(w, first, last, rate, waits)
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
    first = begin
    while first < number:
        last = _group_end(w, first)
        _fill(w, first, last, rate, waits)
        first = last
    for at in range(begin, number):
        c = w.sequence[at]
        if rate[c] != w.channels[c].rate:
            set_rate(w, c, rate[c])
