"""GPU policies: one per file, each registered here under its name; other packages add theirs by entry point."""

from typing import Any

from beamer.decision.registry import PolicyRegistry
from beamer.gpu.policies.convergence import Convergence
from beamer.gpu.policies.drf import Drf
from beamer.gpu.policies.elastic import Elastic
from beamer.gpu.policies.fifo import Fifo
from beamer.gpu.policies.hermes import Hermes
from beamer.gpu.policies.k8s_default import K8sDefault
from beamer.gpu.policies.ones import Ones
from beamer.gpu.policies.optimus import Optimus
from beamer.gpu.policies.pollux import Pollux
from beamer.gpu.policies.round_robin import RoundRobin
from beamer.gpu.policies.slaq import Slaq
from beamer.gpu.policies.srtf import Srtf
from beamer.gpu.policies.termination import Termination
from beamer.gpu.policies.tetris import Tetris
from beamer.gpu.policies.tiresias import Tiresias
from beamer.gpu.policy import GpuPolicy

__all__ = ["GPU_POLICIES", "GpuPolicy", "gpu_policy"]

_POLICIES: tuple[type[GpuPolicy[Any]], ...] = (
    Fifo,
    RoundRobin,
    Srtf,
    Tiresias,
    K8sDefault,
    Hermes,
    Elastic,
    Termination,
    Convergence,
    Ones,
    Pollux,
    Drf,
    Optimus,
    Slaq,
    Tetris,
)
# The registry takes the abstract class itself.
GPU_POLICIES: PolicyRegistry[GpuPolicy[Any]] = PolicyRegistry("beamer.gpu_policies", GpuPolicy, _POLICIES)  # type: ignore[type-abstract]


def gpu_policy(name: str, **parameters: Any) -> GpuPolicy[Any]:
    """Return the policy of that name. Raises `InputError` for a name or a parameter that does not exist."""
    return GPU_POLICIES.make(name, **parameters)
