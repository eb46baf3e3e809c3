"""Every registered network policy passes the suites that users run on their own, with every allocator that suits it."""

from typing import Any

import pytest

from beamer.errors import InputError
from beamer.network.allocation import ALLOCATORS, Classes, allocator, check_pair
from beamer.network.policies import NETWORK_POLICIES, network_policy
from beamer.testing.network_policies import NETWORK_POLICY_CHECKS, NetworkPolicyCheck
from tests.support.replay_suite import REPLAY_CHECKS, ReplayCheck
from tests.support.simulation_suite import SIMULATION_CHECKS, SimulationCheck
from tests.support.tiers import few, long

KINDS = ("fair", "sebf", "aalo", "sincronia", "beamer-plan")
"""Without an order, by a key, by what was sent, in batches, by a plan of the future; the others are of these kinds."""


def suits(policy: str, chosen: str) -> bool:
    try:
        check_pair(network_policy(policy), allocator(chosen))
    except InputError:
        return False
    return True


def pairs() -> list[Any]:
    """Return all pairs: in every run one policy of each kind as it is deployed, and `beamer` with each allocator."""
    found: list[Any] = []
    for policy in NETWORK_POLICIES:
        suitable = sorted((chosen for chosen in ALLOCATORS if suits(policy, chosen)), key=lambda chosen: chosen != Classes.name)
        cases = [(policy, chosen) for chosen in suitable]
        always = len(cases) if policy == "beamer" else int(policy in KINDS)
        found += [*cases[:always], *long(*cases[always:])]
    return found


PAIRS = pairs()


@pytest.mark.parametrize("name", few(NETWORK_POLICIES, {"beamer", *KINDS}))
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
