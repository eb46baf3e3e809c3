"""The event loop of the fluid model: between two events all flows move at constant rates.

`run` repeats these phases:

1. Allocate: bring the rates up to date with the flows that have started and ended, by the allocator's kernel.
2. Advance the clock to the next event, the earliest of flow ends and timers.
3. End the flows that are due. A job whose coflow is complete by that releases its next phase, or ends its synchronisation.
4. Expire the timers that are due: a job's computing ends, or its synchronisation starts.
5. Return if an event occurred that the caller asks for.

Invariants: the clock never goes back; a flow is active from its release until it has moved all its bits; a job has `in_flight`
active flows, all of its current phase. Events that are `SIMULTANEOUS` are handled before rates are computed anew. Apart from
the allocator, an event costs O(log F + log J) for F flows and J jobs; where ends are listed (`lists_ends`), O(channels /
BLOCK), and O(BLOCK) for each block of channels where any has changed.
"""

import numpy as np

from beamer.network.arrays import Floats, Ints
from beamer.network.kernels import greedy, grouping, madd, refill, sharing, split
from beamer.network.kernels.channels import (
    BLOCK,
    COMPLETION_TOLERANCE,
    NEVER,
    bits_left,
    enter,
    leave,
    next_end_s,
    queue_end,
    record_change,
    set_top,
    settle,
)
from beamer.network.kernels.heap import meld, push, remove, size
from beamer.network.kernels.jit import inner, kernel, unsigned
from beamer.network.kernels.state import World

GREEDY, MADD, SHARING, SPLIT = 0, 1, 2, 3
RELEASED, COMPLETE, FINISHED = 0, 1, 2

SIMULTANEOUS = 1e-12  # share of the elapsed time within which two events count as one


@inner
def _iterate(w: World, j: int, at: float) -> None:
    """Start the next iteration of job `j` at `at`."""
    job = w.jobs[j]
    job.phase = job.phase_first
    job.awaited = 2
    job.began = at
    push(w.timers, unsigned(2 * j), at + job.compute)
    push(w.timers, unsigned(2 * j + 1), at + (1.0 - job.overlap) * job.compute)


@kernel
def start(w: World, j: int, after: float) -> None:
    """Let job `j` start its first iteration `after` seconds from now."""
    job = w.jobs[j]
    job.running = True
    idle = job.compute == 0.0
    for p in range(job.phase_first, job.phase_end):
        for f in range(w.phases[p].flow_first, w.phases[p].flow_end):
            idle = idle and not w.flows[f].moves
    if idle:
        job.done = job.iterations - 1  # Iterations of no duration are skipped, as each would have to be run after the other.
    _iterate(w, unsigned(j), w.now[0].s + after)


@kernel
def _without(w: World, root: int, f: int) -> int:
    """Return the skew heap at `root` without flow `f`, rebuilt in O(n log n): kills are rare."""
    others = -1
    stack = [root]
    while len(stack) > 0:
        node = stack.pop()
        if node >= 0:
            motion = w.motion[node]
            stack.append(motion.left)
            stack.append(motion.right)
            if node != f:
                motion.left = -1
                motion.right = -1
                others = meld(w.motion, others, node)
    return others


@kernel
def kill(w: World, j: int) -> None:
    """Stop job `j` and its flows at once."""
    job = w.jobs[j]
    job.running = False
    remove(w.timers, unsigned(2 * j))
    remove(w.timers, unsigned(2 * j + 1))
    if job.in_flight == 0:
        return
    phase = w.phases[job.phase]
    for f in range(phase.flow_first, phase.flow_end):
        flow = w.flows[f]
        if flow.moves:  # Links are credited now, as this phase will never be complete.
            moved = w.motion[f].size - (bits_left(w, f) if flow.active else 0.0)
            for h in range(flow.hop_first, flow.hop_end):
                w.links[w.hops[h].link].moved += w.hops[h].use * moved
        if flow.active:
            c = unsigned(w.motion[f].channel)
            settle(w, c)
            set_top(w, c, _without(w, w.channels[c].top, f))
            w.channels[c].count -= 1
            if w.channels[c].count == 0:
                w.channels[c].rate = 0.0
            flow.active = False
            record_change(w, ~f)
            queue_end(w, c)
    job.in_flight = 0
    w.now[0].coflows = True


