"""What rounding makes of equal coflows decides nothing: their order follows the policies' rules for ties."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from beamer.decision.policy import Stateless
from beamer.network.allocation import Greedy
from beamer.network.policies import NETWORK_POLICIES, NetworkPolicy, Order, Tier, network_policy
from beamer.network.policies.aalo import FIRST_LIMIT_BITS, Aalo
from beamer.network.policies.fifo_lm import FifoLm
from beamer.network.ranking import without_rounding
from beamer.network.snapshot import Snapshot
from beamer.sim.replay import replay
from beamer.sim.traces import Coflow, Trace

MEGABIT = 1e6


class FirstSnapshot(NetworkPolicy[Stateless]):
    """Keep the first snapshot, in which the coflows of a trace have just been released."""

    by_coflow = True
    State = Stateless
    name = "first-snapshot"

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None

    def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
        self.snapshot = self.snapshot or snapshot
        return state, tuple(Tier((key,)) for key in snapshot.jobs.key), None


def released(*sizes: tuple[float, ...]) -> Snapshot:
    """Return what policies see of coflows that are released at once, each with flows between two ports of its own."""
    coflows = tuple(
        Coflow(
            f"c{i}",
            0.0,
            np.full(len(flows), 2 * i, np.int64),
            np.full(len(flows), 2 * i + 1, np.int64),
            MEGABIT * np.array(flows),
        )
        for i, flows in enumerate(sizes)
    )
    policy = FirstSnapshot()
    replay(Trace(2 * len(sizes), coflows), int(8 * MEGABIT), policy, Greedy())
    assert policy.snapshot is not None
    return policy.snapshot


def order_of(policy: NetworkPolicy[Stateless], snapshot: Snapshot) -> list[str]:
    order = policy.order(policy.State(), snapshot, 0.0, Random(0))[1]
    return [key.rpartition("/")[2] for tier in order for key in tier.jobs]


def test_numbers_that_differ_by_rounding_are_equal_and_others_are_not() -> None:
    whole, summed, more = without_rounding(np.array([0.3, 0.1 + 0.2, 0.30000001])).tolist()
    assert whole == summed < more
    assert without_rounding(np.array([0.0, 5e300])).tolist() == [0.0, 5e300]


@pytest.mark.parametrize("name", ["beamer", "sebf"])
def test_of_coflows_that_last_as_long_the_first_goes_first_however_their_flows_sum_up(name: str) -> None:
    assert 0.1 + 0.2 > 0.3
    policy = network_policy(name)
    first, then = released((0.1, 0.2), (0.3,)), released((0.3,), (0.1, 0.2))
    assert order_of(policy, first) == order_of(policy, then)
    assert name in NETWORK_POLICIES


def test_a_coflow_that_has_sent_its_limit_but_for_rounding_is_in_the_next_queue() -> None:
    snapshot = released((20.0,), (20.0,))
    sent = np.array([FIRST_LIMIT_BITS * (1 - 1e-12), FIRST_LIMIT_BITS * (1 - 1e-6)])
    ordered = order_of(Aalo(), replace(snapshot, coflows=replace(snapshot.coflows, sent_bits=sent)))
    assert ordered == order_of(Aalo(), snapshot)[::-1]


def test_a_coflow_that_has_sent_the_threshold_but_for_rounding_is_not_heavy() -> None:
    class Known(FifoLm):
        heavy_bits = 1e6

    def groups(sent_bits: float) -> int:
        snapshot = released((20.0,), (20.0,))
        sent = np.array([sent_bits, 0.0])
        return len(
            Known().order(Stateless(), replace(snapshot, coflows=replace(snapshot.coflows, sent_bits=sent)), 0.0, Random(0))[1]
        )

    assert groups(1e6 * (1 + 1e-12)) == 2
    assert groups(1e6 * (1 + 1e-6)) == 1
