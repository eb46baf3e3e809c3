"""The bounds in order on random bags of coflows: dual <= lp-ov <= subset-dp <= barrier <= stage-order <= exact <= a greedy
schedule <= 2 prefix loads.

Jobs with barriers have no exact optimum to compare with: there, every bound stays below the best of all static orders and of
random dynamic ones, down to jobs of one iteration, and the programme of an order of stage ends admits every schedule that
has it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest

from beamer.bounds import Instance, IteratingJobs, bounds
from beamer.bounds.barrier import barrier
from beamer.bounds.dual import dual
from beamer.bounds.linear_programme import Rows
from beamer.bounds.relaxation import lp_ov
from beamer.bounds.release import release_busy
from beamer.bounds.stage_order import stage_order
from beamer.bounds.stage_programme import FIRST, Programmes
from beamer.bounds.subset_dp import subset_dp
from beamer.network.arrays import Floats
from tests.support.reference.exact import best_static, exact
from tests.support.tiers import long

ROUNDING = 1 + 1e-9
BLOCKS, BLOCK = 12, 100
SOLVED = 25  # of each block, for the optimum: it takes most of the time


@dataclass(frozen=True)
class Bag:
    """Coflows on a big switch, all there at 0. demand [n x ports x ports]: seconds that each flow takes alone."""

    weight: Floats
    demand: Floats

    @property
    def load(self) -> Floats:
        return np.concatenate([self.demand.sum(axis=2), self.demand.sum(axis=1)], axis=1)

    @property
    def instance(self) -> Instance:
        return Instance(self.weight, self.load, self.load.max(axis=1), np.zeros(len(self.weight)))

    @property
    def jobs(self) -> IteratingJobs:
        n = np.arange(len(self.weight))
        return IteratingJobs(self.weight, n, 0 * n, 0 * n + 1, 0.0 * n, self.load.max(axis=1), self.load)


def bags(block: int, count: int, most: int = 5) -> Iterator[Bag]:
    rng = np.random.default_rng(block)
    for _ in range(count):
        n, ports = int(rng.integers(2, most + 1)), int(rng.integers(2, 5))
        demand = rng.uniform(0.1, 5.0, (n, ports, ports)) * (rng.random((n, ports, ports)) < rng.choice([0.3, 0.6, 1.0]))
        demand *= rng.choice([0.2, 1.0, 4.0], (n, 1, 1))
        weight = np.ones(n) if rng.random() < 0.5 else rng.uniform(0.5, 4.0, n)
        yield Bag(weight, demand)


def greedy(demand: Floats, order: Sequence[int]) -> Floats:
    """Return completions [n] where flow after flow, coflows in `order`, takes what its two ports have left."""
    left = demand.copy()
    completion = np.zeros(len(demand))
    now = 0.0
    while True:
        out, into = np.ones(demand.shape[1]), np.ones(demand.shape[1])
        rates = []
        for s in order:
            for i, j in zip(*np.nonzero(left[s]), strict=True):
                rate = min(out[i], into[j])
                if rate > 0:
                    rates.append(((s, i, j), rate))
                    out[i] -= rate
                    into[j] -= rate
        if not rates:
            return completion
        step = min(left[flow] / rate for flow, rate in rates)
        now += step
        for flow, rate in rates:
            left[flow] -= rate * step
            if left[flow] <= 1e-12 * demand[flow]:
                left[flow] = 0.0
                completion[flow[0]] = now


@pytest.mark.parametrize("block", [0, *long(*range(1, BLOCKS))])
def test_the_chain_holds(block: int) -> None:
    for number, bag in enumerate(bags(block, BLOCK)):
        instance = bag.instance
        chain = [dual(instance), lp_ov(instance, gain=0.0), subset_dp(instance)]
        order = np.argsort(bag.load.max(axis=1) / bag.weight, kind="stable").tolist()
        if number < SOLVED:
            chain += [barrier(bag.jobs), stage_order(bag.jobs)]
        if number < SOLVED and len(bag.weight) <= 4:
            optimum = exact(bag.weight, bag.demand)
            chain.append(optimum.total_s)
            order = list(optimum.order)
        completion = greedy(bag.demand, order)
        chain.append(float(bag.weight @ completion))
        # Two programmes that leave out constraints violated by 1e-7 of the horizon may differ by as much.
        slack = np.array([1 + 1e-6, *[ROUNDING] * (len(chain) - 2)])
        assert np.all(np.array(chain[:-1]) <= np.array(chain[1:]) * slack), (block, number, chain)
        prefix = np.cumsum(bag.load[order], axis=0).max(axis=1)
        assert np.all(completion[order] <= 2 * prefix * ROUNDING), (block, number)


def test_single_machines_stay_below_the_optimum() -> None:
    for bag in bags(1000, 40, most=4):
        optimum = exact(bag.weight, bag.demand).total_s
        assert lp_ov(bag.instance, gain=0.0) <= optimum * ROUNDING
        assert release_busy(bag.instance) <= optimum * ROUNDING


def test_bounds_are_near_the_optimum() -> None:
    ratios = []
    for bag in bags(2000, 60, most=4):
        optimum = exact(bag.weight, bag.demand).total_s
        if optimum > 0:
            instance = bag.instance
            ratios.append([dual(instance) / optimum, lp_ov(instance, gain=0.0) / optimum, subset_dp(instance) / optimum])
    assert np.all(np.mean(ratios, axis=0) >= [0.975, 0.985, 0.995])


@dataclass(frozen=True)
class Trial:
    """A job. `compute_s` per iteration, of which `overlap` goes on during the phases; a phase is flows of (links, seconds)."""

    item: int
    stage: int
    iterations: int
    compute_s: float
    overlap: float
    phases: tuple[tuple[tuple[tuple[int, ...], float], ...], ...]

    @property
    def lead_s(self) -> float:
        return (1 - self.overlap) * self.compute_s

    def loads(self, links: int) -> Floats:
        """Seconds by phase and link."""
        load = np.zeros((len(self.phases), links))
        for k, flows in enumerate(self.phases):
            for path, seconds in flows:
                load[k, list(path)] += seconds
        return load


HOSTS = 3


def trials(rng: np.random.Generator, items: int, stages: int = 2) -> list[Trial]:
    """Draw items of up to `stages` stages of one or two jobs: rings, uneven flows, or parameter servers of two phases."""
    drawn = []
    for item in range(items):
        for stage in range(int(rng.integers(1, stages + 1))):
            for _ in range(int(rng.integers(1, 3))):
                hosts = rng.permutation(HOSTS)[: int(rng.integers(2, HOSTS + 1))].tolist()
                kind, seconds = rng.choice(["ring", "uneven", "server"]), rng.uniform(0.2, 2.0)
                if kind == "server":
                    push = tuple(((h, HOSTS + hosts[0]), seconds) for h in hosts[1:])
                    phases = (push, tuple(((hosts[0], HOSTS + h), seconds) for h in hosts[1:]))
                else:
                    pairs = zip(hosts, hosts[1:] + hosts[:1], strict=True)
                    each = [1.0 if kind == "ring" else rng.uniform(0.3, 1.0) for _ in hosts]
                    phases = (tuple(((a, HOSTS + b), seconds * e) for (a, b), e in zip(pairs, each, strict=True)),)
                compute = seconds * rng.choice([0.0, 0.3, 1.0, 3.0])
                drawn.append(Trial(item, stage, int(rng.integers(1, 6)), compute, rng.choice([0.0, 0.5]), phases))
    return drawn


def described(drawn: Sequence[Trial], weight: Floats, release: Floats) -> IteratingJobs:
    loads = [t.loads(2 * HOSTS) for t in drawn]
    gamma = [load.max(axis=1).sum() for load in loads]
    return IteratingJobs(
        weight,
        np.array([t.item for t in drawn]),
        np.array([t.stage for t in drawn]),
        np.array([t.iterations for t in drawn]),
        np.array([t.lead_s for t in drawn]),
        np.array([max(t.compute_s, t.lead_s + g) for t, g in zip(drawn, gamma, strict=True)]),
        np.array([load.sum(axis=0) for load in loads]),
        release,
    )


class Run:
    """A greedy schedule: `urgency` gives each job's rank whenever rates are set, the smallest first.

    pace: how much of the rate that it could have each flow takes.
    """

    def __init__(self, drawn: Sequence[Trial], release: Floats, pace: Callable[[], float] = lambda: 1.0) -> None:
        self.drawn, self.release, self.pace = drawn, release, pace
        self.begun = [0] * len(drawn)
        self.phase = [-1] * len(drawn)  # -1 before the phases
        self.left: list[list[float]] = [[] for _ in drawn]
        self.since = [0.0] * len(drawn)
        self.stage = [-1] * len(release)
        self.end = np.zeros(len(release))
        self.stage_end: dict[tuple[int, int], float] = {}
        self.going: set[int] = set()
        self.now = 0.0

    def completions(self, urgency: Callable[[int], float]) -> Floats:
        while True:
            self._settle()
            free = np.ones(2 * HOSTS)
            rates: dict[tuple[int, int], float] = {}
            for j in sorted(self.going, key=lambda j: (urgency(j), j)):
                for f, (path, _) in enumerate(self._flows(j)):
                    rate = min(free[list(path)]) * self.pace()
                    if self.left[j][f] > 0 and rate > 1e-9:
                        rates[j, f] = rate
                        free[list(path)] -= rate
            waits = [self.left[j][f] / rate for (j, f), rate in rates.items()]
            waits += [due - self.now for due in self._due() if due > self.now]
            if not waits:
                return self.end
            step = min(waits)
            for (j, f), rate in rates.items():
                self.left[j][f] = max(self.left[j][f] - rate * step, 0.0)
                if self.left[j][f] < 1e-9:
                    self.left[j][f] = 0.0
            self.now += step

    def _flows(self, j: int) -> tuple[tuple[tuple[int, ...], float], ...]:
        phase = self.phase[j]
        return self.drawn[j].phases[phase] if 0 <= phase < len(self.drawn[j].phases) else ()

    def _due(self) -> Iterator[float]:
        yield from self.release.tolist()
        for j in self.going:
            yield self.since[j] + (self.drawn[j].lead_s if self.phase[j] < 0 else self.drawn[j].compute_s)

    def _settle(self) -> None:
        """Do everything that is due now."""
        moved = True
        while moved:
            moved = False
            for j in sorted(self.going):
                trial = self.drawn[j]
                if self.phase[j] < 0:
                    ready = self.now >= self.since[j] + trial.lead_s
                else:
                    ready = self.phase[j] < len(trial.phases) and not any(self.left[j])
                if ready:
                    self.phase[j] += 1
                    self.left[j] = [seconds for _, seconds in self._flows(j)]
                    moved = True
                elif self.phase[j] == len(trial.phases) and self.now >= self.since[j] + trial.compute_s:
                    self.going.remove(j)
                    if self.begun[j] < trial.iterations:
                        self._begin(j)
                    moved = True
            for item, release in enumerate(self.release):
                if self.now >= release and not any(self.drawn[j].item == item for j in self.going):
                    self.stage_end.setdefault((item, self.stage[item]), self.now)
                    stage = [j for j, t in enumerate(self.drawn) if (t.item, t.stage) == (item, self.stage[item] + 1)]
                    for j in stage:
                        self._begin(j)
                    if stage:
                        self.stage[item] += 1
                        moved = True
                    elif self.end[item] == 0:
                        self.end[item] = self.now

    def _begin(self, j: int) -> None:
        self.begun[j] += 1
        self.phase[j], self.since[j] = -1, self.now
        self.going.add(j)


@pytest.mark.parametrize("seed", [*range(6), *long(*range(6, 60))])
def test_no_schedule_with_barriers_beats_a_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    items = int(rng.integers(1, 4))
    drawn = trials(rng, items)
    weight = np.ones(items) if seed % 2 else rng.uniform(0.5, 3.0, items)
    release = np.zeros(items) if seed % 3 else rng.uniform(0.0, 4.0, items)
    jobs = described(drawn, weight, release)

    def objective(urgency: Callable[[int], float]) -> float:
        return float(weight @ (Run(drawn, release).completions(urgency) - release))

    def longest_first(order: tuple[int, ...]) -> float:
        return objective(lambda j: order.index(drawn[j].item) - 1e-6 * float(jobs.length_s[j]))

    best = min(best_static(items, longest_first).total_s, *(objective(lambda _: rng.random()) for _ in range(6)))
    found = values(jobs)
    assert {name: value for name, value in found.items() if value > best * ROUNDING} == {}
    chain = [found[name] for name in ("subset-dp", "barrier", "stage-order")]
    assert chain[0] <= chain[1] * ROUNDING <= chain[2] * ROUNDING**2
    assert best <= 4 * max(found.values())


def values(jobs: IteratingJobs) -> dict[str, float]:
    """Return every bound of iterating jobs by name, those that need the jobs among them."""
    return {**bounds(jobs.instance).values, "barrier": barrier(jobs), "stage-order": stage_order(jobs)}


class Timed(Rows):
    """Rows of a programme whose events are at times that are known, within rounding."""

    at_s: Floats

    def minimise(self, cost: Floats, lower: Floats, upper: Floats, method: str) -> tuple[Floats, float]:
        events = slice(FIRST, FIRST + len(self.at_s))
        lower[events], upper[events] = self.at_s * (1 - 1e-6), self.at_s * (1 + 1e-6) + 1e-12
        return super().minimise(cost, lower, upper, method)


@pytest.mark.parametrize("seed", [*range(10), *long(*range(10, 150))])
def test_every_schedule_satisfies_the_programmes_of_its_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all events, or only some beside the last stages' ends, and with loads that are only bounds, as on several planes."""
    rng = np.random.default_rng(seed)
    items = int(rng.integers(2, 5))
    drawn = trials(rng, items, stages=3)
    release = np.zeros(items) if seed % 3 else rng.uniform(0.0, 4.0, items)
    jobs = described(drawn, rng.uniform(0.1, 3.0, items), release)
    if seed % 5 == 0:
        load = jobs.load * rng.uniform(0.5, 1.0, jobs.load.shape)
        jobs = replace(jobs, load=load, period_s=np.maximum(jobs.lead_s + load.max(axis=1), 0.8 * jobs.period_s))
    programmes = Programmes(jobs)
    names, _ = jobs.stages
    ranks = rng.random(len(drawn))
    for pace, urgency in product(((1.0,), (1.0, 0.5, 0.1)), (lambda j: float(ranks[j]), lambda _: float(rng.random()))):
        run = Run(drawn, release, lambda pace=pace: float(rng.choice(pace)))
        run.completions(urgency)
        number = [names[: s + 1].count(names[s]) - 1 for s in range(programmes.stages)]
        at = {s: run.stage_end[int(names[s]), number[s]] for s in range(programmes.stages)}
        at |= {programmes.stages + i: float(release[i]) for i in range(items) if release[i] > 0}
        for share in (1.0, 0.5):
            kept = [e for e in at if e in programmes.final or rng.random() < share]
            order = tuple(sorted(kept, key=lambda e: (at[e], e)))
            times = np.array([at[e] for e in order])
            assert programmes.solve(order).value <= jobs.weight @ run.end * ROUNDING, order
            monkeypatch.setattr("beamer.bounds.stage_programme.Rows", type("Rows", (Timed,), {"at_s": times}))
            programmes.solve(order)  # an error, were there no such solution
            monkeypatch.undo()


def test_barriers_leave_what_loads_alone_do_not_tell() -> None:
    """Four jobs that compute as long as they send: two of them keep their link busy, so that the others wait for them."""
    drawn = [Trial(i, 0, 10, 1.0, 0.0, ((((0, HOSTS + 1), 1.0),),)) for i in range(4)]
    jobs = described(drawn, np.ones(4), np.zeros(4))
    best = Run(drawn, np.zeros(4)).completions(float).sum()
    found = values(jobs)
    assert found["subset-dp"] == pytest.approx(20 + 21 + 31 + 41)
    assert found["stage-order"] == pytest.approx(best)
    assert found["barrier"] == pytest.approx(best) == pytest.approx(20 + 21 + 40 + 41)
