"""Sincronia's online algorithm: epochs, each of which admits the coflows that fit into it."""

from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np

from beamer.network.arrays import Ints
from beamer.network.bssi import Items, sequence
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.snapshot import Run, Snapshot

ADMITTED = 0.5  # share of a coflow that the relaxed program has to admit for the coflow to count as admitted


@dataclass(frozen=True)
class SincroniaState:
    """The epoch in progress.

    number: 1 for the first, 0 before it. end_s: when the next one starts. ranked: the coflows in flight when it started, the
    most urgent first.
    """

    number: int = 0
    end_s: float = 0.0
    ranked: tuple[Run, ...] = ()


class Sincronia(NetworkPolicy[SincroniaState]):
    """Order by epochs of doubling length: Sincronia's online algorithm (Agarwal et al. 2018, SIGCOMM).

    When an epoch starts, the coflows in flight are candidates for a length of 2^(k-1) units: a linear program admits as many as
    fit into it on every port, those admitted by half or more are ordered by BSSI, and the epoch lasts for twice the length.
    The others, and what arrives meanwhile, fill the bandwidth that is left. Our reconstruction where the publication gives no
    detail: lengths stop doubling at epoch `longest` while coflows come and go; the others come in BSSI order, too, and arrivals
    after them; coflows of which not even half fits stay out of the program.

    unit_s: length of the first epoch. longest: the number of the epoch from which on lengths stay the same.
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
            unchanged = set(state.ranked) == set(jobs.run)
            number = state.number + 1 if unchanged else min(state.number + 1, self.longest)
            length_s = self.unit_s * 2 ** (number - 1)
            candidates = np.flatnonzero(coflows.in_flight) if coflows.in_flight.any() else np.arange(len(jobs.key))
            ranked = tuple(jobs.run[i] for i in _ranked(snapshot, candidates, length_s).tolist())
            state = SincroniaState(number, now + 2 * length_s, ranked)
        running = set(jobs.run)
        first = [run[0] for run in state.ranked if run in running]
        ranked_keys = set(first)
        arrived = [jobs.key[i] for i in np.lexsort((coflows.released_s, ~coflows.in_flight)).tolist()]
        order = (*first, *(key for key in arrived if key not in ranked_keys))
        return state, tuple(Tier((key,)) for key in order), state.end_s


def _ranked(snapshot: Snapshot, candidates: Ints, length_s: float) -> Ints:
    """Return `candidates`, those that the epoch admits first, either part in BSSI order."""
    part = snapshot.jobs.take(candidates)
    is_candidate = np.zeros(len(snapshot.jobs.key), np.bool_)
    is_candidate[candidates] = True
    seconds = snapshot.coflows.seconds[is_candidate[snapshot.jobs.owner]]
    links = len(snapshot.capacity_bps)
    longest = np.zeros(len(candidates))
    np.maximum.at(longest, part.owner, seconds)
    share = (longest * ADMITTED <= length_s).astype(np.float64)  # of more than twice the length not even half would be admitted
    small = np.flatnonzero(share)
    loads = np.bincount(part.link, seconds * share[part.owner], links)
    crowded = np.flatnonzero(loads > length_s)
    if len(crowded):
        from scipy.optimize import linprog  # type: ignore[import-untyped]  # takes a second to import
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
    positions = sequence(items)[0]
    return candidates[positions[np.argsort(share[positions] < ADMITTED, kind="stable")]]
