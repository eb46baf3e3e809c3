"""`python -m eval engines`: one search under every policy, disturbed, held against how it ends undisturbed."""

from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError, nearest
from beamer.gpu.policies import GPU_POLICIES
from beamer.progress import work
from eval.committed import print_tables
from eval.console import wide_console
from eval.engines.experiment import EngineOutcome, run
from eval.engines.report import COMMITTED, EngineStudy
from eval.engines.search import FULL, SMALL, DisturbedSearch

Policies = Annotated[str, typer.Option("--policies", help="Separated by commas; all of them by default.")]
Small = Annotated[bool, typer.Option("--small", help="A few configurations, as in the tests.")]
Seed = Annotated[int, typer.Option("--seed", help="Of which ports are taken and which ranks are killed.")]
Patience = Annotated[float, typer.Option("--patience", help="Seconds after which a search counts as held up.")]
JsonFile = Annotated[Path, typer.Option("--json", help="Write the figures here.")]
Docs = Annotated[bool, typer.Option("--docs", help="Write the committed figures, and the docs' table.")]


def engines(
    policies: Policies = "",
    small: Small = False,
    seed: Seed = 0,
    patience_s: Patience = 1800.0,
    json_file: JsonFile = Path("results/engines.json"),
    docs: Docs = False,
) -> None:
    """Take ports, kill ranks, and run programs that hang, lie and crash in one search; ends with 1 if it shows.

    Under every policy each sound configuration is to end as if nothing had happened, step by step, and the same one is to win.
    """
    console = wide_console()
    names = chosen(policies)
    output = COMMITTED.output(docs, not small and names == list(GPU_POLICIES), json_file)
    sizes = SMALL if small else FULL
    search = DisturbedSearch(sizes, seed)
    outcomes: tuple[EngineOutcome, ...] = ()
    for policy in names:
        with work(f"{policy}: a disturbed search"):
            one = run(policy, search, patience_s, seed)
        outcomes = (*outcomes, one)
        console.print(f"{policy}: {one.launches} launches in {one.elapsed_s:.0f} s", *one.failures, sep="\n  ", markup=False)
        COMMITTED.write(EngineStudy(sizes, seed, outcomes), output)
    study = EngineStudy(sizes, seed, outcomes)
    print_tables(study, console)
    console.print(f"figures: {output}")
    if docs:
        COMMITTED.renew(study)
    if any(one.failures for one in outcomes):
        raise typer.Exit(1)


def chosen(names: str) -> list[str]:
    """Return the policies that are named, all of them without names. Raises `InputError`."""
    found = names.split(",") if names else list(GPU_POLICIES)
    for name in found:
        if name not in GPU_POLICIES:
            raise InputError("--policies", name, nearest(name, GPU_POLICIES))
    return found
