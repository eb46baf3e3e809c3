"""A plan of how fast jobs progress until their stages end, by linear programme for a given order of these ends, and that order.

Jobs are fluid here: they progress at any share of their full rate, and load links by that share of what they do alone. What
this leaves out, that computing jobs need a link in bursts, makes plans too hopeful where jobs compute for long.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from beamer.network.arrays import Floats, Ints

# Progress in earlier intervals counts with this share of the objective; less than the solver's tolerance is ignored.
PREFERENCE = 1e-3
MIN_GAIN = 1e-3  # An exchange has to gain this share of the objective, so that the preference decides on none.
TINY = 1e-7  # Less than this share of all seconds in a plan is nothing, as the solver's tolerance is not much finer.
MIN_INTERVAL_S = 0.01  # The first interval is at least so long: ends that are nearer count as one.


@dataclass(frozen=True, eq=False)
class Demand:
    """Stages of items, in chains, and the jobs that each waits for.

    weight: of each item. item: of each stage, an item's stages one after another in the order in which they run. stage: of each
    job. seconds: that each job takes with the fabric to itself. first, link, use: meanwhile, job j takes the share
    use[first[j]:first[j+1]] of link[first[j]:first[j+1]].
    """

    weight: Floats
    item: Ints
    stage: Ints
    seconds: Floats
    first: Ints
    link: Ints
    use: Floats

    @classmethod
    def of(cls, weight: Floats, item: Sequence[int], jobs: Sequence[tuple[int, float, Ints, Floats]]) -> "Demand":
        """Make it of one tuple for each job: its stage, seconds, links and uses."""
        widths = [len(link) for _, _, link, _ in jobs]
        return cls(
            weight,
            np.array(item, np.int64),
            np.array([stage for stage, _, _, _ in jobs], np.int64),
            np.array([seconds for _, seconds, _, _ in jobs], np.float64),
            np.concatenate(([0], np.cumsum(widths))).astype(np.int64),
            np.concatenate([np.zeros(0, np.int64), *(link for _, _, link, _ in jobs)]),
            np.concatenate([np.zeros(0), *(use for _, _, _, use in jobs)]),
        )

    @cached_property
    def before(self) -> Ints:
        """The stage before each one in its item, -1 where it is the first."""
        stages = np.arange(len(self.item)) - 1
        follows = np.concatenate(([False], self.item[1:] == self.item[:-1]))
        return np.where(follows, stages, -1)

    @cached_property
    def last(self) -> Ints:
        """The last stage of each item."""
        return np.searchsorted(self.item, np.arange(len(self.weight)), "right") - 1

    def variables(self, order: Ints) -> int:
        """Return how many variables of progress the programme for `order` has."""
        start, due = self.windows(order)
        return int((due - start + 1).sum())

    def windows(self, order: Ints) -> tuple[Ints, Ints]:
        """Return the first and the last interval in which each job may run, if stages end in `order`."""
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        start = np.where(self.before >= 0, position[self.before] + 1, 0)
        return start[self.stage], position[self.stage]


@dataclass(frozen=True, eq=False)
class RatePlan:
    """A plan for an order of stage ends. cost: the sum of weight x seconds until each item's last stage ends.

    length_s: until the first end that is `MIN_INTERVAL_S` away, or the last one. progress_s: of each job until then, in seconds
    of its time alone. end_s: when each job is complete.
    """

    order: Ints
    cost: float
    length_s: float
    progress_s: Floats
    end_s: Floats


def planned(demand: Demand, order: Ints) -> RatePlan | None:
    """Return the plan of least cost, to within `PREFERENCE`, in which stages end in `order`; None if the solver finds none.

    order: of all stages, each item's in turn.
    Variables are the length of the interval before each end, and each job's progress in the intervals between the end of the
    stage before its own and that of its own. No job progresses faster than alone, no link carries more than it can.
    """
    from scipy.optimize import linprog  # type: ignore[import-untyped]  # The import takes a second.
    from scipy.sparse import coo_array  # type: ignore[import-untyped]

    events, jobs = len(order), len(demand.seconds)
    unit = float(demand.seconds.sum()) or 1.0
    start, due = demand.windows(order)
    of, interval = _each(start, due)
    progress = events + np.arange(len(of))
    # A job's entry plus an interval is the job's variable.
    first = events + np.concatenate(([0], np.cumsum(due - start + 1)))[:-1] - start
    user = np.repeat(np.arange(jobs), np.diff(demand.first))
    entry, at = _each(start[user], due[user])
    carried, row = np.unique(demand.link[entry] * events + at, return_inverse=True)
    rows = len(of) + len(carried)
    limits = coo_array(
        (
            np.concatenate([np.ones(len(of)), demand.use[entry], -np.ones(rows)]),
            (
                np.concatenate([np.arange(len(of)), len(of) + row, np.arange(rows)]),
                np.concatenate([progress, first[user[entry]] + at, interval, carried % events]),
            ),
        ),
        shape=(rows, events + len(of)),
    ).tocsr()
    position = np.empty(events, np.int64)
    position[order] = np.arange(events)
    ends = np.zeros(events)
    np.add.at(ends, position[demand.last], demand.weight)
    waiting = np.cumsum(ends[::-1])[::-1] / ends.sum()
    early = PREFERENCE * (events - interval) / (events * jobs)
    found = linprog(
        np.concatenate([waiting, -early]),
        A_ub=limits,
        b_ub=np.zeros(rows),
        A_eq=coo_array((np.ones(len(of)), (of, progress)), shape=(jobs, events + len(of))).tocsr(),
        b_eq=demand.seconds / unit,
        bounds=(0, None),
        method="highs-ipm",
    )
    if found.x is None:
        return None
    end_s = np.cumsum(found.x[:events]) * unit
    now = min(int(np.searchsorted(end_s, max(TINY * unit, MIN_INTERVAL_S), "right")), events - 1)
    done = found.x[events:] * unit
    latest = np.zeros(jobs)
    np.maximum.at(latest, of, np.where(done > TINY * unit, end_s[interval], 0.0))
    return RatePlan(
        order,
        float(demand.weight @ end_s[position[demand.last]]),
        float(end_s[now]),
        np.bincount(of, np.where(interval <= now, done, 0.0), jobs).astype(np.float64),
        latest,
    )


def improved(demand: Demand, plan: RatePlan, programmes: int) -> RatePlan:
    """Return a plan of no greater cost: neighbouring ends of different items are exchanged while that gains, so many tried."""
    count, since, at = len(plan.order), 0, 0
    while programmes > 0 and since < count - 1:
        one, other = plan.order[at], plan.order[at + 1]
        since, following = since + 1, (at + 1) % (count - 1)
        if demand.item[one] != demand.item[other]:
            order = plan.order.copy()
            order[at], order[at + 1] = other, one
            found = planned(demand, order)
            programmes -= 1
            if found is not None and found.cost < plan.cost * (1 - MIN_GAIN):
                plan, since, following = found, 0, max(at - 1, 0)
        at = following
    return plan


def in_turn(demand: Demand, urgent_first: Ints, links: int) -> Ints:
    """Return the order in which stages end, by estimate, if items are served strictly one before another."""
    load = np.zeros((len(demand.item), links))
    user = np.repeat(np.arange(len(demand.seconds)), np.diff(demand.first))
    np.add.at(load, (demand.stage[user], demand.link), demand.seconds[user] * demand.use)
    longest = np.zeros(len(demand.item))
    np.maximum.at(longest, demand.stage, demand.seconds)
    end = np.zeros(len(demand.item))
    before = np.zeros(links)
    for item in urgent_first.tolist():
        now, own = 0.0, np.zeros(links)
        for stage in np.flatnonzero(demand.item == item).tolist():
            own += load[stage]
            now = max(now + float(longest[stage]), float(np.where(own > 0, own + before, 0.0).max(initial=0.0)))
            end[stage] = now
        before += own
    return np.lexsort((np.arange(len(end)), end))


def _each(start: Ints, due: Ints) -> tuple[Ints, Ints]:
    """Return the number of every window, and the interval, for each interval from its start to its due one."""
    count = due - start + 1
    of = np.repeat(np.arange(len(start)), count)
    return of, np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count) + start[of]
