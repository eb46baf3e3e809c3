"""The figures of Sincronia's programs on the real trace: orders fixed at release, greedy and MADD allocation, epochs."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from beamer.network.allocation import Allocator, Greedy, Madd
from beamer.network.policies import NetworkPolicy, Order, Tier, network_policy
from beamer.network.policies.sincronia_offline import OfflineState
from beamer.network.snapshot import Snapshot
from beamer.sim.replay import replay
from beamer.sim.traces import Trace, read
from tests.support.inputs import FACEBOOK_TRACE, given

MAX_FLOWS = 100
UNIT_BPS = 8 * 2**20  # 1 MB per port and time unit, a unit being a second here
GBPS = 2.0**30  # in their time units, of 1/128 s at 1 Gbit/s, a port moves 2^20 bytes


class Fixed(NetworkPolicy[OfflineState]):
    """Another policy's first order, kept, as the authors' program keeps its orders."""

    State = OfflineState

    def __init__(self, policy: NetworkPolicy[Any]) -> None:
        self.name = policy.name  # type: ignore[misc]
        self._policy = policy

    def order(
        self, state: OfflineState, snapshot: Snapshot, now: float, rng: Random
    ) -> tuple[OfflineState, Order, float | None]:
        keys = [key for key in state.order if key in snapshot.jobs.position]
        if not keys:
            _, first, _ = self._policy.order(self._policy.initial(), snapshot, now, rng)
            keys = [key for tier in first for key in tier.jobs]
        return OfflineState(tuple(keys)), tuple(Tier((key,)) for key in keys), None


@pytest.fixture(scope="module")
def trace() -> Trace:
    return read(given(FACEBOOK_TRACE), "coflow-benchmark")


def small(trace: Trace) -> Trace:
    return Trace(trace.ports, tuple(coflow for coflow in trace.coflows if len(coflow.src) <= MAX_FLOWS))


@pytest.mark.parametrize(
    ("policy", "allocator", "theirs", "within"),
    [
        ("sincronia-offline", Greedy(), 88.767, 0.001),
        ("sebf", Greedy(), 94.897, 0.0001),
        ("scf", Greedy(), 107.5, 0.0001),
        ("lcf", Greedy(), 95.418, 0.0001),
        ("sincronia-offline", Madd(), 92.737, 0.025),  # ours backfills better
        ("sebf", Madd(), 97.569, 0.02),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_offline_orders(trace: Trace, policy: str, allocator: Allocator, theirs: float, within: float) -> None:
    at_once = Trace(trace.ports, tuple(replace(coflow, release_s=0.0) for coflow in small(trace).coflows))
    run = replay(at_once, UNIT_BPS, Fixed(network_policy(policy)), allocator)
    assert len(run.id) == 416
    assert run.mean_cct_s == pytest.approx(theirs, rel=within)


def test_epochs_on_small_coflows(trace: Trace) -> None:
    run = replay(small(trace), 2 * GBPS, network_policy("sincronia"), Greedy())
    assert run.mean_cct_s == pytest.approx(0.24343, rel=1e-4)


@pytest.mark.long
def test_epochs_on_the_whole_trace(trace: Trace) -> None:
    run = replay(trace, GBPS, network_policy("sincronia"), Greedy())
    assert run.mean_cct_s == pytest.approx(25.6954, rel=1e-4)
