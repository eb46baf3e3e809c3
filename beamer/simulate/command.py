"""`beamer simulate`: its options, and what is wrong with them, found out before the simulator is imported."""

from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError, nearest
from beamer.network.allocation import Allocator, Classes, allocator, check_pair
from beamer.network.fabric import MAX_RATE_BPS
from beamer.network.plan import QUEUES
from beamer.network.plan_modes import DEFAULT_MODE, PlanMode, plan_mode
from beamer.network.policies import NETWORK_POLICIES, network_policy
from beamer.output_files import check_outputs
from beamer.scenario_options import (
    JointNames,
    JsonFile,
    ModeName,
    PlotFile,
    ScenarioFile,
    parse_gpu_policies,
    parse_joint_parts,
    parse_policies,
)
from beamer.sim.traces import FORMATS, read
from beamer.simulate.outputs import ROWS, Outputs
from beamer.units import parse_rate
from beamer.workloads import joint as joint_scenarios
from beamer.workloads import scenario as scenarios

COMPARED = "fair,beamer"
UNLIMITED = "unlimited"


def simulate(
    scenario: ScenarioFile = None,
    policies: Annotated[
        str | None,
        typer.Option(help=f"Comma-separated network policies, the first is the baseline.  [default: {COMPARED}]"),
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Network policy of a --trace; --json then holds its run alone.")] = None,
    allocator_name: Annotated[
        str, typer.Option("--allocator", help="From order to rates: greedy, madd, maxmin, classes or equal-split.")
    ] = Classes.name,
    queues: Annotated[
        str | None,
        typer.Option(help=f"How many classes there are, or {UNLIMITED}.  [default: the scenario's; {QUEUES} for a trace]"),
    ] = None,
    mode: ModeName = DEFAULT_MODE,
    trace: Annotated[
        Path | None, typer.Option(help="Replay this file's coflows on a big switch, in place of a scenario.")
    ] = None,
    form: Annotated[str | None, typer.Option("--format", help=f"How the trace is written: {' or '.join(FORMATS)}.")] = None,
    rate: Annotated[str | None, typer.Option(help="Of the ports that a trace names, such as 1gbit.")] = None,
    gpu_policy_names: Annotated[
        str | None,
        typer.Option(
            "--gpu-policy",
            help="Comma-separated GPU policies, for a scenario whose searches ask for GPUs: each with each network policy.",
        ),
    ] = None,
    joint: JointNames = None,
    json_file: JsonFile = None,
    plot: PlotFile = None,
    cdf: Annotated[
        Path | None, typer.Option(help="Draw the distribution of completion times into this PNG.", dir_okay=False)
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="Write a row per stage or coflow to this .csv or .parquet.", dir_okay=False)
    ] = None,
    rows: Annotated[str | None, typer.Option(help="Of --table, for a scenario: stages or jobs.  [default: stages]")] = None,
    chrome: Annotated[
        Path | None, typer.Option(help="Write a timeline for Perfetto or chrome://tracing to this file.", dir_okay=False)
    ] = None,
) -> None:
    """Run a scenario, or a trace of coflows, in the flow-level simulator under each policy."""
    outputs: Outputs = {"--json": json_file, "--plot": plot, "--cdf": cdf, "--table": table, "--chrome": chrome}
    if gpu_policy_names is not None:
        others = {"--trace": trace, "--policy": policy, "--format": form, "--rate": rate, "--rows": rows, **outputs}
        for option, value in others.items():
            if value is not None and option not in ("--json", "--plot"):
                raise InputError(option, str(value), "no such option beside --gpu-policy")
        _of_searches(
            scenario, gpu_policy_names, policies or COMPARED, allocator_name, queues, plan_mode(mode), joint, outputs
        )  # fmt: skip
        return
    if joint is not None:
        raise InputError("--joint", joint, "--gpu-policy beside it")
    if trace is None:
        for option, value in (("--policy", policy), ("--format", form), ("--rate", rate)):
            if value is not None:
                instead = "--policies instead, or " if option == "--policy" else ""
                raise InputError(option, value, f"{instead}--trace beside it")
        _of_scenario(scenario, policies or COMPARED, allocator_name, queues, plan_mode(mode), rows, outputs)
        return
    if scenario is not None:
        raise InputError("scenario", str(scenario), "none beside --trace, which brings its own network")
    if plan_mode(mode).caps:
        raise InputError("--mode", mode, f"{DEFAULT_MODE} beside --trace, whose coflows do not last for more than one plan")
    for option, name in (("--plot", plot), ("--rows", rows)):
        if name is not None:
            raise InputError(option, str(name), "no such option beside --trace, which has no stages")
    if policy is not None and policies is not None:
        raise InputError("--policies", policies, "either this or --policy")
    chosen = policy if policies is None else policies
    if chosen is None:
        raise InputError("--policy", None, nearest("", NETWORK_POLICIES))
    names = parse_policies(chosen) if policy is None else [network_policy(chosen).name]
    _of_trace(
        trace, form, rate, names, policy is not None, _allocator(allocator_name, queues, QUEUES, plan_mode(mode)), outputs
    )


