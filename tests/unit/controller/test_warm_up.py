"""What a follower does ahead of leading."""

import pytest

from beamer.network.policies import NETWORK_POLICIES, network_policy
from beamer.testing.fabrics import star
from controller.warm_up import warm_up


@pytest.mark.parametrize("policy", sorted(NETWORK_POLICIES))
def test_any_policy_decides_ahead(policy: str) -> None:
    warm_up(star(3), network_policy(policy), 4, None)


def test_a_fabric_may_have_one_host() -> None:
    warm_up(star(1), network_policy("beamer"), 4, None)
