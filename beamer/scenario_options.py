"""Options of the commands that run a scenario: `beamer simulate` and `beamer emulate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError, nearest
from beamer.gpu.policies import GPU_POLICIES
from beamer.joint.parts import EVERY, PARTS, JointParts
from beamer.network.plan_modes import PLAN_MODES
from beamer.network.policies import network_policy

GPU_POLICY_LIST = "fifo,convergence"

ScenarioFile = Annotated[
    Path | None,
    typer.Argument(help="Scenario file (YAML); by default the shipped one, with --gpu-policy or --joint that of searches."),
]
PolicyList = Annotated[str, typer.Option("--policies", help="Comma-separated network policies, the first is the baseline.")]
ModeName = Annotated[str, typer.Option("--mode", help=f"How the order is kept: {', '.join(PLAN_MODES)}.")]
GpuPolicyList = Annotated[
    str | None,
    typer.Option(
        "--gpu-policy",
        help="Where searches ask for GPUs: comma-separated GPU policies, each with each network policy.  "
        f"[default: {GPU_POLICY_LIST}]",
    ),
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.", dir_okay=False)]
JointNames = Annotated[
    str | None,
    typer.Option(
        "--joint",
        help="Where searches ask for GPUs: comma-separated parts that each level is told of the other, "
        f"of {', '.join(PARTS)} or {EVERY}.",
    ),
]
Details = Annotated[bool, typer.Option("--details", help="Show every stage as well; emulated, also what was checked.")]
PlotFile = Annotated[Path | None, typer.Option("--plot", help="Draw the stages' timeline into this PNG.", dir_okay=False)]


@dataclass(frozen=True)
class GpuOptions:
    """The GPU level of the runs of a scenario whose searches ask for GPUs."""

    policies: tuple[str, ...]
    """Names of GPU policies, each of which is run with each network policy."""
    parts: JointParts
    """The parts of what each level is told of the other."""


def parse_policies(text: str) -> list[str]:
    """Return the names in a comma-separated list of network policies. Raises `InputError` for an unknown one."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        network_policy(name)
    return names


def parse_gpu_options(policies: str | None, parts: str | None) -> GpuOptions:
    """Return what comma-separated lists say of the GPU level, by default no parts. Raises `InputError` for an unknown name."""
    names = [name.strip() for name in (GPU_POLICY_LIST if policies is None else policies).split(",")]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise InputError("--gpu-policy", name, "each policy once")
        if name not in GPU_POLICIES:
            raise InputError("--gpu-policy", name, nearest(name, GPU_POLICIES))
    return GpuOptions(tuple(names), parse_joint_parts(parts))


def parse_joint_parts(text: str | None) -> JointParts:
    """Return the parts in a comma-separated list, none of none. Raises `InputError` for an unknown one."""
    return JointParts.of("--joint", [name.strip() for name in text.split(",")] if text is not None else [])
