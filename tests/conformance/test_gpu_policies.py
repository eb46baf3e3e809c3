"""Every registered GPU policy passes the conformance suite, and so do some with all that a controller may tell them."""

import pytest

from beamer.gpu.policies import GPU_POLICIES
from beamer.joint.parts import LIVE, JointParts
from beamer.joint.wrapping import network_aware
from beamer.testing.fabrics import star_of
from beamer.testing.gpu_policies import GPU_POLICY_CHECKS, GpuPolicyCheck
from tests.support.tiers import few, long

KINDS = ("fifo", "hermes", "elastic", "convergence", "ones", "optimus")
"""In order of arrival, by convergence, elastic, by marginal gain, by evolution, in rounds; the others are of these kinds."""
HOSTS = ("n", "lost", *(f"n{number}" for number in range(20)))  # the nodes of the suite's clusters


@pytest.mark.parametrize("name", few(GPU_POLICIES, KINDS))
@pytest.mark.parametrize("check", GPU_POLICY_CHECKS, ids=lambda check: check.__name__)
def test_conforms(check: GpuPolicyCheck, name: str) -> None:
    check(GPU_POLICIES[name]())


@pytest.mark.parametrize("name", [*long("tiresias", "elastic"), "convergence"])
@pytest.mark.parametrize("check", GPU_POLICY_CHECKS, ids=lambda check: check.__name__)
def test_conforms_with_what_it_is_told_of_the_network(check: GpuPolicyCheck, name: str) -> None:
    check(network_aware(GPU_POLICIES[name](), star_of(HOSTS), JointParts.of("parts", LIVE)))
