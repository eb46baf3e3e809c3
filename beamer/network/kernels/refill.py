"""Max-min fair rates brought up to date after an event: only channels whose rates change are looked at, and their links.

`update` leads to the rates that `sharing.allocate` would give to all channels anew. Group by group it does this:

1. Give up the rates of channels whose flows have changed. Where they take less than before, of those, too, that are held back
   by a segment of theirs, and by a segment for which the groups before it leave more.
2. Take the segment that fills up at the lowest level, the channels whose rates stand taking no more than these; its channels
   that have no rate, and those whose rate is higher, get that level. Where a channel takes less than before, give up the
   channels that other segments of it hold back. Repeat until no such segment is left: one *pass*.
3. Segments that held back no channel before are left out of a pass, unless a channel of theirs has got flows: most links are
   not full, and after an event few others fill up. Look at them now, and where one is overfull, go through 2 again with it.
4. Let the segments of the next groups, on links where anything has changed, know what they may share.

A pass gives a channel a rate once: no segment fills up below the level reached, and whoever is given up had a higher rate than
that, since a segment holds back those of its channels that have the highest rate there. For the same reason the rate that a
channel gave up is a lower bound of the level of its segments, from which that is worked out. A pass without some segments ends
with max-min fair rates of a network without these, from which one that includes an overfull one starts, as from a capacity that
has become less; each includes more, so that they end. Rates keep no rounding of earlier events: levels are worked out from
capacities and rates alone; sums of what changed serve to pick out the segments that may be overfull, and no more.

Cost: a segment's channels are read once or a few times whenever one of them is given up, and their sums corrected when one gets
a rate; a fill of all reads all channels. Where an event changes a few percent of the rates, as on clusters of hundreds of
hosts, it is several times as fast.
"""

from beamer.network.kernels.channels import NEVER, set_rate
from beamer.network.kernels.heap import push, remove, size
from beamer.network.kernels.jit import inner, kernel, unsigned
from beamer.network.kernels.sharing import (
    NOT_WAITING,
    beyond_shares,
    hold,
    list_active,
    list_idle,
    load,
    usable,
)
from beamer.network.kernels.state import Fill, World

SAME = 1e-14  # A smaller relative difference of two rates is rounding.
SAME_SUM = 1e-13  # Rounding may make two sums of rates differ by this share of a capacity.
NEAR_FULL = 1e-6  # Rounding of sums of changes comes to far less than this share of a capacity.
SMALL = 0.1  # Below this share of what was subtracted, a difference is summed up anew.
LESS, MORE = 1, 2  # The bits say whether a segment has less or more free now.


@kernel
def update(w: World, minimum_share: float) -> None:
    """Bring rates up to date with the flows that have started and ended. minimum_share: as for `sharing.allocate`."""
    now = w.now[0]
    now.settled = 0
    _note_changes(w)
    if minimum_share > 0.0:
        for g in range(now.groups):
            if w.groups[g].changed >= 0:
                _begin(w, w.minimum, g)
                _make_passes(w, w.minimum)
                for i in range(now.touched):
                    s = w.touched[i]
                    w.minimum.segments[s].load = load(w, w.minimum, s)
                    first = w.links[w.segments[s].link].segment
                    _pass_on(w, unsigned(first), beyond_shares(w, w.segments[s].link))
    for g in range(now.groups):
        if w.groups[g].changed >= 0 or w.groups[g].waiting >= 0:
            _begin(w, w.beyond, g)
            _take_capacities(w, g)
            _make_passes(w, w.beyond)
            for i in range(now.touched):
                s = w.touched[i]
                after = w.segments[s].after
                if after >= 0:
                    of = w.beyond.segments[s]
                    of.load = load(w, w.beyond, s)
                    _pass_on(w, unsigned(after), of.free - of.load)
            w.groups[g].changed = w.groups[g].waiting = -1
    for i in range(now.settled):
        c = w.settled[i]
        rate = w.beyond.channels[c].rate
        if minimum_share > 0.0:
            rate += w.minimum.channels[c].rate
        if rate != w.channels[c].rate:
            set_rate(w, c, rate)


@inner
def _note_changes(w: World) -> None:
    """List the channels whose flows have changed by group, and have those that have flows first on their links."""
    now = w.now[0]
    now.passes += 1
    now.update = now.passes
    for i in range(now.changes):
        c = w.motion[w.changed[i] if w.changed[i] >= 0 else ~w.changed[i]].channel
        ch = w.channels[c]
        if ch.noted == now.passes:
            continue
        ch.noted = now.passes
        count = w.beyond.channels[c].count
        if ch.count == 0 and count == 0:
            continue
        if ch.count > 0 and count == 0:
            list_active(w, c)
        elif ch.count == 0:
            list_idle(w, c)
        ch.following = w.groups[ch.group].changed
        w.groups[ch.group].changed = c


