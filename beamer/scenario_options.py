"""Options of the commands that run a scenario: `beamer simulate` and `beamer emulate`."""

from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError, nearest
from beamer.gpu.policies import GPU_POLICIES
from beamer.joint.parts import EVERY, PARTS, JointParts
from beamer.network.plan_modes import PLAN_MODES
from beamer.network.policies import network_policy

ScenarioFile = Annotated[Path | None, typer.Argument(help="Scenario file (YAML); the shipped one by default.")]
PolicyList = Annotated[str, typer.Option("--policies", help="Comma-separated network policies, the first is the baseline.")]
ModeName = Annotated[str, typer.Option("--mode", help=f"How the order is kept: {', '.join(PLAN_MODES)}.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.", dir_okay=False)]
JointNames = Annotated[
    str | None,
    typer.Option("--joint", help=f"Comma-separated parts that each level is told of the other: {', '.join(PARTS)} or {EVERY}."),
]
PlotFile = Annotated[Path | None, typer.Option("--plot", help="Draw the stages' timeline into this PNG.", dir_okay=False)]


def parse_policies(text: str) -> list[str]:
    """Return the names in a comma-separated list of network policies. Raises `InputError` for an unknown one."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        network_policy(name)
    return names


def parse_gpu_policies(text: str) -> list[str]:
    """Return the names in a comma-separated list of GPU policies, each once. Raises `InputError` for an unknown one."""
    names = [name.strip() for name in text.split(",")]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise InputError("--gpu-policy", name, "each policy once")
        if name not in GPU_POLICIES:
            raise InputError("--gpu-policy", name, nearest(name, GPU_POLICIES))
    return names


def parse_joint_parts(text: str | None) -> JointParts:
    """Return the parts in a comma-separated list, none of none. Raises `InputError` for an unknown one."""
    return JointParts.of("--joint", [name.strip() for name in text.split(",")] if text is not None else [])
