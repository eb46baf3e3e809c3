"""Sincronia's order of coflows that are all known at once."""

from dataclasses import dataclass
from random import Random

import numpy as np

from beamer.network.bssi import Items, sequence
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.snapshot import Run, Snapshot


@dataclass(frozen=True)
class OfflineState:
    """The coflows ordered so far, most urgent first."""

    order: tuple[Run, ...] = ()


class SincroniaOffline(NetworkPolicy[OfflineState]):
    """Order coflows by BSSI when they are first seen, and never again.

    The offline algorithm of Sincronia (Agarwal et al. 2018, SIGCOMM), for coflows that are all released at once. Coflows
    released later go after all that are ordered already, in a BSSI order of their own.
    """

    name = "sincronia-offline"
    State = OfflineState

    def order(
        self, state: OfflineState, snapshot: Snapshot, now: float, rng: Random
    ) -> tuple[OfflineState, Order, float | None]:
        """Return one tier per job, by its coflow as a whole."""
        jobs = snapshot.jobs
        running = set(jobs.run)
        known = [run for run in state.order if run in running]
        already = set(known)
        new = np.array([i for i, run in enumerate(jobs.run) if run not in already], np.int64)
        fresh = jobs.take(new)
        links = len(snapshot.capacity_bps)
        items = Items(np.ones(len(new)), fresh.first, fresh.link, fresh.seconds, np.zeros(len(new)), links)
        order = (*known, *(fresh.run[i] for i in sequence(items)[0].tolist()))
        return OfflineState(order), tuple(Tier((key,)) for key, _ in order), None
