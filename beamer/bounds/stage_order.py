"""The stage-order bound: which stage ends before which, when jobs compute between coflows and wait at barriers.

Events are the ends of stages, and releases. For a given order of events T_1 <= T_2 <= .. a linear programme has the times, and
for each job and link that it uses, at each event inside the job's stage, the iterations carried there, K, and its progress on
it, psi. With m iterations complete, u the time since the last of these ended or the stage started, and a share f of the next
one's load g carried on the link, K = m + f and psi = m t + min(u, t - g (1 - f)); a is an iteration's lead, t its period, N
their number.

- Stages of one item run one after another, each at least as long as alone: what they run in an interval adds up to its length
  at most. psi grows no faster than time, so no more in an interval than the stage runs there.
- K grows, and lies between max((psi - t + g) / t, N - (N t - psi) / g) and min(psi / (a + g), (psi + t - a - g) / t), the
  envelopes of all that psi leaves open; where g = t it is psi / t.
- The least psi over a job's links grows with time too, and no psi is above it by more than the job's largest load.
- In each interval a link carries no more than the interval's length, and by an event no more than the time since any of its
  users could use it.

An order of some events is a programme with fewer rows: a stage may then run from the last event in the order that is not after
its start to the first that is not before its end. So its value bounds all orders that extend it. The least value over all
orders is the bound, which is our own. It is found best first: first over orders in which the items' last stages end, as the
barrier bound is, then by inserting, at each place that it may have, the stage's end that the solution heeds least. The least
value of the open ones is a bound at any time. The argument is written out in docs/experiments/bounds.md.
"""

from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from itertools import count

import numpy as np

from beamer.bounds.instance import at_most
from beamer.bounds.jobs import IteratingJobs
from beamer.bounds.stage_programme import Order, Programmes, Solution
from beamer.bounds.subset_dp import MAX_ITEMS, remaining
from beamer.network.arrays import Ints

HEEDED = 1e-6  # No event need forbid an overlap below this share of all stages' lengths.


def stage_order(jobs: IteratingJobs, programmes: int = 500) -> float:
    """Return the stage-order bound on the sum of weight x (completion - release), seconds.

    programmes: how many may be solved; the bound is the best proven by then. Where both close it is never below the barrier
    bound. A programme has O(U E) variables and rows for U pairs of a job and a link that it uses and E events inside a stage:
    10 to 40 ms for four items of three stages and 13 jobs of four workers. S stages of n items have S! orders at most; a few
    hundred programmes close the search for four such items.

    Raises `InputError` for more than 18 items.
    """
    at_most(jobs.instance, MAX_ITEMS, "the stage-order bound")
    if not len(jobs.weight):
        return 0.0
    search = _Search(jobs)
    number = count()
    # Of equal bounds the longer order comes first, then the earlier entry.
    heap = [(float(search.rest[0]), 0, next(number), _Open((), 0.0, None))]
    while True:
        bound, _, _, top = heap[0]
        if top.unsolved:
            if programmes <= 0:
                return jobs.instance.above_release(bound)
            programmes -= 1
            value, solved = search.solve(top)
            heapreplace(heap, (max(bound, value), -len(top.order), next(number), solved))
            continue
        children = search.children(top)
        if not children:
            return jobs.instance.above_release(bound)
        heappop(heap)
        for value, child in children:
            heappush(heap, (max(bound, value), -len(child.order), next(number), child))


@dataclass(frozen=True, eq=False)
class _Open:
    """An order. value: of its programme, or of the order that it extends while `unsolved`, which the empty one never is."""

    order: Order
    value: float
    solution: Solution | None

    @property
    def unsolved(self) -> bool:
        return self.solution is None and bool(self.order)


class _Search:
    """The orders of one set of jobs. rest: of every set of complete items, a bound on the completions of the others."""

    def __init__(self, jobs: IteratingJobs) -> None:
        self._jobs, self._programmes = jobs, Programmes(jobs)
        self.rest = remaining(jobs.weight, self._programmes.last)

    def solve(self, node: _Open) -> tuple[float, _Open]:
        """Return the bound for all orders that extend that of `node`, and it with its solution."""
        solution = self._programmes.solve(node.order)
        members = _mask(self._programmes.items(node.order))
        return solution.value + float(self.rest[members]), _Open(node.order, solution.value, solution)

    def children(self, node: _Open) -> list[tuple[float, _Open]]:
        """Return orders that extend that of `node`, with bounds; every complete order that extends it extends one of them.

        None where no further event can raise the bound.
        """
        of, weight = self._programmes, self._jobs.weight
        items = of.items(node.order)
        members = _mask(items)
        found = []
        for item in sorted(set(range(len(weight))) - set(items.tolist())):
            more = members | 1 << item
            value = node.value + float(weight[item] * of.last[more] + self.rest[more])
            found.append((value, _Open((*node.order, int(of.final[item])), node.value, None)))
        if found or node.solution is None:
            return found
        event = self._needed(node.order, node.solution)
        if event is None:
            return []
        low, high = self._places(node.order, event)
        orders = [(*node.order[:at], event, *node.order[at:]) for at in range(low, high + 1)]
        return [(node.value, _Open(order, node.value, None)) for order in orders]

    def _needed(self, order: Order, solution: Solution) -> int | None:
        """Return the event that the solution heeds least, none if it heeds all of them.

        That is the end of a stage whose work overlaps its successor's most, or the release before which most is done, in
        seconds of the shorter stage.
        """
        of, release = self._programmes, self._jobs.release_s
        before = np.cumsum(solution.share, axis=1) - solution.share
        begin = np.append(0.0, solution.at_s[:-1])
        length = np.maximum(solution.at_s - begin, 1e-300)
        overlap = np.zeros(of.stages + len(release))
        for s in set(range(of.stages)) - set(of.final.tolist()) - set(order):
            too_early = before[s + 1] + solution.share[s + 1] / 2
            overlap[s] = (solution.share[s] @ too_early) * min(of.length_s[s], of.length_s[s + 1])
        for item in np.flatnonzero(release > 0):
            if of.stages + item not in order:
                own = of.item == item
                early = np.clip((release[item] - begin) / length, 0.0, 1.0)
                overlap[of.stages + item] = np.max((solution.share[own] @ early) * of.length_s[own])
        most = int(np.argmax(overlap))
        return most if overlap[most] > HEEDED * of.length_s.sum() else None

    def _places(self, order: Order, event: int) -> tuple[int, int]:
        """Return the first and the last position at which `event` may be inserted."""
        of = self._programmes
        start, due = of.window(order)
        if event < of.stages:
            return int(start[event]) + 1, int(due[event])
        item = event - of.stages
        # The release must not come after an event that cannot precede it.
        possible = int(np.searchsorted(of.limits(order), self._jobs.release_s[item], side="right"))
        return 0, min(int(due[np.argmax(of.item == item)]), possible)


def _mask(items: Ints) -> int:
    return sum(1 << int(item) for item in items)
