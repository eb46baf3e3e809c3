"""`beamer emulate` and `beamer clean`."""

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from beamer.errors import InputError
from beamer.gpu.policies import gpu_policy
from beamer.joint.parts import JointParts, check_live
from beamer.network.allocation import Classes, check_pair
from beamer.network.plan import check_queues
from beamer.network.plan_modes import DEFAULT_MODE, PlanMode, plan_mode
from beamer.network.policies import network_policy
from beamer.output_files import check_outputs
from beamer.report import job_table, plot_timeline, stage_table
from beamer.report.joint import joint_table
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
from beamer.sim import simulate
from beamer.sim.joint import simulate_scenario
from beamer.workloads import joint
from beamer.workloads.scenario import Scenario, load, shipped
from controller.warm_up import warm_up
from topologies.emulation import fairness
from topologies.emulation.joint_outcome import JointOutcome, checks_table
from topologies.emulation.outcome import RunOutcome
from topologies.emulation.platform import require, require_congestion_control, require_root
from topologies.emulation.runfile import recorded, remove
from topologies.emulation.searches import check_searches, network_of, with_stand_ins
from topologies.emulation.studies import check_emulable
from topologies.emulation.supervisor import emulated_run

RUN_PATIENCE_S = 900.0
NO_WAITING_SHARES = (
    "this kernel does not count how long a process waits for a processor (it lacks CONFIG_SCHED_INFO), "
    "so that a run that other work on this machine slowed down may be called valid"
)


def emulate(
    scenario: ScenarioFile = None,
    policies: PolicyList = "fair,beamer",
    mode: ModeName = DEFAULT_MODE,
    gpu_policy_names: Annotated[
        str | None,
        typer.Option(
            "--gpu-policy",
            help="Comma-separated GPU policies, for a scenario whose searches ask for GPUs: each with each network policy.",
        ),
    ] = None,
    joint_names: JointNames = None,
    queues: Annotated[int | None, typer.Option(help="Managed classes per port.  [default: the scenario's]")] = None,
    json_file: JsonFile = None,
    plot: PlotFile = None,
    logs: Annotated[Path | None, typer.Option(help="Keep the logs of every part in this directory.", file_okay=False)] = None,
) -> None:
    """Run a scenario on real packets under each policy, and in the simulator beside it."""
    if gpu_policy_names is not None:
        gpu_names = parse_gpu_policies(gpu_policy_names)
        parts = check_live("--joint", parse_joint_parts(joint_names))
        _emulate_searches(
            scenario or joint.shipped(), gpu_names, policies, plan_mode(mode), parts, queues, json_file, plot, logs
        )  # fmt: skip
        return
    if joint_names is not None:
        raise InputError("--joint", joint_names, "--gpu-policy beside it")
    path = scenario or shipped()
    loaded = load(path)
    if queues is not None:
        loaded = replace(loaded, queues=check_queues(queues))
    names = parse_policies(policies)
    carried_out = plan_mode(mode)
    check_emulable(loaded)
    for name in names:
        check_pair(network_policy(name), Classes(queues=loaded.queues))
    _prepare(loaded, names, {"--json": json_file, "--plot": plot}, logs)
    console = Console()
    outcomes = [_run(console, path, loaded, name, carried_out, logs) for name in names]
    runs = [outcome.result for outcome in outcomes]
    console.print(job_table(runs, [outcome.job_class_shares for outcome in outcomes]))
    rows = [outcome.rows() for outcome in outcomes]
    extra = [(label, [row[label] for row in rows]) for label in rows[0]]
    console.print(stage_table(f"{loaded.name} on {loaded.fabric.name}, emulated", runs, extra))
    for outcome in outcomes:
        for finding in outcome.findings:
            console.print(f"[bold red]invalid[/]: {outcome.result.policy}: {finding}")
    for outcome in outcomes:
        if outcome.note is not None:
            console.print(f"[bold]note[/]: {escape(outcome.note)}", soft_wrap=True)
    if any(outcome.measured.health.waiting_shares is None for outcome in outcomes):
        console.print(f"[bold]note[/]: {NO_WAITING_SHARES}")
    if json_file is not None:
        json_file.write_text(json.dumps({"runs": [outcome.document() for outcome in outcomes]}, indent=2))
    if plot is not None:
        plot_timeline(runs, plot)


