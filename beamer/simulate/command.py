"""`beamer simulate`: its options, and what is wrong with them, found out before the simulator is imported."""

from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError
from beamer.network.allocation import Classes
from beamer.network.plan_modes import DEFAULT_MODE, plan_mode
from beamer.output_files import check_outputs
from beamer.scenario_options import (
    Details,
    GpuPolicyList,
    JointNames,
    JsonFile,
    ModeName,
    PlotFile,
    PolicyList,
    ScenarioFile,
    parse_gpu_options,
    parse_policies,
)
from beamer.simulate.options import (
    ROWS,
    STAGES,
    UNLIMITED,
    AllocatorName,
    Bounds,
    CdfFile,
    ChromeFile,
    ComparedPolicies,
    check_pairs,
    chosen_allocator,
)
from beamer.workloads.joint import JointScenario, load_either


def simulate(
    scenario: ScenarioFile = None,
    policies: PolicyList = "fair,beamer",
    allocator_name: AllocatorName = Classes.name,
    queues: Annotated[
        str | None, typer.Option(help=f"How many classes there are, or {UNLIMITED}.  [default: the scenario's]")
    ] = None,
    mode: ModeName = DEFAULT_MODE,
    gpu_policies: GpuPolicyList = None,
    joint: JointNames = None,
    bounds: Bounds = False,
    json_file: JsonFile = None,
    plot: PlotFile = None,
    cdf: CdfFile = None,
    table: Annotated[
        Path | None, typer.Option(help="Write a row per stage, or as --rows says, to this .csv or .parquet.", dir_okay=False)
    ] = None,
    rows: Annotated[str | None, typer.Option(help="Of --table: stages or jobs.  [default: stages]")] = None,
    chrome: ChromeFile = None,
    details: Details = False,
) -> None:
    """Run a scenario in the flow-level simulator under each policy."""
    names, gpu = parse_policies(policies), parse_gpu_options(gpu_policies, joint)
    _, loaded = load_either(scenario, {"--gpu-policy": gpu_policies, "--joint": joint})
    chosen = chosen_allocator(allocator_name, queues, loaded.queues, plan_mode(mode))
    check_pairs(names, chosen)
    if rows is not None and (rows not in ROWS or table is None):
        raise InputError("--rows", rows, f"{' or '.join(ROWS)}, beside --table")
    outputs = {"--json": json_file, "--plot": plot, "--cdf": cdf, "--table": table, "--chrome": chrome}
    check_outputs(outputs)
    comparison = ComparedPolicies(names, chosen, bounds, outputs, details, rows or STAGES)
    from beamer.simulate.runs import run_scenario, run_searches

    if isinstance(loaded, JointScenario):
        run_searches(loaded, gpu, comparison)
    else:
        run_scenario(loaded, comparison)
