"""From what an emulated run of searches measured to the figures of both levels."""

from functools import cached_property
from typing import Any

from beamer.gpu.model import Cluster
from beamer.measures import quantile
from beamer.report.joint import joint_document
from beamer.sim.gpu import JobRun
from beamer.sim.joint import JointRun
from beamer.sim.results import StageResult
from beamer.studies.model import TrialStatus
from beamer.workloads.joint import JointScenario
from topologies.emulation.accounting import HopShare, class_share, dropped_share, findings, hop_shares
from topologies.emulation.exchange import RunMeasurements


class JointOutcome:
    """The emulated run of searches under a policy of each level beside its simulation. run: as measured."""

    def __init__(
        self, gpu_policy: str, policy: str, scenario: JointScenario, measured: RunMeasurements, simulated: JointRun
    ) -> None:
        self.measured = measured
        self.simulated = simulated
        self._scenario = scenario
        self.run = _run(gpu_policy, policy, scenario, measured)

    @cached_property
    def hops(self) -> tuple[HopShare, ...]:
        """The account of every queue."""
        return hop_shares(
            self._scenario.fabric, self.measured.pairs, [*self.measured.switch_queues, *self.measured.host_queues]
        )

    @property
    def findings(self) -> tuple[str, ...]:
        """What makes the run invalid."""
        return (*self.measured.health.findings(), *findings(self._scenario.fabric, self.hops, self.measured.pairs))

    def document(self) -> dict[str, Any]:
        """Return all figures as plain data."""
        return {
            **joint_document(self.run),
            "simulated": joint_document(self.simulated),
            "class_share_min": class_share(self.hops),
            "dropped_share": dropped_share(self._scenario.fabric, self.hops, self.measured.pairs),
            "plan_p50_ms": quantile(self.measured.latencies_ms, 0.5),
            "plan_p99_ms": quantile(self.measured.latencies_ms, 0.99),
            "processor_waiting_shares": self.measured.health.waiting_shares,
            "vswitchd_thread_share": self.measured.health.busiest_thread,
            "valid": not self.findings,
            "findings": list(self.findings),
        }


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