@inner
def _pass_on(w: World, s: int, free: float) -> None:
    """Leave so much of its link to a segment, for a pass to come."""
    segment = w.segments[s]
    of = w.beyond.segments[s]
    if abs(free - of.free) <= SAME_SUM * w.links[segment.link].capacity:
        return
    if segment.waiting == NOT_WAITING:
        segment.waiting = w.groups[segment.group].waiting
        segment.way = 0
        w.groups[segment.group].waiting = s
    segment.way |= MORE if free > of.free else LESS
    of.free = free


@inner
def _begin(w: World, fill: Fill, g: int) -> None:
    """Begin to bring a group up to date: give up the rates of its channels whose flows have changed."""
    now = w.now[0]
    now.passes += 1
    now.refill = now.passes
    now.touched = 0
    now.level = 0.0
    c = w.groups[g].changed
    while c >= 0:
        _change(w, fill, unsigned(c))
        c = w.channels[c].following


@inner
def _take_capacities(w: World, g: int) -> None:
    """Take in for which segments of a group more, or less, is left than before, of the fill beyond minimum shares."""
    waiting = w.groups[g].waiting
    while waiting >= 0:
        s = unsigned(waiting)
        segment = w.segments[s]
        _touch(w, w.beyond, s)
        if segment.way & MORE:
            _relax(w, w.beyond, s)
        if segment.way & LESS and segment.active > 0:
            _mark(w, w.beyond, s, 0.0)
        waiting = segment.waiting
        segment.waiting = NOT_WAITING


@inner
def _make_passes(w: World, fill: Fill) -> None:
    """Make passes until no segment that was left out is overfull; list the channels and segments that have changed."""
    _give_levels(w, fill)
    while _find_overfull(w, fill):
        _give_levels(w, fill)


@inner
def _give_levels(w: World, fill: Fill) -> None:
    """Give channels the level of the segment that fills up first, and so on, until every channel has a rate."""
    now = w.now[0]
    _queue_marked(w, fill)
    while size(w.levels) > 0:
        s = w.levels[0].item
        of = fill.segments[s]
        if of.exact != now.passes:
            _queue(w, fill, s, w.levels[s].key)
            continue
        now.level = max(now.level, w.levels[s].key)
        remove(w.levels, s)
        _fix(w, fill, s)
        _queue_marked(w, fill)


@inner
def _find_overfull(w: World, fill: Fill) -> bool:
    """Mark the overfull ones among the segments that passes have left out, for one more pass; return whether there are any."""
    now = w.now[0]
    found = False
    for i in range(now.touched):
        s = w.touched[i]
        of = fill.segments[s]
        capacity = w.links[w.segments[s].link].capacity
        if of.decided < now.refill or not of.apart or of.load <= of.free - NEAR_FULL * capacity:
            continue
        of.load = load(w, fill, s)
        if of.load <= of.free + SAME_SUM * capacity:
            continue
        if not found:
            found = True
            now.passes += 1
            now.level = 0.0
        of.overfull = now.update
        _mark(w, fill, s, 0.0)
    return found


@inner
def _queue(w: World, fill: Fill, s: int, bound: float) -> None:
    """Queue segment `s` by the level at which it fills up, which is no less than `bound`."""
    fill.segments[s].exact = w.now[0].passes
    level = _level(w, fill, s, bound)
    if level < NEVER:
        push(w.levels, s, level)
    else:
        remove(w.levels, s)


@inner
def _queue_marked(w: World, fill: Fill) -> None:
    """Queue the segments that are marked."""
    for i in range(w.now[0].marked):
        s = w.marked[i]
        of = fill.segments[s]
        of.marked = 0
        _queue(w, fill, s, min(of.bound, w.levels[s].key) if w.levels[s].position >= 0 else of.bound)
    w.now[0].marked = 0


@inner
def _change(w: World, fill: Fill, c: int) -> None:
    """Take in that the flows of channel `c` have changed."""
    now = w.now[0]
    ch = w.channels[c]
    given = fill.channels[c]
    if ch.count < given.count:
        for h in range(ch.hop_first, ch.hop_end):
            _relax(w, fill, w.places[h].segment)
    for h in range(ch.hop_first, ch.hop_end):
        take = fill.takes[w.places[h].at]
        of = fill.segments[w.places[h].segment]
        of.load -= take.flows * given.rate
        if ch.count > 0:  # Otherwise the channel might have no segment that gives it a rate.
            of.decided = now.passes
            of.apart = 0
    if ch.count > 0:
        _give_up(w, fill, c, 0.0)
        given.rate = 0.0
    else:
        hold(fill, c, -1, 0.0)
    given.count = ch.count
    for h in range(ch.hop_first, ch.hop_end):
        take = fill.takes[w.places[h].at]
        take.flows = ch.count * w.hops[h].use
        if ch.count == 0:
            take.rate = 0.0
        _touch(w, fill, w.places[h].segment)


@inner
def _touch(w: World, fill: Fill, s: int) -> None:
    """List segment `s`: what its channels take may have changed."""
    of = fill.segments[s]
    if of.changed < w.now[0].refill:
        of.changed = w.now[0].refill
        w.touched[w.now[0].touched] = s
        w.now[0].touched += 1


