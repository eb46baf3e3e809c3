"""`beamer replay`: its options, and what is wrong with them, found out before the simulator is imported."""

from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError
from beamer.network.allocation import Classes
from beamer.network.fabric import MAX_RATE_BPS
from beamer.network.plan import QUEUES
from beamer.network.plan_modes import DEFAULT_MODE, plan_mode
from beamer.output_files import check_outputs
from beamer.progress import work
from beamer.scenario_options import JsonFile, PolicyList, parse_policies
from beamer.sim.traces import FORMATS, read
from beamer.simulate.options import (
    AllocatorName,
    Bounds,
    CdfFile,
    ChromeFile,
    ComparedPolicies,
    check_pairs,
    chosen_allocator,
    described,
)
from beamer.units import parse_rate


def replay(
    trace: Annotated[Path, typer.Argument(help="File of coflows.")],
    *,
    form: Annotated[str, typer.Option("--format", help=f"How it is written: {' or '.join(FORMATS)}.")],
    rate: Annotated[str, typer.Option(help="Of the ports that it names, such as 1gbit.")],
    policies: PolicyList = "fair,beamer",
    allocator_name: AllocatorName = Classes.name,
    queues: Annotated[str | None, typer.Option(help=f"How many classes there are, or unlimited.  [default: {QUEUES}]")] = None,
    bounds: Bounds = False,
    json_file: JsonFile = None,
    cdf: CdfFile = None,
    table: Annotated[Path | None, typer.Option(help="Write a row per coflow to this .csv or .parquet.", dir_okay=False)] = None,
    chrome: ChromeFile = None,
) -> None:
    """Replay a trace of coflows on a big switch under each policy."""
    names = parse_policies(policies)
    rate_bps = parse_rate(rate, "--rate")
    if rate_bps > MAX_RATE_BPS:
        raise InputError("--rate", rate, f"at most {MAX_RATE_BPS} bit/s")
    chosen = chosen_allocator(allocator_name, queues, QUEUES, plan_mode(DEFAULT_MODE))
    check_pairs(names, chosen)
    with work(f"reading {trace}"):
        loaded = read(trace, form)
    outputs = {"--json": json_file, "--cdf": cdf, "--table": table, "--chrome": chrome}
    check_outputs(outputs)
    from beamer.simulate.runs import run_trace

    title = f"{trace.name}: {len(loaded.coflows)} coflows on {loaded.ports} ports of {rate}, {described(chosen)}"
    run_trace(title, loaded, rate_bps, ComparedPolicies(names, chosen, bounds, outputs))
