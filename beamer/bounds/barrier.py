"""The barrier bound: who completes before whom, when jobs compute between coflows and wait at barriers.

For a given order of completion a linear programme has the times C_1 <= C_2 <= .. and, for each job and C_k, its progress: the
part of its `length_s` that is complete, phi. In an iteration with lead a, period t and largest load g, phi grows with the
time since the iteration's start up to a, then, where t = a + g (*tight* links: those of load g), with the least work done on
a tight link. Otherwise it grows with time up to t. Either way phi grows no faster than time, is k t after k iterations and
length_s at the end. So

- in an interval no job's progress is longer than the interval, nor is the sum over an item's stages of their longest;
- of N iterations, a tight link has carried at least max(0, (phi - a) / t, N - (length - phi) / g), the convex envelope from
  below of its staircase, and any other link at least max(0, phi / t - 1); all N once the item is complete;
- by C_k a link has carried no more than C_k less the earliest time at which any job of these items can use it;
- C_k is at least the earliest end M of the first k items, see `subset`.

The least value over all orders is the bound, which is our own. It is found best first over prefixes of orders: the programme of
a prefix plus the subset bound of the others is a bound for all orders that begin so, and the least of the open ones is a bound
at any time.
"""

from heapq import heappop, heappush

import numpy as np

from beamer.bounds.instance import at_most, distinct_links
from beamer.bounds.jobs import IteratingJobs
from beamer.bounds.linear_programme import Rows
from beamer.bounds.subset_dp import MAX_ITEMS, ends, remaining
from beamer.network.arrays import Floats, Ints


def barrier(jobs: IteratingJobs, programmes: int = 500) -> float:
    """Return the barrier bound on the sum of weight x (completion - release), seconds: never below the subset bound.

    programmes: how many may be solved; the bound is the best proven by then. Each takes milliseconds at a few dozen jobs.

    Raises `InputError` for more than 18 items.
    """
    at_most(jobs.instance, MAX_ITEMS, "the barrier bound")
    n = len(jobs.weight)
    if n == 0:
        return 0.0
    relaxation = _Relaxation(jobs)
    last, rest = relaxation.last, remaining(jobs.weight, relaxation.last)
    # An entry holds a bound, minus the prefix's length, the prefix, a programme's value and whether the prefix is solved. The
    # value is that of the prefix's own programme, or of the one before it while the prefix is unsolved.
    heap: list[tuple[float, int, tuple[int, ...], float, bool]] = [(float(rest[0]), 0, (), 0.0, True)]
    while True:
        bound, _, prefix, own, solved = heap[0]
        if (solved and len(prefix) == n) or (not solved and programmes <= 0):
            return jobs.instance.above_release(bound)
        heappop(heap)
        members = sum(1 << s for s in prefix)
        if not solved:
            programmes -= 1
            own = relaxation.solve(prefix)
            heappush(heap, (max(bound, own + float(rest[members])), -len(prefix), prefix, own, True))
            continue
        for s in set(range(n)) - set(prefix):
            more = members | 1 << s
            child = own + float(jobs.weight[s] * last[more] + rest[more])
            heappush(heap, (max(bound, child), -len(prefix) - 1, (*prefix, s), own, False))


