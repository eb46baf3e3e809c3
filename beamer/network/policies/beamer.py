"""Beamer's own policy: stages, or whole studies where their later stages are declared, in the order that ends them early."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np

from beamer.network.arrays import Floats, Ints
from beamer.network.bssi import Items, improved, sequence, weighted_completion
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.ranking import effective_bottleneck_s, without_rounding
from beamer.network.snapshot import Snapshot
from beamer.network.work import RemainingWork, aged, remaining_work

# There is hysteresis, as a reordering rewrites rules at every edge switch, and packets overtake each other meanwhile.
REORDER_GAIN = 0.05  # A new order of work items has to be better than the one in force by this share of the objective.
REORDER_SLOWNESS = 0.1  # A job has to be slower by this share than one before it for the jobs of an item to be reordered.

# These powers say how strongly the time counts for which a stage has been waited for, see `aged`. They were chosen on seeds
# outside the study, by the mean and the 95th percentile of SCTs (docs/experiments/network.md).
AGE_POWER = 0.5
OVERDUE_POWER = 3.0

# These exponents of the coflow index were chosen by trial on seeds outside the study, see docs/experiments/network.md.
RANK_EXPONENT = 2.0  # The order of work items counts so strongly against shortest coflow first.
SLACK_EXPONENT = 0.2  # It counts so strongly that a job's stage waits for slower ones.


@dataclass(frozen=True)
class RankedItem:
    """A work item and its jobs, slowest first, as last ordered. started_s: when the last of them started."""

    item: str
    jobs: tuple[str, ...]
    started_s: float


@dataclass(frozen=True)
class BeamerState:
    """The order in force, most urgent first."""

    order: tuple[RankedItem, ...] = ()


class Beamer(NetworkPolicy[BeamerState]):
    """Order the stages' remaining work by bottleneck-select-scale-iterate (BSSI), then improve that order by local search.

    The idea, to order coflows by what is known of the search's stages, is that of the paper that CITATION.cff names. Its text
    gives us no detail: the rule here is our reconstruction on the BSSI of Sincronia (Agarwal et al. 2018, SIGCOMM), and no
    approximation factor of the paper is claimed for it. `beamer.bounds` says how far a schedule is from a lower bound.

    A work item is a study's remaining work where later rungs are declared, else a stage: chained stages add up to their study's
    makespan. A declared rung's load is predicted from the study's running jobs. A trial that no stage waits for is an item of
    its own with what it has left until it completes, so that trials that a search has promoted go before fresh ones; all such
    trials of a study share its weight (docs/experiments/asynchronous.md, "Searches without barriers").

    Weights of items grow with the time for which their running stages have been waited for, see `aged`: without that, a long
    study's wide first stage waits for the last trials of every shorter study.

    Where the coflows in flight are not known, as in a live system, work items are served strictly one before another, and
    within an item the job with the longest remaining critical path comes first, because it ends the stage. An order then stands
    until the items change or a new one promises more than `REORDER_GAIN` of the objective, and the order within an item until a
    job is more than `REORDER_SLOWNESS` slower than one before it, so that rules do not flap.

    Where they are known, each coflow has an index, the smallest first: the seconds that what is left of it needs alone, times
    rank^RANK_EXPONENT times slack^SLACK_EXPONENT. rank: of its item among those that it shares links with, from 1. slack: the
    remaining critical path of its stage's slowest job, relative to its own job's. A coflow that is nearly done, whose job would
    go on computing, may so pass one of a more urgent study, and a job whose stage does not wait for it yields to others.
    """

    name = "beamer"
    State = BeamerState
    by_coflow = True
    looks_ahead: ClassVar[bool] = True

    def order(self, state: BeamerState, snapshot: Snapshot, now: float, rng: Random) -> tuple[BeamerState, Order, float | None]:
        """Return one divisible tier per work item, most urgent first; with known coflows, one tier per job."""
        work = aged(remaining_work(snapshot, self.looks_ahead), snapshot, now, AGE_POWER, OVERDUE_POWER)
        if snapshot.coflows.in_flight.any():
            return state, by_index(snapshot, work, improved(work.items, sequence(work.items)[0])), None
        if not work.name:
            return BeamerState(), (), None
        previous = {ranked.item: ranked for ranked in state.order}
        left_s = dict(zip(snapshot.jobs.key, work.critical_s.tolist(), strict=True))
        slowest_first = np.lexsort((-without_rounding(work.critical_s), work.item_of_job))
        jobs = tuple(snapshot.jobs.key[j] for j in slowest_first.tolist())
        first = np.searchsorted(work.item_of_job, np.arange(len(work.name) + 1))
        started_s = np.maximum.reduceat(snapshot.jobs.started_s, first[:-1]).tolist()
        bounds = first.tolist()
        ranked = []
        for i in _urgent_first(work, state):
            item = RankedItem(work.name[i], jobs[bounds[i] : bounds[i + 1]], started_s[i])
            ranked.append(_with_hysteresis(item, previous.get(item.item), left_s))
        return BeamerState(tuple(ranked)), tuple(Tier(r.jobs, divisible=True) for r in ranked), None


def by_index(snapshot: Snapshot, work: RemainingWork, urgent_first: Ints) -> Order:
    """Return one tier per job by the index of its coflow, equal ones by their items' ranks, then as registered.

    Jobs that have no coflow in flight come last.
    """
    jobs, in_flight = snapshot.jobs, snapshot.coflows.in_flight
    rank = _rank_on_own_links(work.items, urgent_first)[work.item_of_job]
    left_s = effective_bottleneck_s(snapshot)
    whole = np.where(in_flight, np.maximum(snapshot.remaining - 1, 0), snapshot.remaining)
    critical_s = whole * jobs.iteration_s + np.where(in_flight, left_s, 0.0)
    slowest_s = np.zeros(len(snapshot.stages))
    np.maximum.at(slowest_s, jobs.stage, critical_s)
    slack = np.divide(slowest_s[jobs.stage], critical_s, out=np.ones(len(critical_s)), where=critical_s > 0)
    index = without_rounding(left_s * rank**RANK_EXPONENT * slack**SLACK_EXPONENT)
    return tuple(Tier((jobs.key[i],)) for i in np.lexsort((rank, index, ~in_flight)).tolist())


def _rank_on_own_links(items: Items, urgent_first: Ints) -> Floats:
    """Return 1 plus the number of items that go before each item on a link, averaged over its links by its own load there."""
    position = np.empty(len(urgent_first), np.int64)
    position[urgent_first] = np.arange(len(urgent_first))
    owner = np.repeat(np.arange(len(position)), np.diff(items.first))
    by_link = np.lexsort((position[owner], items.link))
    begins = np.searchsorted(items.link[by_link], np.arange(items.links))
    before = np.empty(len(by_link))
    before[by_link] = np.arange(len(by_link)) - begins[items.link[by_link]]
    load = np.bincount(owner, items.seconds, len(position))
    weighted = np.bincount(owner, items.seconds * before, len(position))
    return 1 + np.divide(weighted, load, out=np.zeros(len(load)), where=load > 0)


def _urgent_first(work: RemainingWork, state: BeamerState) -> list[int]:
    """Return the positions of work items, most urgent first: in the order in force unless a new one is worth a change."""
    new = improved(work.items, sequence(work.items)[0])
    position = {name: i for i, name in enumerate(work.name)}
    if position.keys() == {ranked.item for ranked in state.order}:
        old = np.array([position[ranked.item] for ranked in state.order], np.int64)
        if weighted_completion(work.items, new) > (1 - REORDER_GAIN) * weighted_completion(work.items, old):
            new = old
    order: list[int] = new.tolist()
    return order


def _with_hysteresis(new: RankedItem, previous: RankedItem | None, left_s: Mapping[str, float]) -> RankedItem:
    """Return a work item with its jobs in their previous order, unless one started since or is now too slow for that.

    left_s: the least time that each job still takes.
    """
    if previous is None or new.jobs == previous.jobs or new.started_s > previous.started_s:
        return new
    running = set(new.jobs)
    old = tuple(key for key in previous.jobs if key in running)
    if len(old) < len(new.jobs):
        return new
    slowest_after_s = 0.0
    for key in reversed(old):
        slowest_after_s = max(slowest_after_s, left_s[key])
        if slowest_after_s > (1 + REORDER_SLOWNESS) * left_s[key]:
            return new
    return RankedItem(new.item, old, new.started_s)