@inner
def _release(w: World, j: int) -> bool:
    """Release the next phase of job `j` that has something to move; return False if none has."""
    job = w.jobs[j]
    while job.phase < job.phase_end:
        phase = w.phases[job.phase]
        for f in range(phase.flow_first, phase.flow_end):
            if w.flows[f].moves:
                enter(w, f, w.motion[f].size)
                w.flows[f].active = True
                job.in_flight += 1
                record_change(w, f)
        if job.in_flight > 0:
            job.released = w.now[0].s
            w.now[0].coflows = True
            return True
        job.phase += 1
    return False


@inner
def _finish_part(w: World, j: int) -> bool:
    """End one of the two parts of an iteration, computing and synchronisation; return whether the job has finished."""
    job = w.jobs[j]
    job.awaited -= 1
    if job.awaited > 0:
        return False
    job.done += 1
    if job.done < job.iterations:
        _iterate(w, j, w.now[0].s)
        return False
    job.running = False
    return True


@inner
def _end_next(w: World, c: int, complete: Ints) -> None:
    """End the next flow of channel `c` and those that end with it; list the jobs whose coflow is complete by that."""
    ch = w.channels[c]
    ch.served = ch.finish
    ch.since = w.now[0].s
    while ch.top >= 0 and ch.finish <= ch.served + COMPLETION_TOLERANCE * w.motion[ch.top].size:
        job = w.jobs[w.motion[ch.top].job]
        job.in_flight -= 1
        if job.in_flight == 0:
            complete[w.now[0].complete] = w.motion[ch.top].job
            w.now[0].complete += 1
        leave(w, ch.top)
    queue_end(w, c)