class _Relaxation:
    """The programmes of one set of jobs. last: M of every set of items."""

    def __init__(self, jobs: IteratingJobs) -> None:
        self._jobs = jobs
        self.last = ends(jobs.instance)
        used = jobs.load > 0
        ready = np.where(used, jobs.ready_s[:, None], np.inf)
        self._links = distinct_links(jobs.load, ready, np.where(used, 0.0, np.inf))

    def solve(self, prefix: tuple[int, ...]) -> float:
        """Return the least sum of weight x completion of the items of `prefix`, which complete first and in that order."""
        jobs, k = self._jobs, len(prefix)
        rank = np.full(len(jobs.weight), -1)
        rank[list(prefix)] = np.arange(k)
        own = np.flatnonzero(rank[jobs.item] >= 0)
        done = rank[jobs.item[own]]
        weight = jobs.weight[list(prefix)]
        # One item after another is feasible: no completion of an optimal solution is later.
        latest = jobs.length_s[own].sum() + jobs.release_s.max()
        horizon = float(latest * weight.sum() / weight.min())
        stages = np.unique(np.stack([done, jobs.stage[own]], axis=1), axis=0)
        number = {(int(d), int(m)): i for i, (d, m) in enumerate(stages)}
        stage = np.array([number[int(d), int(m)] for d, m in zip(done, jobs.stage[own], strict=True)])

        end, at = np.arange(k), k
        progress, tight, whole = (at + i * len(own) * k + np.arange(len(own) * k).reshape(-1, k) for i in range(3))
        longest = at + 3 * len(own) * k + np.arange(len(stages) * k).reshape(-1, k)
        variables = at + 3 * len(own) * k + len(stages) * k
        lower, upper = np.zeros(variables), np.full(variables, horizon)
        lower[end] = self.last[np.cumsum([1 << s for s in prefix])]
        rows = Rows()
        for i, j in enumerate(own):
            self._job(rows, int(j), int(done[i]), progress[i], tight[i], whole[i], longest[stage[i]], lower, upper)
        for position in range(k):
            mine = longest[stages[:, 0] == position]
            for interval in range(position + 1):
                rows.add(*_interval(end, interval, mine[:, interval]), 0.0)
        self._carry(rows, own, done, tight, whole)
        cost = np.concatenate([weight, np.zeros(variables - k)])
        return rows.minimise(cost, lower, np.maximum(lower, upper), "highs")[1]

    def _job(
        self,
        rows: Rows,
        j: int,
        done: int,
        progress: Ints,
        tight: Ints,
        whole: Ints,
        longest: Ints,
        lower: Floats,
        upper: Floats,
    ) -> None:
        """Constrain the progress of job `j`, and the iterations that tight and other links have carried, at each completion."""
        jobs = self._jobs
        count, length, period, lead = (float(x[j]) for x in (jobs.iterations, jobs.length_s, jobs.period_s, jobs.lead_s))
        for variables, all_of in ((progress, length), (tight, count), (whole, count)):
            upper[variables] = all_of
            lower[variables[done:]] = all_of
        for interval in range(done + 1):
            before = progress[interval - 1 : interval]
            step = np.concatenate([[longest[interval], progress[interval]], before])
            rows.add(step, np.array([1.0, -1.0, 1.0])[: len(step)], 0.0)
            if interval:
                rows.add(np.array([progress[interval], progress[interval - 1]]), np.array([1.0, -1.0]), 0.0)
        if not jobs.load[j].any():
            return
        gamma = float(jobs.load[j].max())
        for interval in range(done):
            carried, behind = np.array([tight[interval], progress[interval]]), np.array([whole[interval], progress[interval]])
            rows.add(carried, np.array([1.0, -1 / period]), -lead / period)
            rows.add(carried, np.array([1.0, -1 / gamma]), count - length / gamma)
            rows.add(behind, np.array([1.0, -1 / period]), -1.0)

    def _carry(self, rows: Rows, own: Ints, done: Ints, tight: Ints, whole: Ints) -> None:
        """Demand that every link has had the time for what it has carried by each completion."""
        jobs = self._jobs
        for p in self._links:
            users = np.flatnonzero(jobs.load[own, p] > 0)
            if not len(users):
                continue
            ready = float(jobs.ready_s[own[users]].min())
            carried = np.where(jobs.tight[own[users], p][:, None], tight[users], whole[users])
            for position in range(tight.shape[1]):
                # Before any user is complete, the link may not have been usable yet.
                least = ready if (done[users] <= position).any() else 0.0
                columns = np.concatenate([[position], carried[:, position]])
                rows.add(columns, np.concatenate([[1.0], -jobs.load[own[users], p]]), least)


def _interval(end: Ints, interval: int, longest: Ints) -> tuple[Ints, Floats]:
    """Return the row of an interval's length less `longest`, the progress of stages that run one after another."""
    ends_of = end[max(interval - 1, 0) : interval + 1][::-1]
    return np.concatenate([ends_of, longest]), np.concatenate([np.array([1.0, -1.0])[: len(ends_of)], -np.ones(len(longest))])
