"""`python -m eval engines`: one search under every policy, disturbed, held against how it ends undisturbed."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from beamer.errors import InputError, nearest
from beamer.gpu.policies import GPU_POLICIES
from eval.engines.experiment import EngineOutcome, run
from eval.engines.search import FULL, SMALL, DisturbedSearch

Policies = Annotated[str, typer.Option("--policies", help="Separated by commas; all of them by default.")]
Small = Annotated[bool, typer.Option("--small", help="A few configurations, as in the tests.")]
Seed = Annotated[int, typer.Option("--seed", help="Of which ports are taken and which ranks are killed.")]
Patience = Annotated[float, typer.Option("--patience", help="Seconds after which a search counts as held up.")]
Kills = Annotated[int | None, typer.Option("--kills", min=0, help="Ranks to kill in each search.")]
JsonFile = Annotated[Path, typer.Option("--json", help="Write the figures here.")]


def engines(
    policies: Policies = "",
    small: Small = False,
    seed: Seed = 0,
    patience_s: Patience = 1800.0,
    kills: Kills = None,
    json_file: JsonFile = Path("results/engines.json"),
) -> None:
    """Take ports, kill ranks, and run programs that hang, lie and crash in one search; ends with 1 if it shows.

    Under every policy each sound configuration is to end as if nothing had happened, step by step, and the same one is to win.
    """
    console = Console(width=None if sys.stdout.isatty() else 220)
    sizes = SMALL if small else FULL
    search = DisturbedSearch(sizes if kills is None else replace(sizes, kills=kills), seed)
    outcomes: list[EngineOutcome] = []
    for policy in chosen(policies):
        outcomes.append(run(policy, search, patience_s, seed))
        one = outcomes[-1]
        console.print(f"{policy}: {one.launches} launches in {one.elapsed_s:.0f} s", *one.failures, sep="\n  ", markup=False)
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps({"seed": seed, "engines": [one.as_json() for one in outcomes]}, indent=1))
    console.print(table(search, outcomes))
    console.print(f"figures: {json_file}")
    if any(one.failures for one in outcomes):
        raise typer.Exit(1)


def chosen(names: str) -> list[str]:
    """Return the policies that are named. Raises `InputError`."""
    found = names.split(",") if names else list(GPU_POLICIES)
    for name in found:
        if name not in GPU_POLICIES:
            raise InputError("--policies", name, nearest(name, GPU_POLICIES))
    return found


def table(search: DisturbedSearch, outcomes: Sequence[EngineOutcome]) -> Table:
    """Return a row per policy."""
    title = f"{len(search.rates)} sound configurations, {search.winner} wins undisturbed"
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    made.add_column("policy")
    for heading in ("launches", "ports taken", "ranks killed", "runs failed", "lines refused", "s", "winner", "differences"):
        made.add_column(heading, justify="right")
    for one in outcomes:
        counts = (one.launches, one.taken, one.killed, one.failed_runs, one.refused)
        made.add_row(one.policy, *map(str, counts), f"{one.elapsed_s:.0f}", one.winner, str(len(one.failures)))
    return made
