"""Sincronia's online algorithm: epochs, each of which admits the coflows that fit into it."""

import math
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np

from beamer.network.arrays import Floats, Ints
from beamer.network.bssi import Items, sequence
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.ranking import bottleneck_s, effective_bottleneck_s, without_rounding
from beamer.network.snapshot import Snapshot

ADMITTED = 0.5  # The relaxed program has to admit this share of a coflow for the coflow to count as admitted.
UNIT_BITS = 8 * 2**20  # A port moves so many bits in a unit of time.
ROUNDING = 1e-4  # A decision asked for at an epoch's end may come so many units of time before it.

Coflow = tuple[str, float]
"""The key of its job and when it was released; that of the job's start where coflows are not known."""


@dataclass(frozen=True)
class SincroniaState:
    """The epoch that was decided on last.

    origin: of time, a multiple of 2^`Sincronia.epochs` units; None before the first coflow. start: its first unit of time.
    admitted: coflows, the most urgent first. sorted_s: when the others were sorted.
    """

    origin: float | None = None
    start: float = -1.0
    admitted: tuple[Coflow, ...] = ()
    sorted_s: float = 0.0


class Sincronia(NetworkPolicy[SincroniaState]):
    """Order by epochs of doubling length: Sincronia's online algorithm (Agarwal et al. 2018, SIGCOMM).

    As the authors' program does it, whose published figures come out within 0.01 %. Time counts in units in which the slowest
    link moves 1 MiB. Every 2^`epochs` units epochs begin anew: the first lasts for 2 units, every further one as long as all
    since then. When one begins, the coflows released in the first half of all time (since the period in which the first came)
    are candidates for half its length: a linear program admits as much as fits into that on every port of what they have left,
    and those admitted by half or more are served in BSSI order. All others fill the bandwidth that is left, by the time that
    they need alone over the time that they have waited plus 2^(`epochs` - 1) units, ties by release. They are sorted when an
    epoch begins or a coflow arrives. Epochs that would change neither are not waited for.

    epochs: until they begin anew.
    """

    name = "sincronia"
    State = SincroniaState
    by_coflow = True
    epochs: ClassVar[int] = 8

    def order(
        self, state: SincroniaState, snapshot: Snapshot, now: float, rng: Random
    ) -> tuple[SincroniaState, Order, float | None]:
        """Return one tier per job; those without a coflow in flight last."""
        jobs, coflows = snapshot.jobs, snapshot.coflows
        if not jobs.key:
            return state, (), None
        unit_s = UNIT_BITS / float(snapshot.capacity_bps.min())
        period = 2.0**self.epochs
        start, length = _epoch(now / unit_s, period)
        released = coflows.released_s
        known = bool(coflows.in_flight.any())
        waits = coflows.in_flight if known else np.ones(len(jobs.key), np.bool_)
        origin = (released[waits].min() / unit_s + ROUNDING) // period * period if state.origin is None else state.origin
        keys = tuple(zip(jobs.key, released.tolist(), strict=True))
        if start == state.start:
            waiting = {keys[i] for i in np.flatnonzero(waits).tolist()}
            admitted = tuple(one for one in state.admitted if one in waiting)
        elif known and now > (start + ROUNDING) * unit_s:  # Nothing could be admitted when the epoch began.
            admitted = ()
        else:
            candidates = np.flatnonzero(waits & (released <= ((origin + start) / 2 + ROUNDING) * unit_s))
            admitted = tuple(keys[i] for i in _admitted(snapshot, candidates, length / 2 * unit_s).tolist())
        sorted_s = max(state.sorted_s, start * unit_s, float(released[waits].max()))
        alone_s = bottleneck_s(jobs, jobs.seconds)
        age_s = sorted_s - released + period / 2 * unit_s
        ahead = set(admitted)
        by_age = np.lexsort((released, without_rounding(alone_s / age_s), ~waits))
        others = np.array([i for i in by_age.tolist() if keys[i] not in ahead], np.int64)
        order = tuple(Tier((key,)) for key in (*(key for key, _ in admitted), *(jobs.key[i] for i in others.tolist())))
        state = SincroniaState(float(origin), start, admitted, sorted_s)
        if not known:
            return state, order, None
        rest = others[waits[others]]
        most_s = period / 4 * unit_s / ADMITTED  # An admitted coflow has at most so many seconds left.
        admissible_s = np.maximum(2 * released[rest] - origin * unit_s, now + effective_bottleneck_s(snapshot)[rest] - most_s)
        change_s = now if admitted else min(admissible_s.min(), sorted_s + _until_another_order_s(alone_s[rest], age_s[rest]))
        if math.isinf(change_s):
            return state, order, None
        start, length = _epoch(max(change_s, now) / unit_s, period)
        return state, order, (start + length) * unit_s


def _until_another_order_s(alone_s: Floats, age_s: Floats) -> float:
    """Return in how many seconds two neighbours in an order by time alone over age change places."""
    first, then = alone_s[:-1], alone_s[1:]
    falls = first > then
    seconds = (then * age_s[:-1] - first * age_s[1:])[falls] / (first - then)[falls]
    return float(seconds.min(initial=math.inf))


def _epoch(now: float, period: float) -> tuple[float, float]:
    """Return when the epoch in progress began, and its length, in units of time."""
    began = (now + ROUNDING) // period * period
    since = now + ROUNDING - began
    length = 2.0 ** int(math.log2(max(since, 2.0)))
    return (began if since < 2.0 else began + length), length


def _admitted(snapshot: Snapshot, candidates: Ints, length_s: float) -> Ints:
    """Return those of `candidates` that fit into so many seconds together, in BSSI order."""
    jobs, links = snapshot.jobs, len(snapshot.capacity_bps)
    row = np.full(len(jobs.key), -1)
    row[candidates] = np.arange(len(candidates))
    row, link, seconds = row[jobs.owner], jobs.link, snapshot.coflows.seconds
    row, link, seconds = row[row >= 0], link[row >= 0], seconds[row >= 0]
    crowded = np.bincount(link, seconds, links) > length_s
    share = np.ones(len(candidates))
    if crowded.any():
        from scipy.optimize import linprog  # type: ignore[import-untyped]  # The import takes a second.
        from scipy.sparse import csr_array  # type: ignore[import-untyped]

        loads = csr_array((seconds, (link, row)), shape=(links, len(candidates)))[crowded]
        share = linprog(-share, A_ub=loads, b_ub=np.full(loads.shape[0], length_s), bounds=(0, 1), method="highs").x
    taken = share[row] >= ADMITTED
    candidates = candidates[share >= ADMITTED]
    jobs = jobs.take(candidates)
    items = Items(np.ones(len(candidates)), jobs.first, jobs.link, seconds[taken], np.zeros(len(candidates)), links)
    return candidates[sequence(items)[0]]
