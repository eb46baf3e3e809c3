"""Beamer's order, improved by simulating others."""

from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np

from beamer.network.arrays import Ints
from beamer.network.bssi import improved, sequence
from beamer.network.lookahead import Lookahead
from beamer.network.policies.beamer import by_index
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.snapshot import Snapshot
from beamer.network.work import RemainingWork, remaining_work

LEAST_GAIN = 0.01  # share by which a simulation has to find an order better than the start: it takes a coflow for one flow


@dataclass(frozen=True)
class SearchState:
    """The order found, as names of work items, most urgent first."""

    order: tuple[str, ...] = ()


class BeamerSearch(NetworkPolicy[SearchState]):
    """Start from `beamer`'s order and accept every change that a short simulation of the running jobs finds better.

    A local search of our own: a change moves one work item, drawn at random, to another position. It runs when the set of work
    items changes. By its own measure it is never worse than its start, which it has to improve on by `LEAST_GAIN`.

    evaluations: simulations per search.
    """

    name = "beamer-search"
    State = SearchState
    by_coflow = True
    evaluations: ClassVar[int] = 15

    def order(self, state: SearchState, snapshot: Snapshot, now: float, rng: Random) -> tuple[SearchState, Order, float | None]:
        """Return one divisible tier per work item, most urgent first; with known coflows, one tier per job."""
        work = remaining_work(snapshot, looks_ahead=True)
        if set(state.order) != set(work.name):
            found = self._search(snapshot, work, rng)
            state = SearchState(tuple(work.name[i] for i in found))
        position = {name: i for i, name in enumerate(work.name)}
        order = np.array([position[name] for name in state.order], np.int64)
        if snapshot.coflows.in_flight.any():
            return state, by_index(snapshot, work, order), None
        members = [np.flatnonzero(work.item_of_job == i) for i in order]
        slowest_first = [jobs[np.argsort(-work.critical_s[jobs], kind="stable")] for jobs in members]
        return state, tuple(Tier(tuple(snapshot.jobs.key[j] for j in jobs), divisible=True) for jobs in slowest_first), None

    def _search(self, snapshot: Snapshot, work: RemainingWork, rng: Random) -> Ints:
        start = best = improved(work.items, sequence(work.items)[0])
        if len(start) < 2:
            return start
        lookahead = Lookahead(snapshot, work)
        start_objective = least = lookahead.objective_s(start)
        for _ in range(self.evaluations - 1):
            source, target = rng.sample(range(len(best)), 2)
            candidate = np.insert(np.delete(best, source), target, best[source])
            objective = lookahead.objective_s(candidate)
            if objective < least:
                best, least = candidate, objective
        return best if least < (1 - LEAST_GAIN) * start_objective else start
