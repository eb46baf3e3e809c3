"""How fast the scheduling core is: `python -m eval bench`. Ratios within one run, against the baseline each table names.

Decisions of both levels are committed, as `eval/results/bench.json` and a section of docs/experiments/decisions.md. All else is
printed.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from beamer.errors import InputError
from beamer.network.allocation import Classes, MaxMin
from eval.bench.controller import controller_table, reports_table, restart_table
from eval.bench.gpu import SIZES, measure
from eval.bench.levels import COMMITTED, LevelsStudy
from eval.bench.ordering import ordering_table
from eval.bench.scale import growth_table, scale_table
from eval.bench.simgrid.comparison import SIZES as FABRICS
from eval.bench.simgrid.comparison import simgrid_tables
from eval.bench.traces import trace_table
from eval.committed import print_tables
from eval.console import wide_console


def bench(
    trace: Annotated[Path | None, typer.Option(help="A trace in the coflow-benchmark format, replayed whole.")] = None,
    stages: Annotated[int, typer.Option(min=100, help="The most stages that are ordered.")] = 10_000,
    scale: Annotated[bool, typer.Option(help="Simulate 2 000 jobs on 512 hosts, too (minutes).")] = True,
    network: Annotated[bool, typer.Option(help="Measure the network level.")] = True,
    controller: Annotated[bool, typer.Option(help="Measure a controller under load and its restart, too (minutes).")] = True,
    gpu: Annotated[bool, typer.Option(help="Measure decisions about 10 000 jobs on 4 000 GPUs, too (minutes).")] = True,
    gpus: Annotated[int, typer.Option(min=64, help="The largest cluster for GPU policies.")] = SIZES[-1],
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the GPU level's figures here.")] = None,
    levels: Annotated[
        bool, typer.Option(help="Measure decisions of both levels about 1 000 trials on 512 hosts, too (minutes).")
    ] = True,
    docs: Annotated[
        bool,
        typer.Option("--docs", help="Write the committed figures of both levels, the docs' tables and plot; measure no other."),
    ] = False,
    peer: Annotated[
        str | None, typer.Option(help="Compare the network with another program, `simgrid`; measure nothing else (minutes).")
    ] = None,
) -> None:
    """Measure ordering, trace replay, simulation at scale, a controller under load and decisions of one level and of both."""
    console = wide_console(160)
    if docs:
        _measure_levels(console, docs)
        return
    if peer is not None:
        _compare(console, peer, [hosts for hosts in FABRICS if scale or hosts < FABRICS[-1]])
        return
    if network:
        console.print(ordering_table([n for n in (100, 300, 1_000, 3_000, 10_000) if n <= stages]))
    if trace is not None:
        console.print(trace_table(trace))
    if network and scale:
        console.print(scale_table())
        for policy, allocator in (("fair", MaxMin()), ("beamer", Classes(queues=8))):
            console.print(growth_table(policy, allocator))
    if controller:
        for table in (controller_table, reports_table, restart_table):
            console.print(table())
    if gpu:
        figures = measure([size for size in SIZES if size <= gpus], console)
        if json_file is not None:
            json_file.parent.mkdir(parents=True, exist_ok=True)
            json_file.write_text(json.dumps(figures, indent=1))
    if levels:
        _measure_levels(console, docs)


def _compare(console: Console, peer: str, sizes: Sequence[int]) -> None:
    """Print how we compare with another program on fabrics of so many hosts. Raises `PlatformError` where it is missing."""
    if peer != "simgrid":
        raise InputError("--peer", peer, "simgrid")
    for table in simgrid_tables(sizes):
        console.print(table)


def _measure_levels(console: Console, docs: bool) -> None:
    """Measure decisions of both levels and print their tables. docs: whether to commit them."""
    study = LevelsStudy.measure()
    print_tables(study, console)
    if docs:
        COMMITTED.write(study, COMMITTED.results)
        COMMITTED.renew(study)