def _prepare(network: Scenario, names: Sequence[str], outputs: Mapping[str, Path | None], logs: Path | None) -> None:
    """Check what a run needs, and do what is not to be timed. Raises `InputError`, `PlatformError`."""
    require()
    require_congestion_control(network.transport.congestion_control)
    check_outputs(outputs)
    if logs is not None:
        try:
            logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError("--logs", str(logs), f"a directory that can be written ({error.strerror})") from error
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, _terminate)
    for name in names:  # This compiles what a controller decides by: until it has done so itself, jobs send without a plan.
        warm_up(network.fabric, network_policy(name), network.queues, None)


def _emulate_searches(
    path: Path,
    gpu_names: Sequence[str],
    policies: str,
    mode: PlanMode,
    parts: JointParts,
    queues: int | None,
    json_file: Path | None,
    plot: Path | None,
    logs: Path | None,
) -> None:
    loaded = joint.load(path)
    if queues is not None:
        loaded = replace(loaded, queues=check_queues(queues))
    names = parse_policies(policies)
    check_searches(loaded)
    allocator = Classes(queues=loaded.queues, plan_mode=mode)
    for name in names:
        check_pair(network_policy(name), allocator)
    _prepare(network_of(loaded), names, {"--json": json_file, "--plot": plot}, logs)
    console = Console()
    for line in with_stand_ins(loaded)[1]:
        console.print(f"[bold]note[/]: {escape(line)}", soft_wrap=True)
    outcomes = []
    for gpu in gpu_names:
        for name in names:
            keep = logs and logs / f"{gpu}-{name}"
            up = emulated_run(
                path,
                name,
                loaded.seed,
                mode=mode.name,
                queues=loaded.queues,
                gpu_policy=gpu,
                joint=",".join(parts.names),
                keep_logs=keep,
            )
            with console.status(f"{gpu}, {name}: {len(loaded.searches)} searches"), up as run:
                run.start_studies()
                measured = run.finish_studies(RUN_PATIENCE_S)
            simulated = simulate_scenario(loaded, gpu_policy(gpu), network_policy(name), allocator=allocator, parts=parts)
            outcomes.append(JointOutcome(gpu, name, loaded, measured, simulated))
    on = f"{loaded.name} on {loaded.fabric.name}"
    console.print(joint_table(f"{on}, emulated", [outcome.run for outcome in outcomes]))
    console.print(joint_table(f"{on}, simulated", [outcome.simulated for outcome in outcomes]))
    console.print(checks_table(f"{on}, packets and plans of the emulation", outcomes))
    for outcome in outcomes:
        for finding in outcome.findings:
            console.print(f"[bold red]invalid[/]: {outcome.run.gpu_policy}, {outcome.run.network_policy}: {finding}")
    if json_file is not None:
        json_file.write_text(json.dumps({"runs": [outcome.document() for outcome in outcomes]}, indent=2))
    if plot is not None:
        plot_timeline([outcome.run.timeline for outcome in outcomes], plot)


def _run(console: Console, path: Path, scenario: Scenario, policy: str, mode: PlanMode, logs: Path | None) -> RunOutcome:
    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("stages"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=not console.is_terminal) as progress:
        setting_up = progress.add_task(f"{policy}: starting", total=None)
        with emulated_run(
            path,
            policy,
            scenario.seed,
            calibrate=policy == fairness.POLICY,
            keep_logs=logs and logs / policy,
            mode=mode.name,
            queues=scenario.queues,
        ) as run:
            progress.remove_task(setting_up)
            bars = {s.name: progress.add_task(f"{policy}: {s.name}", total=len(s.stages)) for s in scenario.studies}
            run.start_studies()
            measured = run.finish_studies(
                RUN_PATIENCE_S, lambda study, done, total: progress.update(bars[study], completed=done)
            )
    allocator = Classes(queues=scenario.queues, plan_mode=mode)
    return RunOutcome(policy, scenario, measured, simulate(scenario, policy, allocator=allocator))


def clean() -> None:
    """Remove what a killed emulation left behind, and nothing else."""
    require_root()
    console = Console()
    for run in recorded():
        if run.abandoned:
            remove(run)
            console.print(f"removed run {run.id}")
        else:
            console.print(f"run {run.id} belongs to process {run.owner}, which is alive: left alone")


def _terminate(signum: int, frame: FrameType | None) -> None:
    sys.exit(128 + signum)
