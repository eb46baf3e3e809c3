"""Beamer's own policy: stages, or whole studies where their later stages are declared, in the order that ends them early."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np

from beamer.network.arrays import Floats, Ints
from beamer.network.bssi import Items, improved, sequence, weighted_completion
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.ranking import effective_bottleneck_s
from beamer.network.snapshot import Snapshot
from beamer.network.work import RemainingWork, remaining_work

# A reordering rewrites rules at every edge switch, and packets overtake each other meanwhile: small gains are not worth it.
REORDER_GAIN = 0.05
REORDER_SLOWNESS = 0.1

PLACE_POWER = 0.5
SPARE_POWER = 0.2


@dataclass(frozen=True)
class Ranked:
    """A unit and its jobs, slowest first, as last ordered."""

    unit: str
    jobs: tuple[str, ...]


@dataclass(frozen=True)
class BeamerState:
    """The order in force, most urgent first."""

    order: tuple[Ranked, ...] = ()


class Beamer(NetworkPolicy[BeamerState]):
    """Order the stages' remaining work by bottleneck-select-scale-iterate, improved. [source: the idea; rebuilt: ALGORITHMS 2]

    The unit is the study's remaining work where later rungs are declared, else the stage: chained stages add up to their
    study's makespan. A declared rung's load is predicted from the study's running jobs.

    Where the coflows in flight are not known, as in a live system, units are served strictly one before another, and inside a
    unit the job with the longest remaining critical path comes first, because it ends the stage. An order then stands until the
    units change or a new one promises more than `REORDER_GAIN` of the objective, and a job's place inside its unit until it is
    more than `REORDER_SLOWNESS` slower than one before it, so that rules do not flap.

    Where they are known, each coflow has an index, the smallest first: the seconds that what is left of it needs alone, times
    powers of its unit's place among those that it shares links with and of how much longer its stage's slowest job takes than
    its own. A coflow that is nearly done, whose job would go on computing, may so pass one of a more urgent study, and a job
    whose stage does not wait for it lets others by. `PLACE_POWER` and `SPARE_POWER` were chosen by trial, see docs/policies.md.
    """

    name = "beamer"
    State = BeamerState
    by_coflow = True
    looks_ahead: ClassVar[bool] = True

    def order(self, state: BeamerState, snapshot: Snapshot, now: float, rng: Random) -> tuple[BeamerState, Order, float | None]:
        """Return one divisible tier per unit, most urgent first; with known coflows, one tier per job."""
        units = remaining_work(snapshot, self.looks_ahead)
        if snapshot.coflows.in_flight.any():
            return state, by_index(snapshot, units, improved(units.items, sequence(units.items)[0])), None
        old = {ranked.unit: ranked.jobs for ranked in state.order}
        slowest_first = np.lexsort((-units.critical_s, units.of_job))
        bounds = np.searchsorted(units.of_job[slowest_first], np.arange(len(units.name) + 1))
        ranked = []
        for u in _urgent_first(units, state):
            places = slowest_first[bounds[u] : bounds[u + 1]]
            jobs = tuple(snapshot.jobs.key[i] for i in places)
            ranked.append(Ranked(units.name[u], _kept(jobs, places, units, snapshot, old.get(units.name[u]))))
        return BeamerState(tuple(ranked)), tuple(Tier(r.jobs, divisible=True) for r in ranked), None


def by_index(snapshot: Snapshot, units: RemainingWork, urgent_first: Ints) -> Order:
    """Return one tier per job by the index of its coflow; jobs that have none in flight come last."""
    jobs, flying = snapshot.jobs, snapshot.coflows.in_flight
    place = _shared_place(units.items, urgent_first)
    left_s = effective_bottleneck_s(snapshot)
    whole = np.where(flying, np.maximum(snapshot.remaining - 1, 0), snapshot.remaining)
    critical_s = whole * jobs.iteration_s + np.where(flying, left_s, 0.0)
    slowest_s = np.zeros(len(snapshot.stages))
    np.maximum.at(slowest_s, jobs.stage, critical_s)
    spare = np.divide(slowest_s[jobs.stage], critical_s, out=np.ones(len(critical_s)), where=critical_s > 0)
    index = left_s * place[units.of_job] ** PLACE_POWER * spare**SPARE_POWER
    return tuple(Tier((jobs.key[i],)) for i in np.lexsort((place[units.of_job], index, ~flying)).tolist())


def _shared_place(items: Items, urgent_first: Ints) -> Floats:
    """Return 1 plus how many units, of those that have used a link, go before each there, on average over its own load."""
    position = np.empty(len(urgent_first), np.int64)
    position[urgent_first] = np.arange(len(urgent_first))
    owner = np.repeat(np.arange(len(position)), np.diff(items.first))
    by_link = np.lexsort((position[owner], items.link))
    begins = np.searchsorted(items.link[by_link], np.arange(items.links))
    before = np.empty(len(by_link))
    before[by_link] = np.arange(len(by_link)) - begins[items.link[by_link]]
    load = np.bincount(owner, items.seconds, len(position))
    met = np.bincount(owner, items.seconds * before, len(position))
    return 1 + np.divide(met, load, out=np.zeros(len(load)), where=load > 0)


def _urgent_first(units: RemainingWork, state: BeamerState) -> list[int]:
    new = improved(units.items, sequence(units.items)[0])
    position = {name: i for i, name in enumerate(units.name)}
    if position.keys() == {ranked.unit for ranked in state.order}:
        old = np.array([position[ranked.unit] for ranked in state.order], np.int64)
        if weighted_completion(units.items, new) > (1 - REORDER_GAIN) * weighted_completion(units.items, old):
            new = old
    order: list[int] = new.tolist()
    return order


def _kept(
    jobs: tuple[str, ...], places: Ints, units: RemainingWork, snapshot: Snapshot, old: Sequence[str] | None
) -> tuple[str, ...]:
    """Return the jobs of a unit as they stood, unless one is now too much slower than one before it."""
    if old is None or jobs == old:
        return jobs
    here = set(jobs)
    stood = tuple(key for key in old if key in here)
    if len(stood) < len(jobs):
        return jobs
    left = units.critical_s[[snapshot.jobs.position[key] for key in stood]]
    slowest_behind = np.maximum.accumulate(left[::-1])[::-1]
    return stood if bool((slowest_behind <= (1 + REORDER_SLOWNESS) * left).all()) else jobs
