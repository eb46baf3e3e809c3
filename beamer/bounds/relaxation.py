"""The ordering bound: a linear programme over who completes before whom, with constraints added as they are violated.

Linear ordering variables for scheduling are those of Potts 1980 (Mathematical Programming Study 13), mean-busy-time constraints
those of Queyranne 1993 (Mathematical Programming 58) and Goemans 1997 (SODA); heads, tails and floors of items on many links
are our extension.
"""

from dataclasses import dataclass, field

import numpy as np

from beamer.bounds.instance import Instance, at_most, distinct_links
from beamer.bounds.linear_programme import Rows
from beamer.network.arrays import Floats, Ints

MAX_ITEMS = 150  # The programme has n (n - 1) / 2 variables for pairs.
MAX_LOADS = 10  # constraints per item at the start and per round
TOLERANCE = 1e-7  # A constraint may be violated by this share of the horizon.


def lp_ov(instance: Instance, *, gain: float = 1e-4, rounds: int = 30) -> float:
    """Return the ordering bound on the sum of weight x (completion - release), seconds.

    Variables are completions C_s and d_ts in [0, 1], 1 where t completes before s. For every link, C_s is at least the least
    ready time, plus the loads of s and of all t before it, plus the least after time, of the link's users (ready and after
    times only where s is one); and at least the item's floor. Ready and after times of single items enter by

        sum over S of load_s (C_s - after_s) >= load(S) (least ready in S + load(S) / 2) + sum over S of load_s^2 / 2,

    which holds because the mean busy time of s is at most C_s - after_s - load_s / 2. gain, rounds: violated constraints are
    added until a round has raised the value by a smaller share, and at most so often; the value is a bound after any number of
    rounds. A hundred items on a hundred links take some 15 to 30 s.

    The value is that of a dual solution, rounded to feasibility here: it does not rest on the solver's tolerance.
    Raises `InputError` for more than 150 items.
    """
    at_most(instance, MAX_ITEMS, "the ordering bound")
    if instance.items == 0:
        return 0.0
    load, ready, after = instance.dense()
    links = distinct_links(load, ready, after)
    programme = _Programme(instance.weight, instance.floor_s, load[:, links], ready[:, links], after[:, links])
    value = -np.inf
    for _ in range(rounds):
        previous, point = value, programme.solve()
        value = max(value, point.value)
        added = programme.add_loads(point) + (0 if instance.plain else programme.add_busy(point))
        if not added or value - previous < gain * abs(value):
            break
    return instance.above_release(value)


@dataclass(frozen=True)
class _Point:
    """A solution: completions, who is before whom as [n x n], and its safe dual value."""

    completion: Floats
    before: Floats
    value: float


@dataclass
class _Programme:
    """The programme so far: rows `coefficients @ variables >= least`; variables are C, then d_ts of pairs t < s."""

    weight: Floats
    floor: Floats
    load: Floats
    ready: Floats
    after: Floats
    _rows: Rows = field(default_factory=Rows)
    _known: set[tuple[int, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        n = len(self.weight)
        self._used = np.isfinite(self.ready)
        self._first, self._second = np.triu_indices(n, 1)
        self._pair = np.full((n, n), -1)
        self._pair[self._first, self._second] = n + np.arange(len(self._first))
        margin = self.ready.min(axis=0, initial=np.inf) + self.after.min(axis=0, initial=np.inf)
        self._margin = np.where(self._used, margin, 0.0)
        # No completion of an optimal solution is later: the horizon may bound the variables.
        spread = [np.where(self._used, times, 0.0).max(initial=0.0) for times in (self.ready, self.after)]
        self._horizon = max(float(self.floor.max()), float(self.load.sum(axis=0).max(initial=0.0) + sum(spread)))
        busiest = np.argsort(-self.load.sum(axis=0), kind="stable")
        for s in range(n):
            for p in [p for p in busiest if self._used[s, p]][:MAX_LOADS]:
                self._add_load(s, int(p))

    def _add(self, key: tuple[int, ...], columns: Ints, values: Floats, least: float) -> bool:
        if key in self._known:
            return False
        self._known.add(key)
        self._rows.add(columns, values, least)
        return True

    def _add_load(self, s: int, p: int) -> bool:
        others = np.flatnonzero(self.load[:, p])
        early, late = others[others < s], others[others > s]
        columns = np.concatenate([[s], self._pair[early, s], self._pair[s, late]])
        values = np.concatenate([[1.0], -self.load[early, p], self.load[late, p]])
        least = self._margin[s, p] + self.load[s, p] + self.load[late, p].sum()
        return self._add((0, s, p), columns, values, float(least))

    def add_loads(self, point: _Point) -> int:
        """Add the most violated load constraints, at most `MAX_LOADS` per item; return how many."""
        missing = self._margin + self.load + point.before.T @ self.load - point.completion[:, None]
        added = 0
        for s in range(len(self.weight)):
            worst = np.argsort(-missing[s])[:MAX_LOADS]
            added += sum(self._add_load(s, int(p)) for p in worst if missing[s, p] > TOLERANCE * self._horizon)
        return added

    def add_busy(self, point: _Point) -> int:
        """Add, per link, the most violated mean-busy-time constraint; return how many.

        For items ready at one time or later, the most violated set is a prefix in order of completion - after - load / 2.
        """
        added = 0
        for p in range(self.load.shape[1]):
            users = np.flatnonzero(self._used[:, p])
            load, ready, after = self.load[users, p], self.ready[users, p], self.after[users, p]
            middle = point.completion[users] - after - load / 2
            order = np.argsort(middle, kind="stable")
            worst, chosen = TOLERANCE * self._horizon, None
            for start in np.unique(ready):
                later = order[ready[order] >= start]
                total = np.cumsum(load[later])
                short = total * (start + total / 2) - np.cumsum(load[later] * middle[later])
                k = int(np.argmax(short / total))
                if short[k] / total[k] > worst:
                    worst, chosen = float(short[k] / total[k]), later[: k + 1]
            if chosen is not None:
                chosen = np.sort(chosen)
                size = float(load[chosen].sum())
                least = float(ready[chosen].min()) + size / 2 + float(load[chosen] @ (load[chosen] / 2 + after[chosen])) / size
                added += self._add((1, p, *users[chosen].tolist()), users[chosen], load[chosen] / size, least)
        return added

    def solve(self) -> _Point:
        """Solve what there is."""
        n, pairs = len(self.weight), len(self._first)
        x, value = self._rows.minimise(
            np.concatenate([self.weight, np.zeros(pairs)]),
            np.concatenate([self.floor, np.zeros(pairs)]),
            np.concatenate([np.full(n, self._horizon), np.ones(pairs)]),
            "highs-ipm",  # The simplex method is some 30 times slower at a hundred items.
        )
        before = np.zeros((n, n))
        before[self._first, self._second] = x[n:]
        before[self._second, self._first] = 1 - x[n:]
        return _Point(x[:n], before, value)
