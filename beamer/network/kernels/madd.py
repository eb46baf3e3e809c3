"""Minimum allocation for desired duration (Chowdhury, Zhong, Stoica 2014, SIGCOMM), then backfilling.

Phases of `allocate`, each over the coflows in order:

1. Desired duration: a coflow's bottleneck time on what is free; its flows get the rates at which all end together then. A
   coflow that needs a link with nothing free is skipped.
2. Split: each skipped coflow splits what is free evenly among its flows, a flow getting the least of its links' shares.
3. Fill up: each flow of each coflow takes all that is still free on its path.

Invariants: no link is loaded above its capacity; after phase 3 every active flow has an exhausted link on its path. That
bandwidth is backfilled is published, its division in phases 2 and 3 is our reconstruction. O(F h) for F active flows of h hops,
and O(F) to order their ends.
"""

from beamer.network.arrays import Ints
from beamer.network.kernels.channels import COMPLETION_TOLERANCE, NEVER, append_end, bits_left, settle
from beamer.network.kernels.greedy import stop_ended
from beamer.network.kernels.heap import empty, heapify
from beamer.network.kernels.jit import inner, unsigned
from beamer.network.kernels.state import World

EXHAUSTED = 1e-9  # share of a link's capacity below which nothing is free and a coflow that needs it is skipped


@inner
def _bits(w: World, f: int) -> float:
    """Return what flow `f` has still to move, never nothing: rounding must not leave a flow without a rate."""
    return max(bits_left(w, f), COMPLETION_TOLERANCE * float(w.motion[f].size))


@inner
def _duration(w: World, p: int) -> float:
    """Return the seconds that the rest of phase `p` takes on what is free of its links; NEVER if nothing is on one of them."""
    phase = w.phases[p]
    duration = 0.0
    # Add up the bits on each link, divide by what is free, and clear the sums.
    for f in range(phase.flow_first, phase.flow_end):
        if w.flows[f].active:
            settle(w, unsigned(f))
            bits = _bits(w, f)
            for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
                w.links[w.hops[h].link].weight += bits * w.hops[h].use
    for f in range(phase.flow_first, phase.flow_end):
        if w.flows[f].active:
            for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
                link = w.links[w.hops[h].link]
                duration = max(duration, link.weight / link.free if link.free > EXHAUSTED * link.capacity else NEVER)
    for f in range(phase.flow_first, phase.flow_end):
        for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
            w.links[w.hops[h].link].weight = 0.0
    return duration


@inner
def _may_move(w: World, f: int) -> bool:
    """Return whether flow `f` moves and every link of its path has something free."""
    if not w.flows[f].active:
        return False
    for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
        link = w.links[w.hops[h].link]
        if link.free <= EXHAUSTED * link.capacity:
            return False
    return True


@inner
def _take(w: World, f: int, rate: float) -> None:
    """Raise the rate of flow `f` by `rate` bit/s."""
    w.channels[f].rate += rate
    for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
        w.links[w.hops[h].link].free -= rate * w.hops[h].use


@inner
def _split(w: World, p: int) -> None:
    """Split what is free evenly among the flows of phase `p`, if it was skipped."""
    phase = w.phases[p]
    for f in range(phase.flow_first, phase.flow_end):
        if w.flows[f].active and w.channels[f].rate > 0.0:
            return
    # Count the flows on each link.
    for f in range(phase.flow_first, phase.flow_end):
        if _may_move(w, f):
            for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
                w.links[w.hops[h].link].weight += w.hops[h].use
    # Work out all rates before any is taken.
    for f in range(phase.flow_first, phase.flow_end):
        rate = 0.0
        if _may_move(w, f):
            rate = NEVER
            for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
                link = w.links[w.hops[h].link]
                rate = min(rate, link.free / link.weight)
        w.channels[f].rate = rate
    # Take them, and clear the counts.
    for f in range(phase.flow_first, phase.flow_end):
        rate = w.channels[f].rate
        w.channels[f].rate = 0.0
        for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
            w.links[w.hops[h].link].weight = 0.0
        if w.flows[f].active:
            _take(w, f, rate)


@inner
def _fill_up(w: World, p: int) -> None:
    """Let each flow of phase `p` take all that links still have free, one after another."""
    phase = w.phases[p]
    for f in range(phase.flow_first, phase.flow_end):
        if w.flows[f].active:
            if _may_move(w, f):
                rate = NEVER
                for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
                    rate = min(rate, w.links[w.hops[h].link].free / w.hops[h].use)
                _take(w, f, rate)
            append_end(w, unsigned(f))


@inner
def allocate(w: World, order: Ints) -> None:
    """Give all flows their rates; each is in a channel of its own, as `greedy.rearrange` puts it."""
    stop_ended(w)
    for link in w.links:
        link.free = link.capacity
        link.weight = 0.0
    # 1. Desired duration.
    for j in order:
        if w.jobs[j].in_flight == 0:
            continue
        duration = _duration(w, w.jobs[j].phase)
        phase = w.phases[w.jobs[j].phase]
        for f in range(phase.flow_first, phase.flow_end):
            if w.flows[f].active:
                rate = _bits(w, f) / duration if 0.0 < duration < NEVER else 0.0
                w.channels[f].rate = rate
                for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
                    w.links[w.hops[h].link].free -= rate * w.hops[h].use
    # 2. Split.
    for j in order:
        if w.jobs[j].in_flight > 0:
            _split(w, w.jobs[j].phase)
    # 3. Fill up; ends are appended as rates are final, and ordered once.
    empty(w.ends)
    for j in order:
        if w.jobs[j].in_flight > 0:
            _fill_up(w, w.jobs[j].phase)
    heapify(w.ends)
