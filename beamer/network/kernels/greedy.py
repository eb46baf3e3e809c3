"""Greedy order-preserving rates (Agarwal et al. 2018, SIGCOMM): each flow in order takes what is left of its path.

After a new order: `rearrange` lists the flows of every link in the order, in O(F h) for F flows of h hops, and `allocate` gives
every flow its rate in one pass over the active ones.

After flows have started or ended: `sweep` updates the rates. A change reaches only flows later in the order. Phases:

1. Queue the changed flows by their key, which is their position in the order.
2. Recompute the first flow in the queue: the least that earlier flows leave free on a link of its path.
3. For each of its links where that changed the capacity taken, add to the link's `delta` and queue the next flow there that
   can be concerned: with less free, the next that has a rate; with more free, the next that no other full link blocks.
4. Return to 2 until the queue is empty. A link leaves the queue when its `delta` is back at 0 or no flow is left.

Invariants: flows before the queue's first key have their final rates; `carriers` of a link are the flows with a rate there, in
order; `full` is the key of the carrier that exhausts the link, NEVER if none does. With c carriers on a link, a recomputation
costs O(h (c + log F)); to pass over a flow that another full link blocks costs O(1).
"""

from beamer.network.arrays import Ints
from beamer.network.kernels.channels import NEVER, has_traffic, set_rate
from beamer.network.kernels.heap import push, remove, size
from beamer.network.kernels.jit import inner, unsigned
from beamer.network.kernels.state import World

EXHAUSTED = 1e-12  # share of a link's capacity below which nothing is free
NO_LINK = -1  # No link is known to block such an entry.


@inner
def rearrange(w: World, order: Ints) -> None:
    """List the flows of every link in the order of their jobs, each in a channel of its own."""
    for link in w.links:
        link.size = 0
    position = 0.0
    for j in order:
        for p in range(w.jobs[j].phase_first, w.jobs[j].phase_end):
            for f in range(w.phases[p].flow_first, w.phases[p].flow_end):
                if has_traffic(w, j, p, f):
                    w.motion[f].channel = f
                    w.motion[f].key = position
                    for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
                        link = w.links[w.hops[h].link]
                        entry = w.entries[link.first + link.size]
                        entry.item = f
                        entry.key = position
                        entry.bottleneck = NO_LINK
                        link.size += 1
                    position += 1.0


@inner
def stop_ended(w: World) -> None:
    """Set the rates of flows that have ended to 0."""
    for i in range(w.now[0].changes):
        f = w.changed[i]
        if f < 0 and not w.flows[~f].active:
            set_rate(w, unsigned(~f), 0.0)
            w.flows[~f].carries = False


@inner
def allocate(w: World, order: Ints) -> None:
    """Give all flows their rates."""
    stop_ended(w)
    for link in w.links:
        link.free = link.capacity
        link.carriers = 0
        link.full = NEVER
    for j in order:
        if w.jobs[j].in_flight == 0:
            continue
        phase = w.phases[w.jobs[j].phase]
        for f in range(phase.flow_first, phase.flow_end):
            flow = w.flows[f]
            if not flow.active:
                continue
            # The rate is the least that is free on the flow's path.
            rate = NEVER
            for h in range(flow.hop_first, flow.hop_end):
                link = w.links[w.hops[h].link]
                if link.free <= EXHAUSTED * link.capacity:
                    rate = 0.0
                    break
                rate = min(rate, link.free / w.hops[h].use)
            # The flow takes it on each link.
            if rate > 0.0:
                for h in range(flow.hop_first, flow.hop_end):
                    link = w.links[w.hops[h].link]
                    carrier = w.carriers[link.first + link.carriers]
                    carrier.flow = f
                    carrier.key = w.motion[f].key
                    carrier.amount = rate * w.hops[h].use
                    link.carriers += 1
                    link.free -= carrier.amount
                    if link.free <= EXHAUSTED * link.capacity:
                        link.full = carrier.key
            elif not flow.carries:
                continue
            flow.carries = rate > 0.0
            if rate != w.channels[f].rate:
                set_rate(w, unsigned(f), rate)


@inner
def _free(w: World, number: int, key: float) -> float:
    """Return what flows before `key` leave of link `number`, bit/s."""
    link = w.links[number]
    if link.full < key:
        return 0.0
    free = link.capacity
    for at in range(link.first, link.first + link.carriers):
        if w.carriers[at].key >= key:
            break
        free -= w.carriers[at].amount
    return float(free)