@inner
def _end_flows(w: World, until: float, complete: Ints) -> None:
    """End the flows that are due; list the jobs whose coflow is complete by that, `NOW.complete` of them."""
    w.now[0].complete = 0
    if w.now[0].lists_ends:
        for block in range((w.now[0].channels + BLOCK - 1) // BLOCK):
            if w.soonest[block] <= until:
                for c in range(block * BLOCK, min((block + 1) * BLOCK, w.now[0].channels)):
                    while w.due[c] <= until:
                        _end_next(w, unsigned(c), complete)
    while size(w.ends) > 0 and w.ends[w.ends[0].item].key <= until:
        _end_next(w, w.ends[0].item, complete)


@kernel
def _reallocate(w: World, mode: int, order: Ints, minimum_share: float) -> None:
    """Bring the rates up to date with the flows and orders that have changed."""
    now = w.now[0]
    if mode == GREEDY:
        if now.reordered:
            greedy.rearrange(w, order)
            greedy.allocate(w, order)
        else:
            greedy.sweep(w)
    elif mode == MADD:
        if now.reordered:
            greedy.rearrange(w, order)
        if now.reordered or now.coflows:
            madd.allocate(w, order)
    elif mode == SHARING:
        if now.reordered:
            grouping.rearrange(w, order)
            sharing.allocate(w, minimum_share)
        elif now.changes > 0:
            refill.update(w, minimum_share)
    elif now.reordered:
        grouping.rearrange(w, order)
        split.allocate(w)
    else:
        split.update(w)
    now.changes = 0
    now.reordered = False
    now.coflows = False


@kernel
def next_s(w: World) -> float:
    """Return when the next timer or flow ends at the rates in force; NEVER if none will."""
    at = next_end_s(w)
    if size(w.timers) > 0:
        at = min(at, w.timers[w.timers[0].item].key)
    return float(at)


@kernel
def run(
    w: World, mode: int, order: Ints, minimum_share: float, until: float, by_coflow: bool, kinds: Ints, jobs_of: Ints
) -> int:
    """Run to `until`, or to the instant at which a job finishes, or with `by_coflow` a coflow starts or ends.

    order: the running jobs, most urgent first. kinds, jobs_of: filled with the events of that instant (RELEASED, COMPLETE,
    FINISHED) and their jobs. Returns the number of events; the clock is at their time.
    """
    complete = np.empty(len(w.jobs), np.int64)
    entries = 0
    while True:
        # 1. Allocate.
        _reallocate(w, mode, order, minimum_share)
        # 2. Advance, at most to `until`.
        at = next_s(w)
        if at >= NEVER and until >= NEVER:
            return 0
        if at > until + SIMULTANEOUS * until:  # The tolerance keeps what ends at `until` from being left to the next call.
            w.now[0].s = max(until, w.now[0].s)
            return 0
        w.now[0].s = max(at, w.now[0].s)
        due = at + SIMULTANEOUS * at
        # 3. End flows; release the next phases of their jobs.
        _end_flows(w, due, complete)
        for i in range(w.now[0].complete):
            j = unsigned(complete[i])
            w.jobs[j].phase += 1
            w.now[0].coflows = True
            if by_coflow:
                kinds[entries] = COMPLETE
                jobs_of[entries] = j
                entries += 1
            if _release(w, j):
                if by_coflow:
                    kinds[entries] = RELEASED
                    jobs_of[entries] = j
                    entries += 1
            elif _finish_part(w, j):
                kinds[entries] = FINISHED
                jobs_of[entries] = j
                entries += 1
        # 4. Expire timers: odd ones start a synchronisation, even ones end the computing.
        while size(w.timers) > 0 and w.timers[w.timers[0].item].key <= due and entries < len(kinds):
            timer = w.timers[0].item
            j = unsigned(timer >> 1)
            remove(w.timers, timer)
            if timer & 1 and _release(w, j):
                if by_coflow:
                    kinds[entries] = RELEASED
                    jobs_of[entries] = j
                    entries += 1
            elif _finish_part(w, j):
                kinds[entries] = FINISHED
                jobs_of[entries] = j
                entries += 1
        # 5. Return events.
        if entries > 0:
            return entries


@kernel
def left(w: World, f: int) -> float:
    """Return what flow `f`, which is active, has still to move."""
    return bits_left(w, f)


@kernel
def observe(w: World, chosen: Ints, left: Floats, sent: Floats, longest: Floats, seconds: Floats, later: Floats) -> None:
    """Describe the coflows in flight of the `chosen` jobs.

    left, sent, longest: bits, by position in `chosen`; longest: of what its flows have left. seconds: by (job, link) pair, jobs
    as chosen, what is left needs of the link alone; later: what the phases to come of the same synchronisation need.
    """
    entry = 0
    for i in range(len(chosen)):
        job = w.jobs[chosen[i]]
        width = job.load_end - job.load_first
        seconds[entry : entry + width] = 0.0
        later[entry : entry + width] = 0.0
        left[i] = 0.0
        sent[i] = 0.0
        longest[i] = 0.0
        if job.in_flight > 0:
            # The phase in flight counts with what its active flows have left, here and by link.
            phase = w.phases[job.phase]
            for f in range(phase.flow_first, phase.flow_end):
                flow = w.flows[f]
                sent[i] += w.motion[f].size if flow.moves else 0.0
                if flow.active:
                    bits = bits_left(w, f)
                    left[i] += bits
                    longest[i] = max(longest[i], bits)
                    for h in range(flow.hop_first, flow.hop_end):
                        if w.hops[h].load >= 0:
                            pair = entry + w.hops[h].load - job.load_first
                            seconds[pair] += bits * w.hops[h].use / w.links[w.hops[h].link].capacity
            sent[i] -= left[i]
            # The phases to come count in full.
            for p in range(job.phase + 1, job.phase_end):
                for f in range(w.phases[p].flow_first, w.phases[p].flow_end):
                    for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
                        if w.hops[h].load >= 0:
                            pair = entry + w.hops[h].load - job.load_first
                            later[pair] += w.motion[f].size * w.hops[h].use / w.links[w.hops[h].link].capacity
        entry += width
