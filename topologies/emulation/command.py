"""`beamer emulate` and `beamer clean`."""

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

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
from beamer.progress import work
from beamer.report.joint import joint_table
from beamer.report.plots import plot_timeline
from beamer.report.summary import searches_compared, summary
from beamer.report.tables import job_table, mean_rows, stage_table
from beamer.scenario_options import (
    Details,
    GpuOptions,
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
from beamer.sim import simulate
from beamer.sim.joint import simulate_scenario
from beamer.sim.results import RunResult
from beamer.workloads.joint import JointScenario, load_either
from beamer.workloads.scenario import Scenario
from controller.warm_up import warm_up
from topologies.emulation import fairness
from topologies.emulation.cost_tables import cost_table
from topologies.emulation.exchange import RunConfig
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


@dataclass(frozen=True)
class _Options:
    """What the options ask for, whichever kind the scenario is of."""

    path: Path
    """The scenario's file."""
    policies: Sequence[str]
    """Names of network policies, the baseline first."""
    mode: PlanMode
    """How the order becomes a plan."""
    outputs: Mapping[str, Path | None]
    """The files that were asked for, by option; None: not asked for."""
    logs: Path | None
    """The directory to keep logs in."""
    details: bool
    """Whether every stage and job, and what was checked of packets, is shown."""


def emulate(
    scenario: ScenarioFile = None,
    policies: PolicyList = "fair,beamer",
    mode: ModeName = DEFAULT_MODE,
    gpu_policies: GpuPolicyList = None,
    joint: JointNames = None,
    queues: Annotated[int | None, typer.Option(help="Managed classes per port.  [default: the scenario's]")] = None,
    json_file: JsonFile = None,
    plot: PlotFile = None,
    logs: Annotated[Path | None, typer.Option(help="Keep the logs of every part in this directory.", file_okay=False)] = None,
    details: Details = False,
) -> None:
    """Run a scenario on real packets under each policy, and in the simulator beside it."""
    names, gpu = parse_policies(policies), parse_gpu_options(gpu_policies, joint)
    check_live("--joint", gpu.parts)
    path, loaded = load_either(scenario, {"--gpu-policy": gpu_policies, "--joint": joint})
    if queues is not None:
        loaded = replace(loaded, queues=check_queues(queues))
    asked = _Options(path, names, plan_mode(mode), {"--json": json_file, "--plot": plot}, logs, details)
    if isinstance(loaded, JointScenario):
        check_searches(loaded)
        _prepare(network_of(loaded), asked)
        _emulate_searches(loaded, gpu, asked)
    else:
        check_emulable(loaded)
        _prepare(loaded, asked)
        _emulate_scenario(loaded, asked)


def _prepare(network: Scenario, asked: _Options) -> None:
    """Check what a run needs, and do what is not to be timed. Raises `InputError`, `PlatformError`."""
    for name in asked.policies:
        check_pair(network_policy(name), Classes(queues=network.queues, plan_mode=asked.mode))
    require()
    require_congestion_control(network.transport.congestion_control)
    check_outputs(asked.outputs)
    if asked.logs is not None:
        try:
            asked.logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError("--logs", str(asked.logs), f"a directory that can be written ({error.strerror})") from error
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, _terminate)
    # This compiles what a controller decides by: until it has done so itself, jobs send without a plan.
    for name in asked.policies:
        warm_up(network.fabric, network_policy(name), network.queues, None)


def _emulate_scenario(scenario: Scenario, asked: _Options) -> None:
    console = Console()
    outcomes = [_run(scenario, name, asked) for name in asked.policies]
    runs = [outcome.result for outcome in outcomes]
    title = f"{scenario.name} on {scenario.fabric.name}, emulated"
    invalid = [outcome.result.policy for outcome in outcomes if outcome.findings]
    console.print(summary(title, runs, [outcome.checks() for outcome in outcomes], invalid))
    if asked.details:
        console.print(job_table(runs, [outcome.job_class_shares for outcome in outcomes]))
        rows = [outcome.rows() for outcome in outcomes]
        checked = [(label, [row[label] for row in rows]) for label in rows[0]]
        console.print(stage_table(title, runs, [*mean_rows(runs), *checked]))
    else:
        console.print("every stage, job and check: --details")
    console.print(cost_table({outcome.result.policy: outcome for outcome in outcomes}))
    for outcome in outcomes:
        for finding in outcome.findings:
            console.print(f"[bold red]invalid[/]: {outcome.result.policy}: {finding}")
    for outcome in outcomes:
        if outcome.note is not None:
            console.print(f"[bold]note[/]: {escape(outcome.note)}", soft_wrap=True)
    if any(outcome.measured.health.waiting_shares is None for outcome in outcomes):
        console.print(f"[bold]note[/]: {NO_WAITING_SHARES}")
    _write(asked, [outcome.document() for outcome in outcomes], runs)


