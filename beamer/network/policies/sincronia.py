"""Sincronia's online algorithm: epochs, each of which takes on what fits into it."""

from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np

from beamer.network.arrays import Ints
from beamer.network.bssi import Items, sequence
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.snapshot import Snapshot

ADMITTED = 0.5  # share that the relaxation has to take of a coflow


@dataclass(frozen=True)
class SincroniaState:
    """The epoch that runs.

    number: 1 for the first, 0 before it. end_s: when the next one starts. ranked: what was there when it started, the most
    urgent first.
    """

    number: int = 0
    end_s: float = 0.0
    ranked: tuple[str, ...] = ()


class Sincronia(NetworkPolicy[SincroniaState]):
    """Order by epochs of doubling length. [source: Sincronia; rebuilt where said: ALGORITHMS 3]

    When an epoch starts, the coflows that are there are candidates for a length of 2^(k-1) units: a linear program takes on as
    many as fit into it on every port, those taken by half or more are ordered by BSSI, and the epoch runs for twice the length.
    The others, and what arrives meanwhile, fill what bandwidth is left. Rebuilt: lengths stop doubling at epoch `longest` while
    coflows come and go, the others come in BSSI order too, arrivals behind them, and coflows that do not even fit by half stay
    out of the program.

    unit_s: length of the first epoch.
    """

    name = "sincronia"
    State = SincroniaState
    by_coflow = True
    unit_s: ClassVar[float] = 8e-3
    longest: ClassVar[int] = 8

    def order(
        self, state: SincroniaState, snapshot: Snapshot, now: float, rng: Random
    ) -> tuple[SincroniaState, Order, float | None]:
        """Return one tier per job; those without a coflow in flight last."""
        jobs, coflows = snapshot.jobs, snapshot.coflows
        if not jobs.key:
            return SincroniaState(), (), None
        if now >= state.end_s * (1 - 1e-12):
            unchanged = set(state.ranked) == set(jobs.key)
            number = state.number + 1 if unchanged else min(state.number + 1, self.longest)
            length_s = self.unit_s * 2 ** (number - 1)
            candidates = np.flatnonzero(coflows.in_flight) if coflows.in_flight.any() else np.arange(len(jobs.key))
            ranked = tuple(jobs.key[i] for i in _ranked(snapshot, candidates, length_s).tolist())
            state = SincroniaState(number, now + 2 * length_s, ranked)
        first = [key for key in state.ranked if key in jobs.position]
        taken = set(first)
        arrived = [jobs.key[i] for i in np.lexsort((coflows.released_s, ~coflows.in_flight)).tolist()]
        order = (*first, *(key for key in arrived if key not in taken))
        return state, tuple(Tier((key,)) for key in order), state.end_s


def _ranked(snapshot: Snapshot, candidates: Ints, length_s: float) -> Ints:
    """Return `candidates`, those that the epoch takes on first, either part in BSSI order."""
    part = snapshot.jobs.take(candidates)
    here = np.zeros(len(snapshot.jobs.key), np.bool_)
    here[candidates] = True
    seconds = snapshot.coflows.seconds[here[snapshot.jobs.owner]]
    links = len(snapshot.capacity_bps)
    longest = np.zeros(len(candidates))
    np.maximum.at(longest, part.owner, seconds)
    share = (longest * ADMITTED <= length_s).astype(np.float64)  # of more than twice the length not even half would be taken
    small = np.flatnonzero(share)
    loads = np.bincount(part.link, seconds * share[part.owner], links)
    crowded = np.flatnonzero(loads > length_s)
    if len(crowded):
        from scipy.optimize import linprog  # type: ignore[import-untyped]  # a second to import, which others need not wait for
        from scipy.sparse import csr_array  # type: ignore[import-untyped]

        table = csr_array((seconds, (part.link, part.owner)), shape=(links, len(candidates)))
        relaxed = linprog(
            -np.ones(len(small)),
            A_ub=table[crowded][:, small],
            b_ub=np.full(len(crowded), length_s),
            bounds=(0, 1),
            method="highs",
        )
        share[small] = relaxed.x
    items = Items(np.ones(len(candidates)), part.first, part.link, seconds, np.zeros(len(candidates)), links)
    places = sequence(items)[0]
    return candidates[places[np.argsort(share[places] < ADMITTED, kind="stable")]]
