"""The linear programmes of the stage-order bound; `stage_order` says what their rows mean."""

from dataclasses import dataclass

import numpy as np

from beamer.bounds.instance import distinct_links
from beamer.bounds.jobs import IteratingJobs
from beamer.bounds.linear_programme import Rows
from beamer.bounds.subset_dp import ends
from beamer.network.arrays import Floats, Ints

Order = tuple[int, ...]
ZERO, ONE, FIRST = 0, 1, 2  # Two variables have these fixed values; the times of the events follow.


@dataclass(frozen=True, eq=False)
class Solution:
    """The solution of one programme. value: a bound on its cost, whatever the solver's tolerance.

    at_s [k]: the time of each of the k events. share [S x k]: of each stage's work, what is done in the interval that ends at
    the event.
    """

    value: float
    at_s: Floats
    share: Floats


class Programmes:
    """The programmes of one set of jobs. Event e < S is the end of stage e of all S stages, S + i is the release of item i.

    item [S], length_s [S]: of each stage, items in order and stages in order. final [n]: each item's last stage. last: M of
    every set of items, see `subset_dp`. stage [J]: of each job. job, link, load [U]: of each use of a link by a job, seconds of
    one iteration; links that cannot matter are left out.
    """

    def __init__(self, jobs: IteratingJobs) -> None:
        self.jobs = jobs
        self.last = ends(jobs.instance)
        names, stages = jobs.stages
        self.item = np.array(names, np.int64)
        self.length_s = stages.floor_s - stages.release_s
        first = np.searchsorted(self.item, np.arange(len(jobs.weight)))
        self.final = np.append(first[1:], len(self.item)) - 1
        self.stage = first[jobs.item] + jobs.stage
        until = np.cumsum(self.length_s)
        self._earliest = stages.release_s + until - (until - self.length_s)[first[self.item]]
        used = jobs.load > 0
        links = distinct_links(jobs.load, np.where(used, jobs.ready_s[:, None], np.inf), np.where(used, 0.0, np.inf))
        self.job, column = np.nonzero(used[:, links])
        self.link = links[column]
        self.load = jobs.load[self.job, self.link]

    @property
    def stages(self) -> int:
        """How many stages there are."""
        return len(self.item)

    def items(self, order: Order) -> Ints:
        """Return the items whose last stage's end is in `order`, in that order."""
        return np.array([self.item[e] for e in order if e < self.stages and e == self.final[self.item[e]]], np.int64)

    def window(self, order: Order) -> tuple[Ints, Ints]:
        """Return, per stage, positions in `order`: of the last event not after its start, of the first not before its end.

        -1 where there is none.
        """
        position = np.full(self.stages + len(self.final), -1)
        position[list(order)] = np.arange(len(order))
        start, due = position[self.stages + self.item], position[: self.stages].copy()
        for s in range(1, self.stages):
            if self.item[s - 1] == self.item[s]:
                start[s] = position[s - 1] if position[s - 1] >= 0 else start[s - 1]
        for s in reversed(range(self.stages - 1)):
            if due[s] < 0 and self.item[s + 1] == self.item[s]:
                due[s] = due[s + 1]
        return start, due

    def limits(self, order: Order) -> Floats:
        """Return the earliest time of each event of `order`, seconds."""
        least, done = np.zeros(len(order)), 0
        for at, event in enumerate(order):
            if event >= self.stages:
                least[at] = self.jobs.release_s[event - self.stages]
                continue
            if event == self.final[self.item[event]]:
                done |= 1 << int(self.item[event])
            least[at] = max(self._earliest[event], self.last[done])
        return np.maximum.accumulate(least)

    def solve(self, order: Order) -> Solution:
        """Return the least sum of weight x completion of the items whose last stage's end is in `order`, all others away."""
        return _Programme(self, order).solve()


class _Shares:
    """Variables for the events inside windows, of which there are `len(start)`: 0 up to `start`, 1 from `due` on."""

    def __init__(self, start: Ints, due: Ints, first: int) -> None:
        inner = np.maximum(due - start - 1, 0)
        self._start, self._due = start, due
        self._first = first + np.cumsum(inner) - inner
        self.end = first + int(inner.sum())

    def at(self, of: Ints, event: Ints) -> Ints:
        """Return the variable of each window in `of` at its `event`."""
        start = self._start[of]
        return np.where(event <= start, ZERO, np.where(event >= self._due[of], ONE, self._first[of] + event - start - 1))


def _intervals(start: Ints, due: Ints) -> tuple[Ints, Ints]:
    """Return each window's number and event, for every event after `start` up to `due`."""
    count = due - start
    of = np.repeat(np.arange(len(start)), count)
    return of, np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count) + start[of] + 1


