"""What committed figures rest on: the sources that make each table, and what a results file says about those that made it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval.arithmetic import arithmetic
from eval.resume import digest, source_digest

CONFIGS = Path(__file__).parent / "configs"

MADE_WITH = "made_with"  # key of a results file, beside its config and runs
RESTS_ON: Mapping[str, tuple[str, ...]] = {
    "asynchronous": ("eval.asynchronous.runs",),
    "bench": ("eval.bench.levels",),
    "emulation": ("eval.emulation",),
    "engines": ("eval.engines.experiment",),
    "faults": ("eval.faults.catalogue",),
    "gpu": ("eval.gpu.claims",),
    "gpu-regions": ("eval.gpu.regions", "eval.gpu.claims"),
    "gpu-tuning": ("eval.gpu.tuning", "eval.gpu.claims"),
    "joint": ("eval.joint.runs",),
    "loss-noise": ("eval.loss_noise.runs",),
    "network": ("eval.network.runs",),
    "noise": ("eval.noise.runs",),
    "nvidia": ("eval.nvidia.parts", "eval.nvidia.training", "eval.nvidia.driver_process"),
    "packets": ("eval.packets", "eval.link_capture"),
    "peers": ("eval.peers.pollux.adapter", "eval.peers.gavel.adapter"),
    "processes": ("eval.gpu.processes",),
    "rates": ("eval.rates.runs",),
    "ray": ("eval.gpu.ray_search",),
    "starts": ("eval.gpu.starts",),
    "training": ("eval.training",),
    "trials": ("eval.trials.runs",),
}
"""Modules by results file: a table rests on them and on all that they import."""
OF_NO_FIGURE = (
    "eval.committed",
    "eval.console",
    "eval.documents",
    "eval.gpu.agreement",
    "eval.gpu.documents",
    "eval.gpu.knowledge",
    "eval.gpu.report",
    "eval.interval_plot",
    "eval.nvidia.report",
    "eval.origin",
    "eval.progress",
    "eval.report",
)
"""Modules that show figures and make none."""
OF_SEVERAL_TIMES = ("emulation", "faults")
"""Results files in which a command keeps parts of earlier runs: no digest is that of all of it."""


def sources_digest(table: str) -> str:
    """Return the digest of the sources that a table rests on now, its config among them."""
    config = CONFIGS / f"{table}.yaml"
    return digest(source_digest(RESTS_ON[table], without=OF_NO_FIGURE), config.read_text() if config.exists() else "")


def made_with(table: str) -> dict[str, Any]:
    """Return what a results file says of what made it: the arithmetic, and the digest of its sources, if there is one."""
    if table in OF_SEVERAL_TIMES:
        return {}
    return {MADE_WITH: {"arithmetic": dict(arithmetic()), "sources": sources_digest(table)}}
