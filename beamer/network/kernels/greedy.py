"""Greedy order-preserving rates: each flow in order takes what the flows before it have left of its path.

`rearrange` lays down a new order and `allocate` gives every flow its rate. `sweep` keeps the rates up to date when flows start
or end: a change reaches only flows behind it in the order, link by link, until what is taken of a link is as before.
"""

from beamer.network.arrays import Ints
from beamer.network.kernels.channels import NEVER, listed, set_rate
from beamer.network.kernels.heap import push, remove, size
from beamer.network.kernels.jit import inner
from beamer.network.kernels.state import World

SPENT = 1e-12  # share of a link's capacity below which it counts as taken
NOWHERE = -1


@inner
def rearrange(w: World, order: Ints) -> None:
    """List the flows of every link in the order of their jobs, each in a channel of its own."""
    for link in w.links:
        link.size = 0
    place = 0.0
    for j in order:
        for p in range(w.jobs[j].phase_first, w.jobs[j].phase_end):
            for f in range(w.phases[p].flow_first, w.phases[p].flow_end):
                if listed(w, j, p, f):
                    w.motion[f].channel = f
                    w.motion[f].key = place
                    for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
                        link = w.links[w.hops[h].link]
                        entry = w.entries[link.first + link.size]
                        entry.item = f
                        entry.key = place
                        entry.watch = NOWHERE
                        link.size += 1
                    place += 1.0


@inner
def stop_ended(w: World) -> None:
    """Take the rates of flows that have ended."""
    for i in range(w.now[0].changes):
        f = w.changed[i]
        if f < 0 and not w.flows[~f].active:
            set_rate(w, ~f, 0.0)
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
            rate = NEVER
            for h in range(flow.hop_first, flow.hop_end):
                link = w.links[w.hops[h].link]
                if link.free <= SPENT * link.capacity:
                    rate = 0.0
                    break
                rate = min(rate, link.free / w.hops[h].use)
            if rate > 0.0:
                for h in range(flow.hop_first, flow.hop_end):
                    link = w.links[w.hops[h].link]
                    carrier = w.carriers[link.first + link.carriers]
                    carrier.flow = f
                    carrier.key = w.motion[f].key
                    carrier.amount = rate * w.hops[h].use
                    link.carriers += 1
                    link.free -= carrier.amount
                    if link.free <= SPENT * link.capacity:
                        link.full = carrier.key
            elif not flow.carries:
                continue
            flow.carries = rate > 0.0
            if rate != w.channels[f].rate:
                set_rate(w, f, rate)


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
    end = link.first + link.carriers
    at = link.first
    while at < end and w.carriers[at].key < key:
        at += 1
    there = at < end and w.carriers[at].flow == f
    change = amount
    if there:
        change -= w.carriers[at].amount
    if amount > 0.0:
        if not there:
            for i in range(end, at, -1):
                w.carriers[i] = w.carriers[i - 1]
            link.carriers += 1
            w.carriers[at].flow = f
            w.carriers[at].key = key
        w.carriers[at].amount = amount
    elif there:
        for i in range(at, end - 1):
            w.carriers[i] = w.carriers[i + 1]
        link.carriers -= 1
    free = link.capacity
    link.full = NEVER
    for i in range(link.first, link.first + link.carriers):
        free -= w.carriers[i].amount
        if free <= SPENT * link.capacity:
            link.full = w.carriers[i].key
            break
    return change


@inner
def _may_gain(w: World, number: int, at: int) -> bool:
    """Say whether the flow of entry `at` could take more now that link `number` has more free.

    If another link holds it back, that one will look at it when it has more free.
    """
    entry = w.entries[at]
    if entry.watch != NOWHERE and w.links[entry.watch].full < entry.key:
        return False
    flow = w.flows[entry.item]
    if not flow.active:
        return False
    if flow.carries:
        return True
    for h in range(flow.hop_first, flow.hop_end):
        other = w.hops[h].link
        if other != number and w.links[other].full < entry.key:
            entry.watch = other
            return False
    return True


@inner
def _look_on(w: World, number: int, key: float) -> None:
    """Queue the next flow of link `number` after `key` that the change there may concern."""
    link = w.links[number]
    if link.delta > 0.0:  # less is free: of the flows behind, only those that have a rate can lose it
        for at in range(link.first, link.first + link.carriers):
            if w.carriers[at].key > key:
                link.cursor = w.carriers[at].flow
                push(w.queue, number, w.carriers[at].key)
                return
    elif link.delta < 0.0:
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
def _reconsider(w: World, f: int) -> None:
    """Give `f` the rate that is its due; where that changes what a link has left, look on there."""
    flow = w.flows[f]
    key = w.motion[f].key
    rate = NEVER if flow.active else 0.0
    if flow.active:
        for h in range(flow.hop_first, flow.hop_end):
            rate = min(rate, _free(w, w.hops[h].link, key) / w.hops[h].use)
    flow.carries = rate > 0.0
    if rate != w.channels[f].rate:
        set_rate(w, f, rate)
    for h in range(flow.hop_first, flow.hop_end):
        number = w.hops[h].link
        change = _carry(w, f, number, rate * w.hops[h].use)
        if change != 0.0:
            link = w.links[number]
            link.delta += change
            if abs(link.delta) <= SPENT * link.capacity:
                link.delta = 0.0
            _look_on(w, number, key)


@inner
def sweep(w: World) -> None:
    """Bring the rates up to date with the flows that have started and ended."""
    many = len(w.links)
    for i in range(w.now[0].changes):
        f = w.changed[i] if w.changed[i] >= 0 else ~w.changed[i]
        push(w.queue, many + f, w.motion[f].key)
    while size(w.queue) > 0:
        item = w.queue[0].item
        f = item - many if item >= many else w.links[item].cursor
        remove(w.queue, item)
        _reconsider(w, f)
        if item < many and w.queue[item].place < 0 and w.links[item].delta != 0.0:
            _look_on(w, item, w.motion[f].key)
