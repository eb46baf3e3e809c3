"""`python -m eval fuzz`: sends hostile input to what listens, for some minutes each, and says what came of it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from beamer.errors import InputError, nearest
from beamer.progress import work
from eval.console import wide_console
from eval.fuzz.findings import SLOW_TURN_S, Findings
from eval.fuzz.targets import TARGETS

Minutes = Annotated[float, typer.Option("--minutes", min=0.01, max=1440, help="For how long each is tried.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the inputs.")]
Only = Annotated[str | None, typer.Option("--only", help=f"One of {', '.join(TARGETS)}.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the findings here.")]


def fuzz(minutes: Minutes = 5, seed: Seed = 1, only: Only = None, json_file: JsonFile = None) -> None:
    """Send hostile input to whatever of the controller listens; ends with 1 if any of it was disturbed.

    An input that disturbed something is printed as hexadecimal bytes, one line per connection, to become a test.
    """
    if only is not None and only not in TARGETS:
        raise InputError("--only", only, nearest(only, list(TARGETS)))
    console = wide_console()
    chosen = [name for name in TARGETS if only in (None, name)]
    found: list[Findings] = []
    with work("hostile input", len(chosen)) as shown:
        for name in chosen:
            shown.begin(f"hostile input: {name}")
            found.append(TARGETS[name](60 * minutes, seed, None))
            shown.advance()
    console.print(findings_table(found))
    for findings in found:
        for failure in findings.failures:
            print(f"{findings.target}: {failure.what}")
            print("\n".join(failure.data))
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps([asdict(findings) for findings in found], indent=1) + "\n")
    if any(findings.failures for findings in found):
        raise typer.Exit(1)


def findings_table(found: list[Findings]) -> Table:
    """Return a row per target."""
    table = Table(title="hostile input", title_justify="left")
    columns = ("target", "seed", "inputs", "refused", "accepted", "longest turn", "p99", f"above {1000 * SLOW_TURN_S:.0f} ms")
    for column in (*columns, "most computed", "memory", "failures"):
        table.add_column(column, justify="left" if column == "target" else "right")
    for one in found:
        counts = (one.target, one.seed, one.inputs, one.refused, one.accepted)
        turns = (
            f"{1000 * one.longest_turn_s:.0f} ms",
            f"{1000 * one.p99_turn_s:.1f} ms",
            f"{one.slow_turns}",
            f"{1000 * one.busiest_turn_s:.0f} ms",
        )
        table.add_row(*map(str, counts), *turns, f"{one.grown_bytes / 2**20:+.1f} MiB", f"{len(one.failures)}")
    return table
