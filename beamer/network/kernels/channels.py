"""Channels: flows of equal path and group that move at one common rate.

A channel serves all its flows alike: `served` counts the bits that each has moved since the channel was made, and a flow that
joins when that is s with b bits to move completes at `finish` = s + b, as by virtual time in fair queueing. So a change of rate
costs O(1), whatever the number of flows, and a flow's arrival or end O(log) in its channel's skew heap.

Invariants: `served` is up to date as of `since`; `top` is the flow of least `finish`, which its channel knows, too; the end of
the channel in `World.ends` (or `World.due`) is that of `top` at the rate in force.
"""

from beamer.network.arrays import Floats
from beamer.network.kernels.heap import append, meld, push, remove, size
from beamer.network.kernels.jit import any_order, inner, unsigned
from beamer.network.kernels.state import World

NEVER = 1e300  # seconds
BLOCK = 64  # A block has so many channels; the first of their listed ends is kept.
OUTDATED = -1.0  # seconds
COMPLETION_TOLERANCE = 1e-9  # share of a flow's size that rounding may leave unserved


@inner
def settle(w: World, c: int) -> None:
    """Bring what channel `c` has served up to date."""
    ch = w.channels[c]
    if ch.rate > 0.0:
        ch.served += ch.rate * (w.now[0].s - ch.since)
    ch.since = w.now[0].s


@inner
def end_s(w: World, c: int) -> float:
    """Return when the next flow of channel `c`, which is settled, ends."""
    ch = w.channels[c]
    if ch.count == 0 or ch.rate <= 0.0:
        return NEVER
    return float(w.now[0].s + max(ch.finish - ch.served, 0.0) / ch.rate)


@inner
def queue_end(w: World, c: int) -> None:
    """Enter the next end of channel `c`, which is settled, among those of all channels."""
    at = end_s(w, c)
    if w.now[0].lists_ends:
        w.due[c] = at
        w.soonest[c // BLOCK] = OUTDATED
    elif at < NEVER:
        push(w.ends, c, at)
    else:
        remove(w.ends, c)


@inner
def next_end_s(w: World) -> float:
    """Return when the next flow ends; NEVER if none will."""
    at = NEVER
    if w.now[0].lists_ends:
        for block in range((w.now[0].channels + BLOCK - 1) // BLOCK):
            if w.soonest[block] == OUTDATED:
                w.soonest[block] = least(w.due, block * BLOCK, min((block + 1) * BLOCK, w.now[0].channels))
            at = min(at, w.soonest[block])
    elif size(w.ends) > 0:
        at = w.ends[w.ends[0].item].key
    return at


@any_order
def least(values: Floats, first: int, last: int) -> float:
    """Return the least of some values, none of which is NaN, which may be compared in any order."""
    found = NEVER
    for i in range(first, last):
        found = min(found, values[i])
    return found


@inner
def append_end(w: World, c: int) -> None:
    """Append the next end of channel `c`, which is settled, to those of all channels; `heapify` has to follow."""
    at = end_s(w, c)
    if at < NEVER:
        append(w.ends, c, at)


@inner
def set_rate(w: World, c: int, rate: float) -> None:
    """Let the flows of channel `c` move at `rate` bit/s each from now on."""
    settle(w, c)
    w.channels[c].rate = rate
    queue_end(w, c)


@inner
def set_top(w: World, c: int, f: int) -> None:
    """Note that flow `f`, -1 for none, is the one of channel `c` that ends first."""
    ch = w.channels[c]
    ch.top = f
    if f >= 0:
        ch.finish = w.motion[f].finish


@inner
def enter(w: World, f: int, bits: float) -> None:
    """Let flow `f`, which has `bits` to move, join its channel."""
    motion = w.motion[f]
    c = unsigned(motion.channel)
    ch = w.channels[c]
    settle(w, c)
    if ch.count == 0:
        ch.served = 0.0
        ch.rate = 0.0
    motion.finish = ch.served + bits
    motion.left = -1
    motion.right = -1
    set_top(w, c, meld(w.motion, ch.top, f))
    ch.count += 1
    if ch.rate > 0.0:
        queue_end(w, c)  # The flow may end before those already in the channel.


@inner
def leave(w: World, f: int) -> None:
    """Let flow `f`, which is the next to end, leave its channel."""
    motion = w.motion[f]
    c = unsigned(motion.channel)
    ch = w.channels[c]
    set_top(w, c, meld(w.motion, motion.left, motion.right))
    ch.count -= 1
    if ch.count == 0:
        ch.rate = 0.0
    w.flows[f].active = False
    record_change(w, ~f)


@inner
def record_change(w: World, change: int) -> None:
    """List a flow as started (f) or ended (~f) for the next allocation."""
    w.changed[w.now[0].changes] = change
    w.now[0].changes += 1


@inner
def bits_left(w: World, f: int) -> float:
    """Return what flow `f` has still to move."""
    ch = w.channels[w.motion[f].channel]
    return max(float(w.motion[f].finish - ch.served - ch.rate * (w.now[0].s - ch.since)), 0.0)


@inner
def has_traffic(w: World, j: int, p: int, f: int) -> bool:
    """Return whether flow `f` of phase `p` of job `j` has bits to move, now or later."""
    job = w.jobs[j]
    if w.flows[f].active:
        return True
    to_come = p > job.phase or (p == job.phase and job.in_flight == 0)
    return bool(w.flows[f].moves and (to_come or job.done + 1 < job.iterations))