def _emulate_searches(scenario: JointScenario, gpu: GpuOptions, asked: _Options) -> None:
    console = Console()
    for line in with_stand_ins(scenario)[1]:
        console.print(f"[bold]note[/]: {escape(line)}", soft_wrap=True)
    pairs = [(one, other) for one in gpu.policies for other in asked.policies]
    outcomes = [_run_searches(scenario, pair, gpu.parts, asked) for pair in pairs]
    on = f"{scenario.name} on {scenario.fabric.name}"
    runs = [outcome.run for outcome in outcomes]
    invalid = [outcome.run for outcome in outcomes if outcome.findings]
    console.print(searches_compared(runs, invalid), joint_table(f"{on}, emulated", runs))
    if asked.details:
        console.print(joint_table(f"{on}, simulated", [outcome.simulated for outcome in outcomes]))
        console.print(checks_table(f"{on}, packets and plans of the emulation", outcomes))
    else:
        console.print("simulated, and what was checked of packets: --details")
    console.print(cost_table({f"{one.run.gpu_policy}, {one.run.network_policy}": one for one in outcomes}))
    for outcome in outcomes:
        for finding in outcome.findings:
            console.print(f"[bold red]invalid[/]: {outcome.run.gpu_policy}, {outcome.run.network_policy}: {finding}")
    _write(asked, [outcome.document() for outcome in outcomes], [outcome.run.timeline for outcome in outcomes])


def _write(asked: _Options, documents: Sequence[dict[str, Any]], runs: Sequence[RunResult]) -> None:
    if (path := asked.outputs["--json"]) is not None:
        path.write_text(json.dumps({"runs": documents}, indent=2))
    if (path := asked.outputs["--plot"]) is not None:
        plot_timeline(runs, path)


def _run_searches(
    scenario: JointScenario, policies: tuple[str, str], parts: JointParts, asked: _Options
) -> JointOutcome:  # fmt: skip
    """Run searches under a policy of each level. policies: the GPU level's and the network's."""
    gpu, name = policies
    allocator = Classes(queues=scenario.queues, plan_mode=asked.mode)
    config = RunConfig(
        asked.path,
        name,
        scenario.seed,
        mode=asked.mode.name,
        queues=scenario.queues,
        gpu_policy=gpu,
        joint=",".join(parts.names),
    )
    up = emulated_run(config, keep_logs=asked.logs and asked.logs / f"{gpu}-{name}")
    with work(f"{gpu}, {name}: {len(scenario.searches)} searches"), up as run:
        run.start_studies()
        measured = run.finish_studies(RUN_PATIENCE_S)
    simulated = simulate_scenario(scenario, gpu_policy(gpu), network_policy(name), allocator=allocator, parts=parts)
    return JointOutcome(gpu, name, scenario, measured, simulated)


def _run(scenario: Scenario, policy: str, asked: _Options) -> RunOutcome:
    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("stages"),
        TimeElapsedColumn(),
    )
    config = RunConfig(
        asked.path,
        policy,
        scenario.seed,
        calibrate=policy == fairness.POLICY,
        mode=asked.mode.name,
        queues=scenario.queues,
    )
    terminal = Console(stderr=True)
    with Progress(
        *columns, console=terminal, transient=True, redirect_stdout=False, disable=not terminal.is_terminal
    ) as progress:
        setting_up = progress.add_task(f"{policy}: starting", total=None)
        with emulated_run(config, keep_logs=asked.logs and asked.logs / policy) as run:
            progress.remove_task(setting_up)
            bars = {s.name: progress.add_task(f"{policy}: {s.name}", total=len(s.stages)) for s in scenario.studies}
            run.start_studies()
            measured = run.finish_studies(
                RUN_PATIENCE_S, lambda study, done, total: progress.update(bars[study], completed=done)
            )
    allocator = Classes(queues=scenario.queues, plan_mode=asked.mode)
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