@inner
def _carry(w: World, f: int, number: int, amount: float) -> float:
    """Let `f` take `amount` of link `number`; return the change."""
    link = w.links[number]
    key = w.motion[f].key
    # Find the flow among the carriers, or where it belongs.
    end = link.first + link.carriers
    at = link.first
    while at < end and w.carriers[at].key < key:
        at += 1
    present = at < end and w.carriers[at].flow == f
    # Insert, change or remove it.
    change = amount
    if present:
        change -= w.carriers[at].amount
    if amount > 0.0:
        if not present:
            for i in range(end, at, -1):
                w.carriers[i] = w.carriers[i - 1]
            link.carriers += 1
            w.carriers[at].flow = f
            w.carriers[at].key = key
        w.carriers[at].amount = amount
    elif present:
        for i in range(at, end - 1):
            w.carriers[i] = w.carriers[i + 1]
        link.carriers -= 1
    # Find the carrier that exhausts the link.
    free = link.capacity
    link.full = NEVER
    for i in range(link.first, link.first + link.carriers):
        free -= w.carriers[i].amount
        if free <= EXHAUSTED * link.capacity:
            link.full = w.carriers[i].key
            break
    return change


@inner
def _may_gain(w: World, number: int, at: int) -> bool:
    """Return whether the flow of entry `at` could take more now that link `number` has more free.

    A flow that another full link blocks cannot; it will be queued from there when that link has more free.
    """
    entry = w.entries[at]
    if entry.bottleneck != NO_LINK and w.links[entry.bottleneck].full < entry.key:
        return False
    flow = w.flows[entry.item]
    if not flow.active:
        return False
    if flow.carries:
        return True
    for h in range(flow.hop_first, flow.hop_end):
        other = w.hops[h].link
        if other != number and w.links[other].full < entry.key:
            entry.bottleneck = other
            return False
    return True


@inner
def _queue_next(w: World, number: int, key: float) -> None:
    """Queue the next flow of link `number` after `key` that the change there can concern."""
    link = w.links[number]
    if link.delta > 0.0:  # Less is free: of the flows behind, only those that have a rate can lose it.
        for at in range(link.first, link.first + link.carriers):
            if w.carriers[at].key > key:
                link.cursor = w.carriers[at].flow
                push(w.queue, number, w.carriers[at].key)
                return
    elif link.delta < 0.0:
        # More is free: a binary search finds the first entry after `key`, and a scan the first that may gain.
        low, high = link.first, link.first + link.size
        while low < high:
            middle = (low + high) >> 1
            if w.entries[middle].key <= key:
                low = middle + 1
            else:
                high = middle
        for at in range(low, link.first + link.size):
            if _may_gain(w, number, at):
                link.cursor = w.entries[at].item
                push(w.queue, number, w.entries[at].key)
                return
    link.delta = 0.0
    remove(w.queue, number)


@inner
def _recompute(w: World, f: int) -> None:
    """Give flow `f` its rate; queue the next flow of every link where that changes the capacity taken."""
    flow = w.flows[f]
    key = w.motion[f].key
    rate = NEVER if flow.active else 0.0
    if flow.active:
        for h in range(flow.hop_first, flow.hop_end):
            rate = min(rate, _free(w, w.hops[h].link, key) / w.hops[h].use)
    flow.carries = rate > 0.0
    if rate != w.channels[f].rate:
        set_rate(w, unsigned(f), rate)
    for h in range(flow.hop_first, flow.hop_end):
        number = w.hops[h].link
        change = _carry(w, f, number, rate * w.hops[h].use)
        if change != 0.0:
            link = w.links[number]
            link.delta += change
            if abs(link.delta) <= EXHAUSTED * link.capacity:
                link.delta = 0.0
            _queue_next(w, number, key)


@inner
def sweep(w: World) -> None:
    """Bring the rates up to date with the flows that have started and ended, in the phases that the module describes."""
    links = len(w.links)  # In the queue, numbers below this are links, the others flows.
    for i in range(w.now[0].changes):
        f = w.changed[i] if w.changed[i] >= 0 else ~w.changed[i]
        push(w.queue, unsigned(links + f), w.motion[f].key)
    while size(w.queue) > 0:
        item = w.queue[0].item
        f = item - links if item >= links else w.links[item].cursor
        remove(w.queue, item)
        _recompute(w, f)
        if item < links and w.queue[item].position < 0 and w.links[item].delta != 0.0:
            _queue_next(w, item, w.motion[f].key)
