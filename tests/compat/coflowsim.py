"""CoflowSim's simulation, written anew from its definitions, to compare our policies with. [https://github.com/coflow/coflowsim]

Time passes in steps of 8 ms, in which a port carries 1 MiB (1.048576 Gbit/s). What differs from our simulator:

- Sizes: a reducer's MB are rounded up to whole MiB and split evenly over its mappers; a flow has at least 1 MiB.
- Arrivals: coflows that arrive in (k E, (k + 1) E] all start at k E, those up to E at 0; completion times count from there.
- Flows end with a step. Except under `fair`, rates change only when a coflow arrives or ends: until then the share of a flow
  that has ended lies idle.
- Order: a coflow goes before the first one with a strictly larger key, keys as they were at its arrival (`lcf`: what remains).
- MADD takes the rates that those before left free; a coflow that needs a port without is skipped. All skipped ones then share:
  a flow gets the smaller of free / flows at its two ports, flows between free ports counted. At last every coflow, by
  deadline, takes flow by flow what is left. A deadline is the start and 1 to 2 times the bottleneck time, drawn from seed 17.
- `fair`: a flow gets the smaller of 1 / flows at its two ports, and what that leaves is not given out.
- `aalo` (its name there is DARK): FIFO inside 10 queues by bytes sent, strict between them; a coflow's flows split what is
  free as skipped ones do. A coflow that has sent enough goes to the end of the next queue, and on from there at once.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from beamer.network.arrays import Floats, Ints
from beamer.sim.traces import Trace
from tests.compat.equal_split import fair
from tests.compat.rates import advance, backfill, madd, share, steps_to_end

STEP_MS = 8
EPOCH_MS = 10_240
MIB = 2**20

DEADLINE_MS = STEP_MS * 1000 / 1024  # per MiB: a second has 1 024 ms everywhere else
SEED = 17

QUEUES = 10
FIRST_LIMIT = 10.0  # MiB; every next queue's is ten times larger


@dataclass(frozen=True, eq=False)
class Work:
    """The coflows of a trace as CoflowSim takes them.

    start: step, by coflow. first: first flow of every coflow, and the number of flows. up, down: ports by flow, downlinks
    numbered after the uplinks. left: MiB by flow. bottleneck: MiB at the fullest port, by coflow. ports: uplinks.
    """

    start: Ints
    first: Ints
    up: Ints
    down: Ints
    left: Floats
    bottleneck: Floats
    ports: int

    def flows(self, coflow: int) -> slice:
        return slice(self.first[coflow], self.first[coflow + 1])


class Listed(Protocol):
    """The coflows that have started and not ended, in some order."""

    def add(self, coflow: int) -> None: ...
    def remove(self, coflow: int) -> None: ...
    def arrange(self) -> list[int]: ...
    def allocate(self, now: int, free: Floats, rates: Floats) -> None: ...


class Sorted:
    """Coflows by a key, with MADD. lasting: compare with the others' keys at their arrival, not with those of now."""

    def __init__(self, work: Work, key: Callable[[Work, int], float], lasting: bool) -> None:
        self._work, self._key, self._lasting = work, key, lasting
        self._listed: list[int] = []
        self._keys: list[float] = []
        factor = 1 + np.fromiter(java_random(SEED), np.float64, count=work.start.size)
        self._deadline_ms = STEP_MS * work.start + factor * work.bottleneck * DEADLINE_MS

    def add(self, coflow: int) -> None:
        if not self._lasting:
            self._keys = [self._key(self._work, k) for k in self._listed]
        own = self._key(self._work, coflow)
        at = next((i for i, key in enumerate(self._keys) if key > own), len(self._keys))
        self._listed.insert(at, coflow)
        self._keys.insert(at, own)

    def remove(self, coflow: int) -> None:
        at = self._listed.index(coflow)
        del self._listed[at], self._keys[at]

    def arrange(self) -> list[int]:
        return self._listed.copy()

    def allocate(self, now: int, free: Floats, rates: Floats) -> None:
        w, listed = self._work, np.array(self._listed)
        skipped = madd(listed, w.first, w.up, w.down, w.left, free, rates)
        share(listed[skipped], w.first, w.up, w.down, w.left, free, rates)
        # Time to the deadline in whole milliseconds: of those that have the same, the first in order comes first.
        soonest = sorted(self._listed, key=lambda k: int(self._deadline_ms[k] - STEP_MS * now))
        backfill(np.array(soonest), w.first, w.up, w.down, w.left, free, rates)


