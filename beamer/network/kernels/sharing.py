"""Max-min fair sharing within groups, groups strictly one before another: classes of a port, or one group for all.

Flows of one group on one path share a channel; the channels of one group on one link are a segment of that link. `allocate`
gives all channels their rates anew; `beamer.network.kernels.refill` brings them up to date after an event, to the same rates.

Rates are the sum of two fills. The first, with a minimum share, fills every group on that share of each link. The second fills
the groups one after another on what is left. `_fill` is water-filling (Bertsekas, Gallager 1992, Data Networks, section 6.5.2):
the link that fills up at the lowest level fixes the rates of its channels at that level, its other links lose that capacity,
and so on until no channel is left.

Invariants, of each fill: a path has no link twice; every channel that has flows is held back by a full segment on which no
channel of its group has a higher rate; a segment's `free` is what the groups before it leave, its `load` what its channels
take, where a group follows; those of its channels that have flows come first in its list. Levels are updated lazily, when a
link is first in the heap: a fill of C channels of h hops on L links takes O(C h + R log L), R being how often a link comes
first, once or again with a level that has risen.
"""

from beamer.network.kernels.channels import NEVER, set_rate
from beamer.network.kernels.heap import push, remove, size
from beamer.network.kernels.jit import inner, kernel, unsigned
from beamer.network.kernels.state import Fill, World

EXHAUSTED = 1e-12  # share of a link's capacity below which nothing is free
NOT_WAITING = -2


@kernel
def allocate(w: World, minimum_share: float) -> None:
    """Give all channels, as `grouping.rearrange` has just made them, their rates.

    minimum_share: of each link, guaranteed to every group.
    """
    _list(w)
    if minimum_share > 0.0:
        for g in range(w.now[0].groups):
            for s in range(w.groups[g].segment_first, w.groups[g].segment_end):
                link = w.links[w.segments[s].link]
                w.minimum.segments[s].free = link.capacity if link.own else link.capacity * minimum_share
            _fill(w, w.minimum, g)
    for g in range(w.now[0].groups):
        for s in range(w.groups[g].segment_first, w.groups[g].segment_end):
            if w.links[w.segments[s].link].segment == s:
                w.beyond.segments[s].free = beyond_shares(w, w.segments[s].link)
        _fill(w, w.beyond, g)
        for s in range(w.groups[g].segment_first, w.groups[g].segment_end):
            after = w.segments[s].after
            if after >= 0:
                w.beyond.segments[after].free = w.beyond.segments[s].free - w.beyond.segments[s].load
    for c in range(w.now[0].channels):
        rate = w.minimum.channels[c].rate + w.beyond.channels[c].rate
        if rate != w.channels[c].rate:
            set_rate(w, unsigned(c), rate)


@inner
def _list(w: World) -> None:
    """List the channels of every link by segment, without rates."""
    for link in w.links:
        link.size = 0
        link.segment = -1
        link.last_segment = -1
    number = 0
    for g in range(w.now[0].groups):
        group = w.groups[g]
        group.segment_first = number
        group.changed = -1
        group.waiting = -1
        for c in range(group.channel_first, group.channel_end):
            ch = w.channels[c]
            for fill in (w.minimum, w.beyond):
                given = fill.channels[c]
                given.rate = 0.0
                given.count = ch.count
                given.holder = -1
            for h in range(ch.hop_first, ch.hop_end):
                link = w.links[w.hops[h].link]
                if link.last_segment < 0 or w.segments[link.last_segment].group != g:
                    segment = w.segments[number]
                    segment.link = w.hops[h].link
                    segment.group = g
                    segment.first = link.first + link.size
                    segment.active = 0
                    segment.after = -1
                    segment.waiting = NOT_WAITING
                    for fill in (w.minimum, w.beyond):
                        fill.segments[number].load = 0.0
                        fill.segments[number].holds = 0
                    if link.last_segment < 0:
                        link.segment = number
                    else:
                        w.segments[link.last_segment].after = number
                    link.last_segment = number
                    number += 1
                at = link.first + link.size
                link.size += 1
                w.users[at].channel = c
                w.users[at].hop = h
                for fill in (w.minimum, w.beyond):
                    take = fill.takes[at]
                    take.flows = ch.count * w.hops[h].use
                    take.rate = 0.0
                w.places[h].segment = link.last_segment
                w.places[h].at = at
            if ch.count > 0:
                list_active(w, c)
        group.segment_end = number


