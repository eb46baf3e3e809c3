"""Options of the commands that run a scenario: `beamer simulate` and `beamer emulate`."""

from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError, nearest
from beamer.gpu.policies import GPU_POLICIES
from beamer.network.plan_modes import PLAN_MODES
from beamer.network.policies import network_policy

ScenarioFile = Annotated[Path | None, typer.Argument(help="Scenario file (YAML); the shipped one by default.")]
PolicyList = Annotated[str, typer.Option("--policies", help="Comma-separated network policies, the first is the baseline.")]
ModeName = Annotated[str, typer.Option("--mode", help=f"How the order is kept: {', '.join(PLAN_MODES)}.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.", dir_okay=False)]
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