class _Programme:
    """One programme. Variables: 0 and 1, the events' times, running times of stages, then shares of work and of progress."""

    def __init__(self, programmes: Programmes, order: Order) -> None:
        self._of, self._jobs, self._order = programmes, programmes.jobs, order
        self._events = len(order)
        self._limits = programmes.limits(order)
        self._rows = Rows()
        self._start, self._due = programmes.window(order)
        stages = np.flatnonzero(self._due >= 0)
        of, event = _intervals(self._start[stages], self._due[stages])
        self._active = (stages[of], event)
        self._running = np.full((programmes.stages, self._events), ZERO)
        self._running[self._active] = FIRST + self._events + np.arange(len(of))
        self._times = FIRST + self._events + len(of)  # The variables in seconds end here.
        here = self._due[programmes.stage[programmes.job]] >= 0
        self._job, self._link, self._load = programmes.job[here], programmes.link[here], programmes.load[here]
        self._stage = programmes.stage[self._job]
        self._total = self._load * self._jobs.iterations[self._job]
        start, due = self._start[self._stage], self._due[self._stage]
        # Progress is work where an iteration consists of this load alone.
        same = self._load >= self._jobs.period_s[self._job] * (1 - 1e-12)
        self._work = _Shares(start, due, self._times)
        self._progress = _Shares(start, np.where(same, start, due), self._work.end)
        self._same = same
        self._variables = self._progress.end

    def solve(self) -> Solution:
        self._time()
        self._released()
        start, due = self._start[self._stage], self._due[self._stage]
        use, event = _intervals(start, due)
        self._carry(use, event)
        self._ready(due)
        wide = (due - start > 1)[use]
        use, event = use[wide], event[wide]
        self._grow(self._job[use], event, self._progress_at(use, event), self._progress_at(use, event - 1))
        self._add([self._work.at(use, event), self._work.at(use, event - 1)], [1.0, -1.0], np.zeros(len(use)))
        inner = event < due[use]
        use, event = use[inner], event[inner]
        self._couple(use, event)
        apart = ~self._same[use]
        self._bands(use[apart], event[apart])
        return self._solved()

    def _progress_at(self, use: Ints, event: Ints) -> Ints:
        return np.where(self._same[use], self._work.at(use, event), self._progress.at(use, event))

    def _time(self) -> None:
        """Order the events, and let an item's stages run one after another, each for as long as it takes alone at least."""
        later = np.arange(1, self._events)
        self._add([FIRST + later, FIRST + later - 1], [1.0, -1.0], np.zeros(len(later)))
        stage, event = self._active
        running = self._running[self._active]
        self._fit(self._of.item[stage] * self._events + event, [running], [np.ones(len(running))])
        each, row = np.unique(stage, return_inverse=True)
        self._rows.add_all(row, running, np.ones(len(row)), self._of.length_s[each])

    def _released(self) -> None:
        """Let no item run before a release whose place in the order is unknown, up to events that are later in any case."""
        stage, event = self._active
        for item in np.flatnonzero(self._jobs.release_s > 0):
            release = float(self._jobs.release_s[item])
            own = (self._of.item[stage] == item) & (self._start[stage] < 0)
            for position in np.unique(event[own & (self._limits[event] >= release)]):
                running = self._running[stage, event][own & (event <= position)]
                self._rows.add(np.append(running, FIRST + position), np.append(-np.ones(len(running)), 1.0), release)

    def _carry(self, use: Ints, event: Ints) -> None:
        """Demand that every link has had the time for what it carries in each interval."""
        work = [self._work.at(use, event), self._work.at(use, event - 1)]
        self._fit(self._link[use] * self._events + event, work, [self._total[use], -self._total[use]])

    def _fit(self, key: Ints, columns: list[Ints], seconds: list[Floats]) -> None:
        """Demand of each interval that it is as long as the sum over entries of one key, which is `events` x number + event."""
        keys, row = np.unique(key, return_inverse=True)
        event = keys % self._events
        after = np.flatnonzero(event)
        self._rows.add_all(
            np.concatenate([np.arange(len(keys)), after, *[row for _ in columns]]),
            np.concatenate([FIRST + event, FIRST + event[after] - 1, *columns]),
            np.concatenate([np.ones(len(keys)), -np.ones(len(after)), *[-s for s in seconds]]),
            np.zeros(len(keys)),
        )

    def _ready(self, due: Ints) -> None:
        """Demand of each link, once a user of it is complete, the time before any could use it and all that it has carried."""
        for p in np.unique(self._link):
            users = np.flatnonzero(self._link == p)
            ready = float(self._jobs.ready_s[self._job[users]].min())
            if ready > 0:
                first = int(due[users].min())
                row, use = (grid.ravel() for grid in np.meshgrid(np.arange(self._events - first), users, indexing="ij"))
                events = np.arange(first, self._events)
                self._rows.add_all(
                    np.concatenate([events - first, row]),
                    np.concatenate([FIRST + events, self._work.at(use, row + first)]),
                    np.concatenate([np.ones(len(events)), -self._total[use]]),
                    np.full(len(events), ready),
                )

    def _grow(self, job: Ints, event: Ints, now: Ints, before: Ints) -> None:
        """Let no job's progress in an interval be longer than its stage runs there."""
        length = self._jobs.length_s[job]
        running = self._running[self._of.stage[job], event]
        self._add([running, now, before], [1.0, -length, length], np.zeros(len(now)))

    def _couple(self, use: Ints, event: Ints) -> None:
        """Keep a job's progress on its links within the largest load of each other; the least of them grows with time too."""
        job = self._job[use]
        jobs = np.unique(job)
        stage = self._of.stage[jobs]
        start, due = self._start[stage], self._due[stage]
        least = _Shares(start, due, self._variables)
        self._variables = least.end
        now = least.at(np.searchsorted(jobs, job), event)
        slack = self._jobs.load.max(axis=1, initial=0.0)[job] / self._jobs.length_s[job]
        self._add([self._progress_at(use, event), now], [1.0, -1.0], np.zeros(len(use)))
        self._add([now, self._progress_at(use, event)], [1.0, -1.0], -slack)
        of, event = _intervals(start, due)
        now, before = least.at(of, event), least.at(of, event - 1)
        self._grow(jobs[of], event, now, before)
        self._add([now, before], [1.0, -1.0], np.zeros(len(of)))

    def _bands(self, use: Ints, event: Ints) -> None:
        """Keep the work done between the envelopes of what the progress allows."""
        job, load = self._job[use], self._load[use]
        work, progress = self._work.at(use, event), self._progress_at(use, event)
        length, period, lead = (x[job] for x in (self._jobs.length_s, self._jobs.period_s, self._jobs.lead_s))
        slack = np.maximum(period - lead - load, 0.0)
        self._add([progress, work], [np.maximum(period / (lead + load), 1.0), -1.0], np.zeros(len(use)))
        self._add([progress, work], [1.0, -1.0], -slack / length)
        self._add([work, progress], [1.0, -1.0], (load - period) / length)
        self._add([work, progress], [load / period, -1.0], load / period - 1)

    def _add(self, columns: list[Ints], values: list[float | Floats], least: Floats) -> None:
        """Add a row per entry of `least`, each with one entry of every part of `columns` and `values`."""
        rows = len(least)
        self._rows.add_all(
            np.tile(np.arange(rows), len(columns)),
            np.concatenate(columns),
            np.concatenate([np.broadcast_to(value, rows) for value in values]),
            least,
        )

    def _solved(self) -> Solution:
        jobs, of, order = self._jobs, self._of, np.array(self._order)
        items = of.items(self._order)
        weight = jobs.weight[items]
        released = np.flatnonzero(order >= of.stages)
        cost = np.zeros(self._variables)
        cost[FIRST + np.flatnonzero(np.isin(order, of.final))] = weight
        # A release is not before its time, and a later one costs more than it could save.
        cost[FIRST + released] = weight.sum()
        early = float(weight.sum() * jobs.release_s[order[released] - of.stages].sum())
        # One stage after another is feasible: no event of an optimal solution is later.
        latest = jobs.length_s[np.isin(jobs.item, items)].sum() + jobs.release_s.max()
        lower, upper = np.zeros(self._variables), np.ones(self._variables)
        lower[ONE], upper[ZERO] = 1.0, 0.0
        lower[FIRST : FIRST + self._events] = self._limits
        upper[FIRST : self._times] = float(latest * cost.sum() / weight.min())
        x, value = self._rows.minimise(cost, lower, np.maximum(lower, upper), "highs")
        return Solution(value - early, x[FIRST : FIRST + self._events], self._shares(x))

    def _shares(self, x: Floats) -> Floats:
        """Return the solution's share [S x k] of each stage's work in each interval, of its time where it uses no link."""
        use, event = _intervals(self._start[self._stage], self._due[self._stage])
        share = np.zeros(self._running.shape)
        done = x[self._work.at(use, event)] - x[self._work.at(use, event - 1)]
        np.add.at(share, (self._stage[use], event), done * self._jobs.length_s[self._job[use]])
        alone = share.sum(axis=1) <= 0
        share[alone] = x[self._running[alone]]
        total = share.sum(axis=1, keepdims=True)
        return share / np.where(total > 0, total, 1.0)
