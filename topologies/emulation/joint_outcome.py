"""From what an emulated run of searches measured to the figures of both levels."""

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from beamer.gpu.model import Cluster
from beamer.report.joint import joint_document
from beamer.sim.gpu import JobRun
from beamer.sim.joint import JointRun
from beamer.sim.results import StageResult
from beamer.studies.model import TrialStatus
from beamer.workloads.joint import JointScenario
from topologies.emulation.exchange import RunMeasurements
from topologies.emulation.measured import MeasuredRun


class JointOutcome(MeasuredRun):
    """The emulated run of searches under a policy of each level beside its simulation. run: as measured."""

    def __init__(
        self, gpu_policy: str, policy: str, scenario: JointScenario, measured: RunMeasurements, simulated: JointRun
    ) -> None:
        super().__init__(scenario.fabric, measured)
        self.simulated = simulated
        self.run = _run(gpu_policy, policy, scenario, measured)

    def document(self) -> dict[str, Any]:
        """Return all figures as plain data."""
        return {
            **joint_document(self.run),
            "simulated": joint_document(self.simulated),
            "class_share_min": self.class_share_min,
            "dropped_share": self.dropped_share,
            "plan_p50_ms": self.plan_ms(0.5),
            "plan_p99_ms": self.plan_ms(0.99),
            "plan_phases_ms": self.measured.phases_ms,
            "events": self.measured.events,
            "processor_ms_per_event": self.processor_ms,
            "processor_waiting_shares": self.measured.health.waiting_shares,
            "vswitchd_thread_share": self.measured.health.busiest_thread,
            "valid": not self.findings,
            "findings": list(self.findings),
        }


def checks_table(title: str, outcomes: Sequence[JointOutcome]) -> Table:
    """Return a table with a row per run: whether its packets travelled in their classes, and how soon these changed."""
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False)
    for heading in ("GPU\npolicy", "network\npolicy"):
        table.add_column(heading, no_wrap=True)
    for heading in ("least class\nshare", "dropped", "event to plan\np50 / p99 (ms)", "processor wait,\nswitch / controller"):
        table.add_column(heading, justify="right", no_wrap=True)
    for outcome in outcomes:
        table.add_row(
            outcome.run.gpu_policy,
            outcome.run.network_policy,
            f"{outcome.class_share_min:.2%}",
            f"{outcome.dropped_share:.2%}",
            outcome.plan_text,
            outcome.waiting_text,
        )
    return table


def _run(gpu_policy: str, policy: str, scenario: JointScenario, measured: RunMeasurements) -> JointRun:
    began_s = min((study["registered_s"] for study in measured.studies), default=measured.started_s)
    jobs, stages = [], []
    for study in measured.studies:
        for stage in study["stages"]:
            if stage["ended_s"] is not None:
                stages.append(
                    StageResult(study["name"], stage["name"], stage["registered_s"] - began_s, stage["ended_s"] - began_s)
                )
        for trial in study["trials"]:
            spans = [(one["started_s"], one["ended_s"], len(one["workers"])) for one in trial["attempts"]]
            started_s = min((started for started, _, _ in spans), default=None)
            gpu_s = sum(size * (ended - started) for started, ended, size in spans if ended is not None)
            jobs.append(
                JobRun(
                    trial["key"],
                    trial["registered_s"] - began_s,
                    None if started_s is None else started_s - began_s,
                    None if trial["ended_s"] is None else trial["ended_s"] - began_s,
                    TrialStatus(trial["status"]),
                    gpu_s,
                    0.0,
                )
            )
    carried = {f"{link.src}-{link.dst}": 0.0 for link in scenario.fabric.links}
    for pair in measured.pairs:
        for hop in scenario.fabric.path(pair.src, pair.dst, pair.plane) if pair.job else ():
            link = scenario.fabric.links[hop]
            carried[f"{link.src}-{link.dst}"] += pair.sent_bytes
    end_s = max((job.ended_s or 0.0 for job in jobs), default=0.0)
    return JointRun(gpu_policy, policy, tuple(jobs), tuple(stages), end_s, Cluster(scenario.nodes).gpus, carried)
