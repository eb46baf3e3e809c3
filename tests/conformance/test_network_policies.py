"""Every registered network policy passes the suites that users run on their own, with every allocator that suits it."""

from itertools import product

import pytest

from beamer.errors import InputError
from beamer.network.allocation import ALLOCATORS, allocator, check_pair
from beamer.network.policies import NETWORK_POLICIES, network_policy
from beamer.testing.network_policies import NETWORK_POLICY_CHECKS, NetworkPolicyCheck
from beamer.testing.replay import REPLAY_CHECKS, ReplayCheck
from beamer.testing.simulation import SIMULATION_CHECKS, SimulationCheck


def suits(policy: str, chosen: str) -> bool:
    try:
        check_pair(network_policy(policy), allocator(chosen))
    except InputError:
        return False
    return True


PAIRS = [pair for pair in product(NETWORK_POLICIES, ALLOCATORS) if suits(*pair)]


@pytest.mark.parametrize("name", NETWORK_POLICIES)
@pytest.mark.parametrize("check", NETWORK_POLICY_CHECKS, ids=lambda check: check.__name__)
def test_order(check: NetworkPolicyCheck, name: str) -> None:
    check(network_policy(name))


@pytest.mark.parametrize(("policy", "chosen"), PAIRS)
@pytest.mark.parametrize("check", SIMULATION_CHECKS, ids=lambda check: check.__name__)
def test_simulated_runs(check: SimulationCheck, policy: str, chosen: str) -> None:
    check(network_policy(policy), allocator(chosen))


@pytest.mark.parametrize(("policy", "chosen"), PAIRS)
@pytest.mark.parametrize("check", REPLAY_CHECKS, ids=lambda check: check.__name__)
def test_replays(check: ReplayCheck, policy: str, chosen: str) -> None:
    check(network_policy(policy), allocator(chosen))
