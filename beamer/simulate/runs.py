"""The runs of `beamer simulate`, whose options are checked: simulated, printed, and written where that is asked for."""

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from beamer.gpu.policies import gpu_policy
from beamer.network.policies import network_policy
from beamer.progress import work
from beamer.report.chrome import joint_events, replay_events, run_events, write_events
from beamer.report.joint import joint_simulation_document, joint_table
from beamer.report.json_documents import replay_document, simulation_document
from beamer.report.plots import plot_cdf, plot_timeline
from beamer.report.row_files import Row, coflow_rows, job_rows, joint_stage_rows, stage_rows, trial_rows, write_rows
from beamer.report.summary import searches_compared, summary
from beamer.report.tables import bound_rows, mean_rows, replay_table, stage_table
from beamer.scenario_options import GpuOptions
from beamer.sim import Assumptions, simulate
from beamer.sim.joint import simulate_scenario as simulate_searches
from beamer.sim.replay import replay
from beamer.sim.results import RunResult
from beamer.sim.traces import Trace
from beamer.simulate.options import STAGES, ComparedPolicies, described
from beamer.workloads.joint import JointScenario
from beamer.workloads.scenario import Scenario

SIMULATING, LOWER_BOUND = "simulating", "calculating a lower bound"
EVERY_STAGE = "every stage: --details"


def run_scenario(scenario: Scenario, asked: ComparedPolicies) -> None:
    """Run a scenario of a network alone under each network policy."""
    assumed = Assumptions()
    found = None
    if asked.bounds:
        from beamer.bounds.scenario import scenario_bounds

        with work(LOWER_BOUND):
            found = scenario_bounds(scenario, assumed.acknowledgements)
    chosen = asked.allocator
    with work(SIMULATING, len(asked.policies)) as shown:
        runs = []
        for name in asked.policies:
            shown.begin(f"simulating {name}")
            runs.append(simulate(scenario, name, assumptions=assumed, allocator=chosen))
            shown.advance()
    title = f"{scenario.name} on {scenario.fabric.name}, simulated, {described(chosen)}"
    rows = bound_rows(runs, found) if found else []
    console = Console()
    headings = (f"bound ({found.best})", "mean / bound") if found else ()
    bounded = [dict(zip(headings, cells, strict=True)) for cells in zip(*(cells for _, cells in rows), strict=True)]
    console.print(summary(title, runs, bounded))
    console.print(stage_table(title, runs, [*mean_rows(runs), *rows]) if asked.details else EVERY_STAGE)
    rows_of = stage_rows if asked.rows == STAGES else job_rows
    _write_json(asked, [simulation_document(run, chosen.name, found) for run in runs])
    _write_stages(asked, runs)
    _write_rows(asked, [row for run in runs for row in rows_of(run, chosen.name)])
    if (path := asked.outputs["--chrome"]) is not None:
        write_events(run_events(runs), path)


def run_searches(scenario: JointScenario, gpu: GpuOptions, asked: ComparedPolicies) -> None:
    """Run searches that ask for GPUs under each GPU policy with each network policy."""
    bound_s = None
    if asked.bounds:
        from beamer.bounds.joint import search_bound_s

        with work(LOWER_BOUND):
            bound_s = search_bound_s(scenario)
    chosen = asked.allocator
    pairs = [(name, other) for name in gpu.policies for other in asked.policies]
    with work(SIMULATING, len(pairs)) as shown:
        runs = []
        for name, other in pairs:
            shown.begin(f"simulating {name} with {other}")
            ran = simulate_searches(scenario, gpu_policy(name), network_policy(other), allocator=chosen, parts=gpu.parts)
            runs.append(ran)
            shown.advance()
    told = f", told of each other: {', '.join(gpu.parts.names)}" if gpu.parts.names else ""
    title = f"{scenario.name} on {scenario.fabric.name}, simulated, {described(chosen)}{told}"
    console = Console()
    console.print(searches_compared(runs), joint_table(title, runs, bound_s))
    console.print(stage_table(title, [run.timeline for run in runs]) if asked.details else EVERY_STAGE)
    rows_of = joint_stage_rows if asked.rows == STAGES else trial_rows
    _write_json(asked, [joint_simulation_document(run, chosen.name, bound_s) for run in runs])
    _write_stages(asked, [run.timeline for run in runs])
    _write_rows(asked, [row for run in runs for row in rows_of(run, chosen.name)])
    if (path := asked.outputs["--chrome"]) is not None:
        write_events(joint_events(runs), path)


def run_trace(title: str, trace: Trace, rate_bps: int, asked: ComparedPolicies) -> None:
    """Replay a trace under each network policy. rate_bps: of the ports."""
    found = None
    if asked.bounds:
        from beamer.bounds.scenario import trace_bounds

        with work(LOWER_BOUND):
            found = trace_bounds(trace, rate_bps)
    with work(SIMULATING, len(asked.policies)) as shown:
        runs = []
        for name in asked.policies:
            shown.begin(f"replaying under {name}")
            runs.append(replay(trace, rate_bps, network_policy(name), asked.allocator))
            shown.advance()
    Console().print(replay_table(escape(title), runs, found))
    _write_json(asked, [replay_document(run, found) for run in runs])
    _write_cdf(asked, "coflow completion time", [(run.policy, run.cct_s.tolist()) for run in runs])
    _write_rows(asked, [row for run in runs for row in coflow_rows(run)])
    if (path := asked.outputs["--chrome"]) is not None:
        write_events(replay_events(runs), path)


def _write_json(asked: ComparedPolicies, runs: list[dict[str, Any]]) -> None:
    if (path := asked.outputs["--json"]) is not None:
        path.write_text(json.dumps({"runs": runs}, indent=2))


def _write_stages(asked: ComparedPolicies, runs: Sequence[RunResult]) -> None:
    if (path := asked.outputs["--plot"]) is not None:
        plot_timeline(runs, path)
    _write_cdf(asked, "stage completion time", [(run.policy, [s.sct_s for s in run.stages]) for run in runs])


def _write_cdf(asked: ComparedPolicies, what: str, samples: Sequence[tuple[str, Sequence[float]]]) -> None:
    if (path := asked.outputs["--cdf"]) is not None:
        plot_cdf(what, samples, path)


def _write_rows(asked: ComparedPolicies, rows: list[Row]) -> None:
    if (path := asked.outputs["--table"]) is not None:
        write_rows(rows, path)
