"""Which parts of `beamer.joint` a GPU policy is wrapped in."""

from typing import Any

from beamer.gpu.policy import GpuPolicy
from beamer.joint.parts import JointParts
from beamer.joint.placement import LinkAware
from beamer.joint.resizing import PredictedSpeeds
from beamer.network.fabric import Fabric


def network_aware(policy: GpuPolicy[Any], fabric: Fabric, parts: JointParts) -> GpuPolicy[Any]:
    """Return a GPU policy with the parts that are switched on."""
    if parts.resizing:
        policy = PredictedSpeeds(policy, fabric)
    return LinkAware(policy, fabric) if parts.placement else policy
