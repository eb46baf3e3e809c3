"""Minimum allocation for desired duration: each coflow in order gets the rates at which all its flows end together.

What that leaves free is split evenly among the flows of each coflow that was passed over, then given to the flows one by one
(backfilling), all in the same order.
"""

from beamer.network.arrays import Ints
from beamer.network.kernels.channels import DONE, NEVER, append_end, bits_left, settle
from beamer.network.kernels.greedy import stop_ended
from beamer.network.kernels.heap import empty, heapify
from beamer.network.kernels.jit import inner
from beamer.network.kernels.state import World

SPENT = 1e-9  # share of a link's capacity below which a coflow that needs it is passed over


@inner
def _bits(w: World, f: int) -> float:
    """Return what flow `f` has still to move, never nothing: rounding must not leave a flow without a rate."""
    return max(bits_left(w, f), DONE * float(w.motion[f].size))


@inner
def _duration(w: World, p: int) -> float:
    """Return the seconds that what is left of phase `p` takes on what links have free; NEVER if one has nothing."""
    phase = w.phases[p]
    duration = 0.0
    for f in range(phase.flow_first, phase.flow_end):
        if w.flows[f].active:
            settle(w, f)
            bits = _bits(w, f)
            for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
                w.links[w.hops[h].link].weight += bits * w.hops[h].use
    for f in range(phase.flow_first, phase.flow_end):
        if w.flows[f].active:
            for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
                link = w.links[w.hops[h].link]
                duration = max(duration, link.weight / link.free if link.free > SPENT * link.capacity else NEVER)
    for f in range(phase.flow_first, phase.flow_end):
        for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
            w.links[w.hops[h].link].weight = 0.0
    return duration


@inner
def _may_move(w: World, f: int) -> bool:
    """Say whether flow `f` moves and every link of its path has something free."""
    if not w.flows[f].active:
        return False
    for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
        link = w.links[w.hops[h].link]
        if link.free <= SPENT * link.capacity:
            return False
    return True


@inner
def _take(w: World, f: int, rate: float) -> None:
    """Let flow `f` move at `rate` bit/s more."""
    w.channels[f].rate += rate
    for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
        w.links[w.hops[h].link].free -= rate * w.hops[h].use


@inner
def _split(w: World, p: int) -> None:
    """Split what links have free evenly among the flows of phase `p`, if it was passed over."""
    phase = w.phases[p]
    for f in range(phase.flow_first, phase.flow_end):
        if w.flows[f].active and w.channels[f].rate > 0.0:
            return
    for f in range(phase.flow_first, phase.flow_end):
        if _may_move(w, f):
            for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
                w.links[w.hops[h].link].weight += w.hops[h].use
    for f in range(phase.flow_first, phase.flow_end):
        rate = 0.0
        if _may_move(w, f):
            rate = NEVER
            for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
                link = w.links[w.hops[h].link]
                rate = min(rate, link.free / link.weight)
        w.channels[f].rate = rate
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
            append_end(w, f)


@inner
def allocate(w: World, order: Ints) -> None:
    """Give all flows their rates; each is in a channel of its own, as `greedy.rearrange` puts it."""
    stop_ended(w)
    for link in w.links:
        link.free = link.capacity
        link.weight = 0.0
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
    for j in order:
        if w.jobs[j].in_flight > 0:
            _split(w, w.jobs[j].phase)
    empty(w.ends)
    for j in order:
        if w.jobs[j].in_flight > 0:
            _fill_up(w, w.jobs[j].phase)
    heapify(w.ends)