@inner
def list_active(w: World, c: int) -> None:
    """Have channel `c`, which has flows now, among the active ones of its segments."""
    for h in range(w.channels[c].hop_first, w.channels[c].hop_end):
        segment = w.segments[w.places[h].segment]
        _exchange(w, w.places[h].at, segment.first + segment.active)
        segment.active += 1


@inner
def list_idle(w: World, c: int) -> None:
    """Have channel `c`, which has no flows now, behind the active ones of its segments."""
    for h in range(w.channels[c].hop_first, w.channels[c].hop_end):
        segment = w.segments[w.places[h].segment]
        segment.active -= 1
        _exchange(w, w.places[h].at, segment.first + segment.active)


@inner
def _exchange(w: World, one: int, other: int) -> None:
    """Let two entries of a list of users change places."""
    if one == other:
        return
    channel, hop = w.users[one].channel, w.users[one].hop
    w.users[one].channel, w.users[one].hop = w.users[other].channel, w.users[other].hop
    w.users[other].channel, w.users[other].hop = channel, hop
    w.places[w.users[one].hop].at = one
    w.places[hop].at = other
    for fill in (w.minimum, w.beyond):
        a, b = fill.takes[one], fill.takes[other]
        flows, rate = a.flows, a.rate
        a.flows, a.rate = b.flows, b.rate
        b.flows, b.rate = flows, rate


@inner
def usable(free: float, capacity: float) -> float:
    """Return what is free of a link, 0 where that is rounding."""
    return free if free > EXHAUSTED * capacity else 0.0


@inner
def beyond_shares(w: World, link: int) -> float:
    """Return what the minimum shares in use leave of a link."""
    free = float(w.links[link].capacity)
    s = w.links[link].segment
    while s >= 0:
        free -= w.minimum.segments[s].load
        s = w.segments[s].after
    return free


@inner
def load(w: World, fill: Fill, s: int) -> float:
    """Return what the channels of a segment take at their rates of a fill, bit/s."""
    taken = 0.0
    segment = w.segments[s]
    for at in range(segment.first, segment.first + segment.active):
        taken += fill.takes[at].flows * fill.takes[at].rate
    return taken


@inner
def hold(fill: Fill, c: int, s: int, rate: float) -> None:
    """Note that segment `s`, -1 for none, holds channel `c` back at a rate, which its takes have still to be given."""
    given = fill.channels[c]
    given.rate = rate
    if given.holder != s:
        if given.holder >= 0:
            fill.segments[given.holder].holds -= 1
        if s >= 0:
            fill.segments[s].holds += 1
        given.holder = s


@inner
def _fill(w: World, fill: Fill, g: int) -> None:
    """Share what the segments of group `g` have free among its channels by water-filling."""
    group = w.groups[g]
    # Queue segments by the level at which they fill up.
    for s in range(group.segment_first, group.segment_end):
        segment = w.segments[s]
        segment.left = fill.segments[s].free
        segment.users = segment.active
        segment.weight = 0.0
        for at in range(segment.first, segment.first + segment.active):
            segment.weight += fill.takes[at].flows
            fill.takes[at].rate = NEVER
        if segment.active > 0:
            push(w.levels, unsigned(s), usable(segment.left, w.links[segment.link].capacity) / segment.weight)
    # Fix the channels of the segment that fills up first.
    while size(w.levels) > 0:
        s = w.levels[0].item
        full = w.segments[s]
        if full.users > 0:
            level = usable(full.left, w.links[full.link].capacity) / full.weight
            if level > w.levels[s].key:  # The queued level is out of date, as levels only rise while others are fixed.
                push(w.levels, s, level)
                continue
            for at in range(full.first, full.first + full.active):
                if fill.takes[at].rate < NEVER:
                    continue
                c = w.users[at].channel
                hold(fill, c, s, level)
                for h in range(w.channels[c].hop_first, w.channels[c].hop_end):
                    segment = w.segments[w.places[h].segment]
                    take = fill.takes[w.places[h].at]
                    take.rate = level
                    segment.left -= take.flows * level
                    segment.weight -= take.flows
                    segment.users -= 1
        remove(w.levels, s)
    for s in range(group.segment_first, group.segment_end):
        fill.segments[s].load = load(w, fill, unsigned(s))
