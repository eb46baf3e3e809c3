"""Channels: time passes for them, they get rates, flows enter and leave them."""

from beamer.network.kernels.heap import append, meld, push, remove, size
from beamer.network.kernels.jit import inner
from beamer.network.kernels.state import World

NEVER = 1e300  # seconds
DONE = 1e-9  # share of a flow's size that rounding may leave over


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
    return float(w.now[0].s + max(w.motion[ch.top].mark - ch.served, 0.0) / ch.rate)


@inner
def queue_end(w: World, c: int) -> None:
    """Put channel `c`, which is settled, where its end belongs."""
    at = end_s(w, c)
    if w.now[0].lists_ends:
        w.due[c] = at
    elif at < NEVER:
        push(w.ends, c, at)
    else:
        remove(w.ends, c)


@inner
def next_end_s(w: World) -> float:
    """Return when the next flow ends; NEVER if none will."""
    at = NEVER
    if w.now[0].lists_ends:
        for c in range(w.now[0].channels):
            if w.due[c] < at:
                at = w.due[c]
    elif size(w.ends) > 0:
        at = w.ends[w.ends[0].item].key
    return at


@inner
def append_end(w: World, c: int) -> None:
    """Put channel `c`, which is settled, behind all others that end; `heapify` has to follow."""
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
def enter(w: World, f: int, bits: float) -> None:
    """Let flow `f`, which has `bits` to move, join its channel."""
    motion = w.motion[f]
    ch = w.channels[motion.channel]
    settle(w, motion.channel)
    if ch.count == 0:
        ch.served = 0.0
        ch.rate = 0.0
    motion.mark = ch.served + bits
    motion.left = -1
    motion.right = -1
    ch.top = meld(w.motion, ch.top, f)
    ch.count += 1
    if ch.rate > 0.0:
        queue_end(w, motion.channel)  # it may end before those that were there


@inner
def leave(w: World, f: int) -> None:
    """Let flow `f`, which is the next to end, leave its channel."""
    motion = w.motion[f]
    ch = w.channels[motion.channel]
    ch.top = meld(w.motion, motion.left, motion.right)
    ch.count -= 1
    if ch.count == 0:
        ch.rate = 0.0
    w.flows[f].active = False
    note(w, ~f)


@inner
def note(w: World, change: int) -> None:
    """Remember that a flow started (f) or ended (~f)."""
    w.changed[w.now[0].changes] = change
    w.now[0].changes += 1


@inner
def bits_left(w: World, f: int) -> float:
    """Return what flow `f` has still to move."""
    ch = w.channels[w.motion[f].channel]
    return max(float(w.motion[f].mark - ch.served - ch.rate * (w.now[0].s - ch.since)), 0.0)


@inner
def listed(w: World, j: int, p: int, f: int) -> bool:
    """Say whether flow `f` of phase `p` of job `j` moves or will move."""
    job = w.jobs[j]
    if w.flows[f].active:
        return True
    to_come = p > job.phase or (p == job.phase and job.in_flight == 0)
    return bool(w.flows[f].moves and (to_come or job.done + 1 < job.iterations))
