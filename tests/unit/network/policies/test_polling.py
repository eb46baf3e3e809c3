"""Policies that follow the bytes sent: instants of polling that they leave out, against a policy that looks at each."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamer.decision.policy import Stateless
from beamer.network.allocation import Allocator, Classes, Greedy
from beamer.network.policies import NetworkPolicy, Order
from beamer.network.policies.aalo import FIRST_LIMIT_BITS, Aalo
from beamer.network.policies.fifo_lm import FifoLm
from beamer.network.ranking import polling_interval_s
from beamer.network.snapshot import Snapshot
from beamer.sim.replay import Replay, replay
from beamer.sim.traces import Coflow, Trace
from beamer.testing.profile import PROFILE

PORTS = 4
UNIT_BYTES = FIRST_LIMIT_BITS / 8 / 10  # ten of them end the first queue of aalo
RATE_BPS = 8 * UNIT_BYTES  # one a second

Polling = type[Aalo] | type[FifoLm]
POLLING: tuple[tuple[Polling, Allocator], ...] = ((Aalo, Greedy()), (FifoLm, Classes(queues=None)))


class Logged(NetworkPolicy[Stateless]):
    """Delegate to `policy` and note its orders that differ from the one before, with their instants.

    every: decide at every instant of polling while a coflow is in flight.
    """

    by_coflow = True
    shares = True
    needs_coflows = True
    State = Stateless

    def __init__(self, policy: Aalo | FifoLm, every: bool) -> None:
        self._policy, self._every = policy, every
        self.name = policy.name  # type: ignore[misc]
        self.shares = policy.shares  # type: ignore[misc]
        self.changes: list[tuple[float, Order]] = []

    def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
        """Return the order of `policy`."""
        state, order, wake_at = self._policy.order(state, snapshot, now, rng)
        if not self.changes or self.changes[-1][1] != order:
            self.changes.append((now, order))
        in_flight = snapshot.coflows.in_flight
        if self._every and in_flight.any():
            idle_s = now - float(snapshot.coflows.released_s[in_flight].max())
            wake_at = now + polling_interval_s(self._policy.interval_s, idle_s)
        return state, order, wake_at


def drawn_flows(draw: st.DrawFn) -> list[tuple[int, int, float]]:
    port = st.integers(0, PORTS - 1)
    return draw(st.lists(st.tuples(port, port, st.floats(0.1, 60.0)), min_size=1, max_size=6))


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Draw coflows that together take some minutes, with flows of units."""
    releases = sorted(draw(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=8)))
    return Trace(PORTS, tuple(coflow(f"c{i}", at, *drawn_flows(draw)) for i, at in enumerate(releases)))


def coflow(name: str, release_s: float, *flows: tuple[int, int, float]) -> Coflow:
    src, dst, units = zip(*flows, strict=True)
    return Coflow(name, release_s, np.array(src, np.int64), np.array(dst, np.int64), UNIT_BYTES * np.array(units))


def run(trace: Trace, policy: Polling, allocator: Allocator, every: bool) -> tuple[Replay, list[tuple[float, Order]]]:
    logged = Logged(policy(), every)
    return replay(trace, RATE_BPS, logged, allocator), logged.changes


@pytest.mark.parametrize(("policy", "allocator"), POLLING, ids=lambda value: value.name)
def test_the_instants_that_are_left_out_would_have_changed_nothing(policy: Polling, allocator: Allocator) -> None:
    @PROFILE
    @given(traces())
    def check(trace: Trace) -> None:
        few, changes = run(trace, policy, allocator, every=False)
        all_of_them, expected = run(trace, policy, allocator, every=True)
        assert [order for _, order in changes] == [order for _, order in expected]
        assert [at for at, _ in changes] == pytest.approx([at for at, _ in expected], rel=1e-9)
        assert few.completion_s == pytest.approx(all_of_them.completion_s, rel=1e-9)
        assert few.decisions <= all_of_them.decisions

    check()


@pytest.mark.parametrize(("policy", "allocator"), POLLING, ids=lambda value: value.name)
def test_a_coflow_is_looked_at_when_it_may_have_come_to_its_limit(policy: Polling, allocator: Allocator) -> None:
    # That is 10 units, or 41.6 as a percentile of 50 and 8: after so many seconds, as the large coflow goes first.
    trace = Trace(PORTS, (coflow("large", 0.0, (0, 1, 50.0)), coflow("small", 0.0, (0, 1, 8.0))))
    few, changes = run(trace, policy, allocator, every=False)
    all_of_them, _ = run(trace, policy, allocator, every=True)
    limit_s = 10.0 if policy is Aalo else 41.6
    assert len(changes) == few.decisions == 4, "a start, one look, two ends"
    assert limit_s <= changes[1][0] <= 1.05 * limit_s + policy.interval_s
    assert all_of_them.decisions > 25


def test_a_coflow_that_ends_before_its_limit_is_not_looked_at() -> None:
    below = coflow("below", 0.0, (0, 1, 6.0), (2, 3, 3.9))  # two senders could be done with 10 units in 5 seconds
    assert run(Trace(PORTS, (below,)), Aalo, Greedy(), every=False)[0].decisions == 2
    alone = coflow("alone", 0.0, (0, 1, 60.0), (2, 3, 30.0))  # the percentile of one size is that size
    assert run(Trace(PORTS, (alone,)), FifoLm, Classes(queues=None), every=False)[0].decisions == 2
