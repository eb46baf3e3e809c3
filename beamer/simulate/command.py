"""`beamer simulate`: its options, and what is wrong with them, found out before the simulator is imported."""

from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError
from beamer.network.allocation import Classes
from beamer.network.plan_modes import DEFAULT_MODE, PlanMode, plan_mode
from beamer.output_files import check_outputs
from beamer.scenario_options import (
    JointNames,
    JsonFile,
    ModeName,
    PlotFile,
    PolicyList,
    ScenarioFile,
    parse_gpu_policies,
    parse_joint_parts,
    parse_policies,
)
from beamer.simulate.options import UNLIMITED, AllocatorName, Bounds, CdfFile, ChromeFile, check_pairs, chosen_allocator
from beamer.simulate.outputs import ROWS, Outputs
from beamer.workloads import joint as joint_scenarios
from beamer.workloads import scenario as scenarios


def simulate(
    scenario: ScenarioFile = None,
    policies: PolicyList = "fair,beamer",
    allocator_name: AllocatorName = Classes.name,
    queues: Annotated[
        str | None, typer.Option(help=f"How many classes there are, or {UNLIMITED}.  [default: the scenario's]")
    ] = None,
    mode: ModeName = DEFAULT_MODE,
    gpu_policy_names: Annotated[
        str | None,
        typer.Option(
            "--gpu-policy",
            help="Comma-separated GPU policies, for a scenario whose searches ask for GPUs: each with each network policy.",
        ),
    ] = None,
    joint: JointNames = None,
    bounds: Bounds = False,
    json_file: JsonFile = None,
    plot: PlotFile = None,
    cdf: CdfFile = None,
    table: Annotated[Path | None, typer.Option(help="Write a row per stage to this .csv or .parquet.", dir_okay=False)] = None,
    rows: Annotated[str | None, typer.Option(help="Of --table: stages or jobs.  [default: stages]")] = None,
    chrome: ChromeFile = None,
) -> None:
    """Run a scenario in the flow-level simulator under each policy."""
    outputs: Outputs = {"--json": json_file, "--plot": plot, "--cdf": cdf, "--table": table, "--chrome": chrome}
    if gpu_policy_names is None:
        if joint is not None:
            raise InputError("--joint", joint, "--gpu-policy beside it")
        _of_scenario(scenario, policies, allocator_name, queues, plan_mode(mode), bounds, rows, outputs)
        return
    others = {"--bounds": bounds or None, "--rows": rows, **outputs}
    for option, value in others.items():
        if value is not None and option not in ("--json", "--plot"):
            raise InputError(option, str(value), "no such option beside --gpu-policy")
    _of_searches(scenario, gpu_policy_names, policies, allocator_name, queues, plan_mode(mode), joint, outputs)


def _of_scenario(
    path: Path | None,
    policies: str,
    allocator_name: str,
    queues: str | None,
    mode: PlanMode,
    bounds: bool,
    rows: str | None,
    outputs: Outputs,
) -> None:
    names = parse_policies(policies)
    loaded = scenarios.load(path or scenarios.shipped())
    chosen = chosen_allocator(allocator_name, queues, loaded.queues, mode)
    check_pairs(names, chosen)
    if rows is not None and (rows not in ROWS or outputs["--table"] is None):
        raise InputError("--rows", rows, f"{' or '.join(ROWS)}, beside --table")
    check_outputs(outputs)
    from beamer.simulate.runs import run_scenario

    run_scenario(loaded, names, chosen, bounds, rows or ROWS[0], outputs)


def _of_searches(
    path: Path | None,
    gpu_policies: str,
    network_policies: str,
    allocator_name: str,
    queues: str | None,
    mode: PlanMode,
    joint: str | None,
    outputs: Outputs,
) -> None:
    parts = parse_joint_parts(joint)
    gpu_names, names = parse_gpu_policies(gpu_policies), parse_policies(network_policies)
    loaded = joint_scenarios.load(path or joint_scenarios.shipped())
    chosen = chosen_allocator(allocator_name, queues, loaded.queues, mode)
    check_pairs(names, chosen)
    check_outputs(outputs)
    from beamer.simulate.runs import run_searches

    run_searches(loaded, gpu_names, names, chosen, parts, outputs)
