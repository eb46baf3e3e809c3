"""The runs of `beamer simulate`, whose options are checked: simulated, printed, and written where that is asked for."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from beamer.gpu.policies import gpu_policy
from beamer.joint.parts import JointParts
from beamer.network.allocation import Allocator
from beamer.network.policies import network_policy
from beamer.report import (
    Row,
    bound_rows,
    coflow_rows,
    job_rows,
    joint_document,
    joint_table,
    plot_cdf,
    plot_timeline,
    replay_document,
    replay_events,
    replay_table,
    run_events,
    simulation_document,
    stage_rows,
    stage_table,
    write_events,
    write_rows,
)
from beamer.sim import Assumptions, simulate
from beamer.sim.joint import simulate_scenario as simulate_searches
from beamer.sim.replay import replay
from beamer.sim.traces import Trace
from beamer.simulate.options import described
from beamer.simulate.outputs import ROWS, Outputs
from beamer.workloads.joint import JointScenario
from beamer.workloads.scenario import Scenario

_TABLE_ROWS = dict(zip(ROWS, (stage_rows, job_rows), strict=True))


def run_scenario(
    scenario: Scenario, names: Sequence[str], chosen: Allocator, bounds: bool, rows: str, outputs: Outputs
) -> None:
    """Run a scenario under each of some network policies. bounds: whether they are shown. rows: one of `ROWS`."""
    assumed = Assumptions()
    found = None
    if bounds:
        from beamer.bounds.scenario import scenario_bounds

        found = scenario_bounds(scenario, assumed.acknowledgements)
    runs = [simulate(scenario, name, assumptions=assumed, allocator=chosen) for name in names]
    title = f"{scenario.name} on {scenario.fabric.name}, simulated, {described(chosen)}"
    Console().print(stage_table(title, runs, bound_rows(runs, found) if found else ()))
    _write_json(outputs["--json"], {"runs": [simulation_document(run, chosen.name, found) for run in runs]})
    if (file := outputs["--plot"]) is not None:
        plot_timeline(runs, file)
    if (file := outputs["--cdf"]) is not None:
        plot_cdf("stage completion time", [(run.policy, [s.sct_s for s in run.stages]) for run in runs], file)
    _write_table(outputs["--table"], [row for run in runs for row in _TABLE_ROWS[rows](run, chosen.name)])
    if (file := outputs["--chrome"]) is not None:
        write_events(run_events(runs), file)


def run_searches(
    scenario: JointScenario,
    gpu_names: Sequence[str],
    names: Sequence[str],
    chosen: Allocator,
    parts: JointParts,
    outputs: Outputs,
) -> None:
    """Run searches that ask for GPUs under each GPU policy with each network policy."""
    runs = [
        simulate_searches(scenario, gpu_policy(gpu), network_policy(name), allocator=chosen, parts=parts)
        for gpu in gpu_names
        for name in names
    ]
    told = f", told of each other: {', '.join(parts.names)}" if parts.names else ""
    Console().print(joint_table(f"{scenario.name} on {scenario.fabric.name}, simulated, {described(chosen)}{told}", runs))
    _write_json(outputs["--json"], {"runs": [joint_document(run) for run in runs]})
    if (file := outputs["--plot"]) is not None:
        plot_timeline([run.timeline for run in runs], file)


def run_trace(
    title: str, trace: Trace, rate_bps: int, names: Sequence[str], chosen: Allocator, bounds: bool, outputs: Outputs
) -> None:
    """Replay a trace under each of some network policies. rate_bps: of the ports. bounds: whether they are shown."""
    found = None
    if bounds:
        from beamer.bounds.scenario import trace_bounds

        found = trace_bounds(trace, rate_bps)
    runs = [replay(trace, rate_bps, network_policy(name), chosen) for name in names]
    Console().print(replay_table(escape(title), runs, found))
    _write_json(outputs["--json"], {"runs": [replay_document(run, found) for run in runs]})
    if (file := outputs["--cdf"]) is not None:
        plot_cdf("coflow completion time", [(run.policy, run.cct_s.tolist()) for run in runs], file)
    _write_table(outputs["--table"], [row for run in runs for row in coflow_rows(run)])
    if (file := outputs["--chrome"]) is not None:
        write_events(replay_events(runs), file)


def _write_json(path: Path | None, document: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(document, indent=2))


def _write_table(path: Path | None, rows: list[Row]) -> None:
    if path is not None:
        write_rows(rows, path)