class Queues:
    """Coflows by arrival inside queues by what they have sent."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._queues: list[list[int]] = [[] for _ in range(QUEUES)]
        self._total = np.add.reduceat(work.left, work.first[:-1])

    def add(self, coflow: int) -> None:
        self._queues[0].append(coflow)

    def remove(self, coflow: int) -> None:
        next(queue for queue in self._queues if coflow in queue).remove(coflow)

    def arrange(self) -> list[int]:
        w = self._work
        for i in range(QUEUES - 1):
            limit = FIRST_LIMIT * 10**i
            over = [k for k in self._queues[i] if self._total[k] - w.left[w.flows(k)].sum() > limit]
            self._queues[i] = [k for k in self._queues[i] if k not in over]
            self._queues[i + 1] += over
        return [k for queue in self._queues for k in queue]

    def allocate(self, now: int, free: Floats, rates: Floats) -> None:
        w = self._work
        for k in self.arrange():
            share(np.array([k]), w.first, w.up, w.down, w.left, free, rates)


KEYS: dict[str, Callable[[Work, int], float]] = {
    "fifo": lambda w, k: 0.0,
    "sebf": lambda w, k: float(w.bottleneck[k]),
    "scf": lambda w, k: float(w.left[w.flows(k)].max()),
    "ncf": lambda w, k: min(np.unique(w.up[w.flows(k)]).size, np.unique(w.down[w.flows(k)]).size),
    "lcf": lambda w, k: float(w.left[w.flows(k)].sum()),
}
POLICIES = ("fair", *KEYS, "aalo")


def completion_times_ms(trace: Trace, policy: str) -> Floats:
    """Return how long every coflow of `trace` takes from its start, in ms, under one of `POLICIES`."""
    work = _work(trace)
    order = np.argsort(work.start, kind="stable")
    if policy == "fair":
        end = fair(work.start, order, work.first, work.up, work.down, work.left, work.ports)
    elif policy == "aalo":
        end = _run(work, order, Queues(work))
    else:
        end = _run(work, order, Sorted(work, KEYS[policy], lasting=policy != "lcf"))
    return np.asarray((end - work.start) * float(STEP_MS))


def _run(work: Work, order: Ints, listed: Listed) -> Ints:
    """Return the step after which every coflow has ended. order: coflows by start."""
    waiting = order.tolist()[::-1]
    end, rates, now = np.full(order.size, -1), np.zeros(work.left.size), 0
    while waiting or listed.arrange():
        if not listed.arrange():
            now = work.start[waiting[-1]]
        while waiting and work.start[waiting[-1]] == now:
            listed.add(waiting.pop())
        active = np.array(listed.arrange())
        rates[:] = 0.0
        listed.allocate(now, np.ones(2 * work.ports), rates)
        steps = steps_to_end(active, work.first, work.left, rates)
        if waiting:
            steps = min(steps, work.start[waiting[-1]] - now)
        advance(active, work.first, work.left, rates, steps)
        now += int(steps)
        for k in active.tolist():
            if not work.left[work.flows(k)].any():
                end[k] = now
                listed.remove(k)
    return end


def _work(trace: Trace) -> Work:
    starts, sizes, bottlenecks = [], [], []
    for c in trace.coflows:
        epoch = max(math.ceil(round(c.release_s * 1000, 6) / EPOCH_MS) - 1, 0)
        reducer = np.ceil(np.round(np.bincount(c.dst, c.size_bytes) / MIB, 6))  # a third of 1 MB, three times, is 1 MB
        size = np.maximum(reducer[c.dst] / np.bincount(c.dst)[c.dst], 1.0)
        starts.append(epoch * EPOCH_MS // STEP_MS)
        sizes.append(size)
        bottlenecks.append(max(np.bincount(c.src, size).max(), np.bincount(c.dst, size).max()))
    return Work(
        start=np.array(starts),
        first=np.concatenate([[0], np.cumsum([size.size for size in sizes])]),
        up=np.concatenate([c.src for c in trace.coflows]),
        down=np.concatenate([c.dst for c in trace.coflows]) + trace.ports,
        left=np.concatenate(sizes),
        bottleneck=np.array(bottlenecks),
        ports=trace.ports,
    )


def java_random(seed: int) -> Iterator[float]:
    """Yield what `java.util.Random(seed).nextDouble()` returns."""
    state = (seed ^ 0x5DEECE66D) % 2**48
    while True:
        parts = []
        for bits in (26, 27):
            state = (state * 0x5DEECE66D + 0xB) % 2**48
            parts.append(state >> (48 - bits))
        yield (parts[0] * 2**27 + parts[1]) / 2**53
