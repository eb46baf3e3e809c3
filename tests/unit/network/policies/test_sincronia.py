"""Sincronia's epochs: when they begin, what they admit, and that those which are skipped would have changed nothing."""

from random import Random
from typing import Any

import numpy as np
import pytest

from beamer.network.allocation import Greedy
from beamer.network.policies.sincronia import Sincronia, SincroniaState, _epoch
from beamer.network.policy import Order
from beamer.network.snapshot import Snapshot
from beamer.sim.replay import replay
from beamer.sim.traces import Coflow, Trace

MIB = 8 * 2**20
PORTS = 4


@pytest.mark.parametrize(
    ("now", "start", "length"),
    [(0, 0, 2), (1.9, 0, 2), (2, 2, 2), (4, 4, 4), (7.9, 4, 4), (8, 8, 8), (130, 128, 128), (255.9, 128, 128), (256, 256, 2)],
)
def test_epochs_double_until_they_begin_anew(now: float, start: float, length: float) -> None:
    assert _epoch(now, 256.0) == (start, length)


class EveryEpoch(Sincronia):
    """The same, deciding at the end of every epoch."""

    def order(
        self, state: SincroniaState, snapshot: Snapshot, now: float, rng: Random
    ) -> tuple[SincroniaState, Order, float | None]:
        state, order, _ = super().order(state, snapshot, now, rng)
        unit_s = MIB / float(snapshot.capacity_bps.min())
        start, length = _epoch(now / unit_s, 2.0**self.epochs)
        return state, order, (start + length) * unit_s if snapshot.coflows.in_flight.any() else None


def coflow(name: str, release_s: float, *flows: tuple[int, int, float]) -> Coflow:
    src, dst, sizes = (np.array(column) for column in zip(*flows, strict=True))
    return Coflow(name, release_s, src, dst, sizes.astype(np.float64))


def trace(seed: int, begin_s: float = 0.0) -> Trace:
    rng = Random(seed)
    release_s, coflows = begin_s, []
    for number in range(30):
        flows = {(rng.randrange(PORTS), rng.randrange(PORTS)) for _ in range(rng.randint(1, 5))}
        sized = tuple((src, dst, round(rng.lognormvariate(1.5, 1.8), 1) * MIB / 8 + 1) for src, dst in sorted(flows))
        coflows.append(coflow(str(number), round(release_s, 3), *sized))
        release_s += rng.expovariate(0.08)
    return Trace(PORTS, tuple(coflows))


@pytest.mark.parametrize("seed", range(6))
def test_epochs_that_change_nothing_are_skipped(seed: int) -> None:
    runs: list[Any] = [replay(trace(seed), MIB, policy(), Greedy()) for policy in (Sincronia, EveryEpoch)]
    assert runs[0].completion_s == pytest.approx(runs[1].completion_s, rel=1e-9)
    assert runs[0].decisions < runs[1].decisions


def test_the_clock_s_zero_does_not_matter() -> None:
    late_s = 256.0 * 4_000_000
    early, late = (replay(trace(0, begin_s), MIB, Sincronia(), Greedy()) for begin_s in (0.0, late_s))
    assert late.cct_s == pytest.approx(early.cct_s, rel=1e-3)


class Recorded(EveryEpoch):
    """The same, remembering what was admitted by the begin of the epoch."""

    def __init__(self) -> None:
        self.admitted: dict[float, set[str]] = {}

    def order(
        self, state: SincroniaState, snapshot: Snapshot, now: float, rng: Random
    ) -> tuple[SincroniaState, Order, float | None]:
        state, order, wake_at = super().order(state, snapshot, now, rng)
        self.admitted.setdefault(state.start, {key for key, _ in state.admitted})
        if order:
            assert [tier.jobs[0] for tier in order[: len(state.admitted)]] == [key for key, _ in state.admitted]
        return state, order, wake_at


def test_what_was_released_in_the_first_half_is_admitted_where_it_fits() -> None:
    # two of 7 MiB to one port: at 8 units 2 are left of the first, all of the second, and 4 fit; at 16 the second fits
    first, second = coflow("first", 3.0, (0, 1, 7 * MIB / 8)), coflow("second", 3.5, (2, 1, 7 * MIB / 8))
    late, large = coflow("late", 4.5, (3, 2, 10 * MIB / 8)), coflow("large", 0.0, (3, 3, 500 * MIB / 8))
    policy = Recorded()
    replay(Trace(PORTS, (large, first, second, late)), MIB, policy, Greedy())
    assert policy.admitted[2.0] == policy.admitted[4.0] == set()
    assert policy.admitted[8.0] == {"first"}
    assert policy.admitted[16.0] == {"second"}
