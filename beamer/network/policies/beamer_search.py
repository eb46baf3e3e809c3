"""Beamer's order, improved by trying others out."""

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

GAIN = 0.01


@dataclass(frozen=True)
class SearchState:
    """The order found, most urgent unit first."""

    units: tuple[str, ...] = ()


class BeamerSearch(NetworkPolicy[SearchState]):
    """Start from `beamer`'s order and keep every change that a short simulation of what runs finds better. [rebuilt]

    A change moves one unit to another place. The search runs when other units run than before. By its own measure it is
    never worse than its start, which it has to better by `GAIN`, as the simulation takes a coflow for one flow.

    evaluations: simulations that one search may spend.
    """

    name = "beamer-search"
    State = SearchState
    by_coflow = True
    evaluations: ClassVar[int] = 15

    def order(self, state: SearchState, snapshot: Snapshot, now: float, rng: Random) -> tuple[SearchState, Order, float | None]:
        """Return one divisible tier per unit, most urgent first; with known coflows, one tier per job."""
        units = remaining_work(snapshot, looks_ahead=True)
        if set(state.units) != set(units.name):
            found = self._search(snapshot, units, rng)
            state = SearchState(tuple(units.name[u] for u in found))
        position = {name: u for u, name in enumerate(units.name)}
        order = np.array([position[name] for name in state.units], np.int64)
        if snapshot.coflows.in_flight.any():
            return state, by_index(snapshot, units, order), None
        members = [np.flatnonzero(units.of_job == u) for u in order]
        slowest_first = [places[np.argsort(-units.critical_s[places], kind="stable")] for places in members]
        return state, tuple(Tier(tuple(snapshot.jobs.key[i] for i in places), True) for places in slowest_first), None

    def _search(self, snapshot: Snapshot, units: RemainingWork, rng: Random) -> Ints:
        start = best = improved(units.items, sequence(units.items)[0])
        if len(start) < 2:
            return start
        lookahead = Lookahead(snapshot, units)
        of_start = least = lookahead.objective_s(start)
        for _ in range(self.evaluations - 1):
            taken, put = rng.sample(range(len(best)), 2)
            tried = np.insert(np.delete(best, taken), put, best[taken])
            objective = lookahead.objective_s(tried)
            if objective < least:
                best, least = tried, objective
        return best if least < (1 - GAIN) * of_start else start