def _of_scenario(
    path: Path | None,
    policies: str,
    allocator_name: str,
    queues: str | None,
    mode: PlanMode,
    rows: str | None,
    outputs: Outputs,
) -> None:
    names = parse_policies(policies)
    loaded = scenarios.load(path or scenarios.shipped())
    chosen = _allocator(allocator_name, queues, loaded.queues, mode)
    _check_pairs(names, chosen)
    if rows is not None and (rows not in ROWS or outputs["--table"] is None):
        raise InputError("--rows", rows, f"{' or '.join(ROWS)}, beside --table")
    check_outputs(outputs)
    from beamer.simulate.runs import run_scenario

    run_scenario(loaded, names, chosen, _described(chosen), rows or ROWS[0], outputs)


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
    chosen = _allocator(allocator_name, queues, loaded.queues, mode)
    _check_pairs(names, chosen)
    check_outputs(outputs)
    from beamer.simulate.runs import run_searches

    run_searches(loaded, gpu_names, names, chosen, _described(chosen), parts, outputs)


def _of_trace(
    path: Path, form: str | None, rate: str | None, names: list[str], alone: bool, chosen: Allocator, outputs: Outputs
) -> None:
    if form is None:
        raise InputError("--format", form, f"how the trace is written: {' or '.join(FORMATS)}")
    if rate is None:
        raise InputError("--rate", rate, "that of the trace's ports, such as '1gbit'")
    rate_bps = parse_rate(rate, "--rate")
    if rate_bps > MAX_RATE_BPS:
        raise InputError("--rate", rate, f"at most {MAX_RATE_BPS} bit/s")
    _check_pairs(names, chosen)
    loaded = read(path, form)
    check_outputs(outputs)
    from beamer.simulate.runs import run_trace

    title = f"{path.name}: {len(loaded.coflows)} coflows on {loaded.ports} ports of {rate}, {_described(chosen)}"
    run_trace(title, loaded, rate_bps, names, chosen, alone, outputs)


def _allocator(name: str, queues: str | None, default: int, mode: PlanMode) -> Allocator:
    """Return the allocator of that name; of classes, with as many as `queues` says."""
    if name == Classes.name:
        return Classes(queues=default if queues is None else _queues(queues), plan_mode=mode)
    chosen = allocator(name)
    if mode.name != DEFAULT_MODE:
        raise InputError("--mode", mode.name, f"no such option beside --allocator {name}, which has no classes")
    if queues is not None:
        raise InputError("--queues", queues, f"no such option beside --allocator {name}, which has no classes")
    return chosen


def _queues(text: str) -> int | None:
    if text == UNLIMITED:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= QUEUES:
        raise InputError("--queues", text, f"1 to {QUEUES}, the priorities that switches have, or {UNLIMITED}")
    return int(text)


def _described(chosen: Allocator) -> str:
    if not isinstance(chosen, Classes):
        return chosen.name
    of_mode = "" if chosen.plan_mode.name == DEFAULT_MODE else f", mode {chosen.plan_mode.name}"
    return f"{UNLIMITED if chosen.queues is None else chosen.queues} {chosen.name}{of_mode}"


def _check_pairs(policies: list[str], chosen: Allocator) -> None:
    for name in policies:
        check_pair(network_policy(name), chosen)
