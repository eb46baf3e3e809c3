"""Options of the commands that simulate: `beamer simulate` and `beamer replay`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError
from beamer.network.allocation import Allocator, Classes, allocator, check_pair
from beamer.network.plan import QUEUES
from beamer.network.plan_modes import DEFAULT_MODE, PlanMode
from beamer.network.policies import network_policy

UNLIMITED = "unlimited"
STAGES = "stages"
ROWS = (STAGES, "jobs")
"""What a table of a scenario may have a row for."""

AllocatorName = Annotated[
    str, typer.Option("--allocator", help="From order to rates: greedy, madd, maxmin, classes or equal-split.")
]
Bounds = Annotated[bool, typer.Option("--bounds", help="Show a lower bound on the mean completion time as well.")]
CdfFile = Annotated[
    Path | None, typer.Option("--cdf", help="Draw the distribution of completion times into this PNG.", dir_okay=False)
]
ChromeFile = Annotated[
    Path | None,
    typer.Option("--chrome", help="Write a timeline for Perfetto or chrome://tracing to this file.", dir_okay=False),
]


@dataclass(frozen=True)
class ComparedPolicies:
    """The network policies that a command compares, and what it shows and writes of their runs."""

    policies: Sequence[str]
    """Names of network policies, the baseline first."""
    allocator: Allocator
    """The allocator that carries out what each of them decides."""
    bounds: bool
    """Whether lower bounds are shown beside the results."""
    outputs: Mapping[str, Path | None]
    """The files that were asked for, by option; None: not asked for."""
    details: bool = False
    """Whether every stage is shown, and not the means alone."""
    rows: str = STAGES
    """What a table of a scenario has a row for, one of `ROWS`."""


def chosen_allocator(name: str, queues: str | None, default: int, mode: PlanMode) -> Allocator:
    """Return the allocator of that name; of classes, with as many as `queues` says. Raises `InputError`."""
    if name == Classes.name:
        return Classes(queues=default if queues is None else _queues(queues), plan_mode=mode)
    chosen = allocator(name)
    if mode.name != DEFAULT_MODE:
        raise InputError("--mode", mode.name, f"no such option beside --allocator {name}, which has no classes")
    if queues is not None:
        raise InputError("--queues", queues, f"no such option beside --allocator {name}, which has no classes")
    return chosen


def _queues(text: str) -> int | None:
    if text == UNLIMITED:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= QUEUES:
        raise InputError("--queues", text, f"1 to {QUEUES}, the priorities that switches have, or {UNLIMITED}")
    return int(text)


def described(chosen: Allocator) -> str:
    """Return what a title says of an allocator."""
    if not isinstance(chosen, Classes):
        return chosen.name
    of_mode = "" if chosen.plan_mode.name == DEFAULT_MODE else f", mode {chosen.plan_mode.name}"
    return f"{UNLIMITED if chosen.queues is None else chosen.queues} {chosen.name}{of_mode}"


def check_pairs(policies: Sequence[str], chosen: Allocator) -> None:
    """Check that the allocator carries out what each policy decides. Raises `InputError`."""
    for name in policies:
        check_pair(network_policy(name), chosen)
