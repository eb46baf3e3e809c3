"""`python -m eval faults`: makes faults happen to real processes on loopback, and says what was lost and how long it took."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError, nearest
from eval.committed import print_tables
from eval.console import wide_console
from eval.faults.base import Fault, FaultOutcome
from eval.faults.catalogue import FAULTS
from eval.faults.report import COMMITTED, FaultStudy
from eval.faults.site import POLICY

Only = Annotated[str | None, typer.Option("--only", help=f"One fault alone: {', '.join(FAULTS)}.")]
Times = Annotated[int | None, typer.Option("--times", min=1, help="How often each happens, instead of the committed number.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of when and where they happen.")]
JsonFile = Annotated[Path, typer.Option("--json", help="Write the figures here.")]
Docs = Annotated[
    bool, typer.Option("--docs", help="Write the committed figures of these faults, and the docs' tables and plot.")
]


def faults(
    only: Only = None,
    times: Times = None,
    seed: Seed = 1,
    json_file: JsonFile = Path("results/faults.json"),
    docs: Docs = False,
) -> None:
    """Make faults happen to controllers, their journals and their peers; ends with 1 if anything was lost or failed.

    What cannot be run here, as PostgreSQL is not installed, is named and left out; its committed figures stay. Ends with 1
    where nothing is left to run, too.
    """
    console = wide_console()
    study = run(chosen(only), times, seed, console.print)
    COMMITTED.write(study, json_file)
    print_tables(study, console)
    console.print(f"figures: {json_file}")
    if docs:
        known = COMMITTED.read() if COMMITTED.results.exists() else FaultStudy({}, {}, {})
        whole = known.with_newer(study)
        COMMITTED.write(whole, COMMITTED.results)
        COMMITTED.renew(whole)
    if not study.outcomes:
        console.print("no fault was tried: nothing is known of any")
        raise typer.Exit(1)
    if not all(outcome.is_good for outcome in study.outcomes.values()):
        raise typer.Exit(1)


def chosen(only: str | None) -> list[Fault]:
    """Return the fault of a name, or all of them. Raises `InputError`."""
    if only is None:
        return list(FAULTS.values())
    if only not in FAULTS:
        raise InputError("--only", only, nearest(only, list(FAULTS)))
    return [FAULTS[only]]


def run(several: list[Fault], times: int | None, seed: int, say: Callable[[str], None]) -> FaultStudy:
    """Return what comes of faults, those apart for which something is missing here."""
    outcomes = {}
    for fault in several:
        if reason := fault.missing():
            say(f"{fault.name}: left out, {reason}")
            continue
        say(f"{fault.name}: {fault.about}, {times or fault.times} times")
        try:
            outcomes[fault.name] = fault.run(times or fault.times, seed)
        except (TimeoutError, RuntimeError) as error:  # A wait for a controller or a peer failed; the other faults are tried.
            outcomes[fault.name] = FaultOutcome(times or fault.times, failures=(repr(error),))
    return FaultStudy(outcomes, dict.fromkeys(outcomes, seed), dict.fromkeys(outcomes, POLICY))
