"""Every registered GPU policy passes the conformance suite."""

import pytest

from beamer.gpu.policies import GPU_POLICIES
from beamer.testing.gpu_policies import GPU_POLICY_CHECKS, GpuPolicyCheck


@pytest.mark.parametrize("name", GPU_POLICIES)
@pytest.mark.parametrize("check", GPU_POLICY_CHECKS, ids=lambda check: check.__name__)
def test_conforms(check: GpuPolicyCheck, name: str) -> None:
    check(GPU_POLICIES[name]())
