"""Sincronia's order of coflows that are all known at once."""

from dataclasses import dataclass
from random import Random

import numpy as np

from beamer.network.bssi import Items, sequence
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.snapshot import Snapshot


@dataclass(frozen=True)
class OfflineState:
    """The coflows ordered so far, most urgent first."""

    order: tuple[str, ...] = ()


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
        known = [key for key in state.order if key in jobs.position]
        known_keys = set(known)
        new = np.array([i for i, key in enumerate(jobs.key) if key not in known_keys], np.int64)
        fresh = jobs.take(new)
        links = len(snapshot.capacity_bps)
        items = Items(np.ones(len(new)), fresh.first, fresh.link, fresh.seconds, np.zeros(len(new)), links)
        order = (*known, *(fresh.key[i] for i in sequence(items)[0].tolist()))
        return OfflineState(order), tuple(Tier((key,)) for key in order), None
