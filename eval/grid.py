"""Studies of cells, contenders and seeds: the options of their commands, and their runs, kept by key."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from beamer.errors import InputError
from beamer.network.policies import NETWORK_POLICIES
from eval.committed import Committed, Tabled
from eval.resume import ResultCache, Task, imported_sources, run_resumably, source_digest
from eval.workers import chosen_workers

REGISTRY = "beamer.network.policies"

ConfigFile = Annotated[Path, typer.Option("--config", help="The study's config.", exists=True, dir_okay=False)]
Seeds = Annotated[int | None, typer.Option(min=2, help="Fewer seeds than the config says.")]
CellPart = Annotated[str | None, typer.Option("--cells", help="Only cells whose name contains this.")]
JsonFile = Annotated[Path, typer.Option("--json", help="Write every run's figures here.")]
Docs = Annotated[bool, typer.Option("--docs", help="Write the committed figures, and the docs' tables from them.")]
Anew = Annotated[bool, typer.Option("--anew", help="Repeat runs whose figures are known.")]
Processes = Annotated[int, typer.Option(min=1, help="Of this machine, that make the runs where no cluster does.")]
Ray = Annotated[str | None, typer.Option("--ray", help="Address of a Ray cluster that makes the runs, local for a new one.")]

S = TypeVar("S", bound=Tabled)

Runs = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
"""Results by cell and contender, seeds in order."""


@dataclass(frozen=True)
class StudyOutput:
    """Where a command's figures go. whole: whether all of the committed config is run. processes, ray: as `chosen_workers`."""

    json_file: Path
    docs: bool
    anew: bool
    processes: int
    ray: str | None
    whole: bool


def chosen(names: Iterable[str], part: str | None) -> list[str]:
    """Return the names of cells that contain `part`. Raises `InputError` if none does."""
    known = list(names)
    found = [name for name in known if part is None or part in name]
    if not found:
        raise InputError("--cells", part, f"a part of one of {', '.join(known)}")
    return found


def run_study(
    committed: Committed[S], study: Callable[[Runs], S], tasks: Mapping[str, Mapping[str, Sequence[Task]]], output: StudyOutput
) -> S:
    """Run the tasks that are not known yet, write the study that they make up, print its tables, and return it.

    study: made of its runs. tasks: by cell and contender, as runs are.
    """
    json_file = committed.output(output.docs, output.whole, output.json_file)
    console = Console(width=None if sys.stdout.isatty() else 220)
    cache = run_cache(committed.command, output.anew)
    every = [task for cell in tasks.values() for several in cell.values() for task in several]
    workers = chosen_workers(output.processes, output.ray)
    left = iter(run_resumably(every, cache, workers, console, committed.command))
    found = study({cell: {who: [next(left) for _ in several] for who, several in of.items()} for cell, of in tasks.items()})
    committed.write(found, json_file)
    if output.docs:
        committed.renew(found)
    for tables in found.tables().values():
        for table in tables:
            console.print(table)
    console.print(f"figures: {json_file}")
    return found


def run_cache(command: str, anew: bool) -> ResultCache:
    """Return the results that earlier runs of a command left in this directory. anew: forget them."""
    cache = ResultCache(Path("results") / f"{command}-runs")
    if anew:
        cache.forget()
    return cache


@lru_cache
def code_digest(module: str, policy: str) -> str:
    """Return a digest of the sources that a policy's run by `module` depends on: not those of other policies."""
    own = NETWORK_POLICIES[policy].__module__
    needed = imported_sources([own], without=[REGISTRY])
    others = {NETWORK_POLICIES[name].__module__ for name in NETWORK_POLICIES} - needed.keys()
    return source_digest([module, own], without=others)