@inner
def _mark(w: World, fill: Fill, s: int, bound: float) -> None:
    """Mark segment `s`, which fills up at no less than `bound`, to be queued, as its channels have changed; or leave it out."""
    of = fill.segments[s]
    if of.decided != w.now[0].passes:
        of.decided = w.now[0].passes
        of.apart = of.holds == 0 and of.overfull != w.now[0].update
    if of.apart:
        return
    of.summed = 0
    if of.marked:
        of.bound = min(of.bound, bound)
    else:
        of.marked = 1
        of.bound = bound
        w.marked[w.now[0].marked] = s
        w.now[0].marked += 1


@inner
def _give_up(w: World, fill: Fill, c: int, bound: float) -> None:
    """Give up the rate of channel `c`, whose segments fill up at no less than `bound`."""
    given = fill.channels[c]
    if given.mark != 2 * w.now[0].passes:
        given.before = given.count * given.rate
        given.mark = 2 * w.now[0].passes
    for h in range(w.channels[c].hop_first, w.channels[c].hop_end):
        fill.takes[w.places[h].at].rate = NEVER
        _mark(w, fill, w.places[h].segment, bound)


@inner
def _relax(w: World, fill: Fill, s: int) -> None:
    """Give up the rates of the channels that segment `s` holds back."""
    now = w.now[0]
    of = fill.segments[s]
    if of.holds == 0 or of.relaxed == now.passes:
        return
    of.relaxed = now.passes
    left = of.holds
    segment = w.segments[s]
    for at in range(segment.first, segment.first + segment.active):
        c = w.users[at].channel
        given = fill.channels[c]
        if given.holder != s:
            continue
        if given.mark < 2 * now.passes:
            _give_up(w, fill, c, max(given.rate, now.level))
        left -= 1
        if left == 0:
            break


@inner
def _level(w: World, fill: Fill, s: int, bound: float) -> float:
    """Return the level at which segment `s` fills up, which is no less than `bound`; NEVER if it does not.

    Channels whose rates stand take no more than these.
    """
    segment = w.segments[s]
    of = fill.segments[s]
    capacity = w.links[segment.link].capacity
    if of.summed == w.now[0].passes:
        level = usable(of.free - of.used, capacity) / of.weight
        if level <= of.lowest:
            return float(max(level, bound))
    # What channels would take at a level grows ever slower with it: the step from any level leads to no more than the one
    # wanted, and further steps up to it.
    level = max(bound, of.before)
    is_below = level == bound
    while True:
        used = 0.0
        weight = 0.0
        lowest = NEVER
        highest = 0.0
        for at in range(segment.first, segment.first + segment.active):
            flows, rate = fill.takes[at].flows, fill.takes[at].rate
            stands = rate <= level  # This form is compiled without branches.
            used += flows * rate if stands else 0.0
            weight += 0.0 if stands else flows
            lowest = min(lowest, NEVER if stands else rate)
            highest = max(highest, rate if stands else 0.0)
        if weight == 0.0:
            if is_below or used <= of.free + SAME_SUM * capacity:
                return NEVER
            level = bound
            is_below = True
            continue
        raised = usable(of.free - used, capacity) / weight
        if (raised <= lowest and (is_below or highest <= raised)) or (is_below and raised <= level):
            of.used = used
            of.weight = weight
            of.lowest = lowest
            of.split = level
            of.summed = w.now[0].passes
            return float(max(raised, bound))
        level = max(raised, bound)
        is_below = True


@inner
def _fix(w: World, fill: Fill, s: int) -> None:
    """Give the level reached to the channels of segment `s` that have no rate, or a higher one."""
    now = w.now[0]
    segment = w.segments[s]
    fill.segments[s].before = now.level
    for at in range(segment.first, segment.first + segment.active):
        rate = fill.takes[at].rate
        if rate <= now.level * (1.0 + SAME):
            continue
        c = w.users[at].channel
        given = fill.channels[c]
        before = given.before if rate >= NEVER else given.count * rate
        given.mark = 2 * now.passes + 1
        if given.listed != now.update:
            given.listed = now.update
            w.settled[now.settled] = c
            now.settled += 1
        gone = given.rate
        hold(fill, c, s, now.level)
        takes_less = given.count * now.level < before * (1.0 - SAME)
        for h in range(w.channels[c].hop_first, w.channels[c].hop_end):
            other = w.places[h].segment
            take = fill.takes[w.places[h].at]
            take.rate = now.level
            flows = take.flows
            _touch(w, fill, other)
            of = fill.segments[other]
            of.load += flows * (now.level - gone)
            if other == s:
                continue
            of.exact = 0
            if of.summed == now.passes:
                if rate > of.split:
                    of.weight -= flows
                    if of.weight < SMALL * flows:
                        of.summed = 0
                else:
                    of.used -= flows * rate
                of.used += flows * now.level
            if takes_less:
                _relax(w, fill, other)
