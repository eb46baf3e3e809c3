"""How fast the scheduling core is: `python -m eval bench`. Ratios within one run, against the baseline each table names."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from eval.bench.ordering import ordering_table
from eval.bench.scale import scale_table
from eval.bench.traces import trace_table


def bench(
    trace: Annotated[Path | None, typer.Option(help="A trace in the coflow-benchmark format, replayed whole.")] = None,
    stages: Annotated[int, typer.Option(min=100, help="The most stages that are ordered.")] = 10_000,
    scale: Annotated[bool, typer.Option(help="Simulate 2 000 jobs on 512 hosts, too (minutes).")] = True,
) -> None:
    """Measure ordering, trace replay and simulation at scale."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(ordering_table([n for n in (100, 300, 1_000, 3_000, 10_000) if n <= stages]))
    if trace is not None:
        console.print(trace_table(trace))
    if scale:
        console.print(scale_table())
