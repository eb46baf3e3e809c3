"""Max-min fair sharing inside groups, groups strictly one before another: classes of a port, or one group for all.

Flows of one group on one path share a channel. A change reaches its own group and those behind it.
"""

import numpy as np

from beamer.kernels.channels import append_end, bits_left, enter, listed, settle
from beamer.kernels.heap import empty, heapify, push, remove, size
from beamer.kernels.jit import Floats, Ints, kernel
from beamer.kernels.state import World

SPENT = 1e-12


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
    empty(w.ends)
    c = -1
    before = np.int64(-1)
    for i in np.argsort(kind, kind="mergesort"):
        f = flows[i]
        if kind[i] != before:
            before = kind[i]
            c += 1
            ch = w.channels[c]
            ch.flow = f
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


@kernel
def _spare(free: float, capacity: float) -> float:
    """Return what is free of a link, nothing where only rounding has left something."""
    return free if free > SPENT * capacity else 0.0


@kernel
def _fill(w: World, first: int, last: int, rate: Floats) -> None:
    """Share what links have free among channels `first` to `last` - 1 by water-filling; add to `rate`, take from `free`."""
    for link in w.links:
        link.weight = 0.0
        link.users = 0
    for c in range(first, last):
        ch = w.channels[c]
        if ch.count > 0:
            for h in range(w.flows[ch.flow].hop_first, w.flows[ch.flow].hop_end):
                w.links[w.hops[h].link].weight += ch.count * w.hops[h].use
                w.links[w.hops[h].link].users += 1
    start = np.zeros(len(w.links) + 1, np.int64)
    for i in range(len(w.links)):
        link = w.links[i]
        start[i + 1] = start[i] + link.users
        if link.users > 0:
            push(w.fills, i, _spare(link.free, link.capacity) / link.weight)
    member = np.empty(start[-1], np.int64)
    put = start[:-1].copy()
    for c in range(first, last):
        ch = w.channels[c]
        if ch.count > 0:
            for h in range(w.flows[ch.flow].hop_first, w.flows[ch.flow].hop_end):
                member[put[w.hops[h].link]] = c
                put[w.hops[h].link] += 1
    fixed = np.zeros(last - first, np.bool_)
    while size(w.fills) > 0:
        tightest = w.fills[0].item
        if w.links[tightest].users > 0:
            level = _spare(w.links[tightest].free, w.links[tightest].capacity) / w.links[tightest].weight
            if level > w.fills[tightest].key:  # levels only rise as others are fixed, so that looking again is enough
                push(w.fills, tightest, level)
                continue
            for i in range(start[tightest], start[tightest + 1]):
                c = member[i]
                if fixed[c - first]:
                    continue
                fixed[c - first] = True
                rate[c] += level
                ch = w.channels[c]
                for h in range(w.flows[ch.flow].hop_first, w.flows[ch.flow].hop_end):
                    link = w.links[w.hops[h].link]
                    use = ch.count * w.hops[h].use
                    link.free -= use * level
                    link.weight -= use
                    link.users -= 1
        remove(w.fills, tightest)


@kernel
def _take(w: World, c: int, rate: float) -> None:
    """Take what the flows of channel `c` use at `rate` each from what links have free."""
    ch = w.channels[c]
    if ch.count > 0 and rate > 0.0:
        for h in range(w.flows[ch.flow].hop_first, w.flows[ch.flow].hop_end):
            w.links[w.hops[h].link].free -= ch.count * rate * w.hops[h].use


@kernel
def _group_end(w: World, first: int) -> int:
    """Return the first channel behind the group of channel `first`."""
    last = first
    while last < w.now[0].channels and w.channels[last].group == w.channels[first].group:
        last += 1
    return last


@kernel
def allocate(w: World, group: int, minimum_share: float) -> None:
    """Give the channels of `group` and those behind it their rates.

    minimum_share: of each link, that every group is sure of; above 0 all groups are allocated anew.
    """
    number = w.now[0].channels
    rate = np.zeros(number)
    begin = 0
    if minimum_share > 0.0:
        first = 0
        while first < number:
            for link in w.links:
                link.free = link.capacity * minimum_share
            last = _group_end(w, first)
            _fill(w, first, last, rate)
            first = last
    else:
        while begin < number and w.channels[begin].group < group:
            rate[begin] = w.channels[begin].rate
            begin += 1
    for link in w.links:
        link.free = link.capacity
    for c in range(number):
        _take(w, c, rate[c])
    first = begin
    while first < number:
        last = _group_end(w, first)
        _fill(w, first, last, rate)
        first = last
    empty(w.ends)
    for c in range(number):
        settle(w, c)
        w.channels[c].rate = rate[c]
        append_end(w, c)
    heapify(w.ends)
