"""From what an emulated run measured to the figures that it reports."""

from typing import Any

import numpy as np

from beamer.report.json_documents import run_document
from beamer.sim.results import JobResult, RunResult, StageResult
from beamer.studies.model import trial_key
from beamer.workloads.scenario import Scenario
from topologies.emulation.accounting import excluded_share, unregistered_share
from topologies.emulation.exchange import RunMeasurements
from topologies.emulation.measured import MeasuredRun

GAP_NOTED = 0.15  # Larger gaps between emulated and simulated mean SCT are noted; a machine that keeps up stays within 10 %.


class RunOutcome(MeasuredRun):
    """One policy's emulated run beside its simulation."""

    def __init__(self, policy: str, scenario: Scenario, measured: RunMeasurements, simulated: RunResult) -> None:
        super().__init__(scenario.fabric, measured)
        self.simulated = simulated
        self.result = _result(policy, scenario, measured)

    @property
    def job_class_shares(self) -> dict[str, float]:
        """Per job, the share of its trial's bytes that travelled in the class given."""
        unmatched = unregistered_share(self.measured.pairs, self.measured.unmatched_bytes)
        return {job.key: 1 - unmatched.get(trial_key(job.names[0], job.names[2]), 0.0) for job in self.result.jobs}

    @property
    def excluded_share(self) -> float:
        """The share of all bytes that travelled in a window after a connect or a plan change."""
        if not self.measured.host_queues:  # the edge has counted what its host had not marked
            sent = sum(pair.sent_bytes for pair in self.measured.pairs)
            return sum(pair.sent_bytes for pair in self.measured.pairs if not pair.marked) / max(sent, 1)
        return excluded_share(self.fabric, self.hops, self.measured.host_queues)

    @property
    def gap(self) -> float:
        """How much larger the emulated mean SCT is than the simulated one, relative to this."""
        return self.result.mean_sct_s / self.simulated.mean_sct_s - 1

    @property
    def note(self) -> str | None:
        """What to say of a run that the simulator does not agree with, None of others."""
        if abs(self.gap) <= GAP_NOTED:
            return None
        return (
            f"{self.result.policy}: its mean SCT is {self.gap:+.0%} from the simulated one, more than {GAP_NOTED:.0%}: the "
            f"machine has probably not kept up; do not compare it with other runs, and repeat it on an idle or faster machine"
        )

    def checks(self) -> dict[str, str]:
        """Return as text for a table how far the run can be believed."""
        return {
            "simulated": f"{self.simulated.mean_sct_s:.2f}",
            "class share": f"{self.class_share_min:.1%}",
            "dropped": f"{self.dropped_share:.2%}",
        }

    def rows(self) -> dict[str, str]:
        """Return the figures as text for a table, by their labels."""
        health = self.measured.health
        busiest = max(self.result.utilisation, key=lambda link: self.result.utilisation[link])
        backlogged = "none" if health.backlogged_rate is None else f"{health.backlogged_rate:.1%}"
        return {
            "simulated mean SCT (emulated against it)": f"{self.simulated.mean_sct_s:.2f} ({self.gap:+.1%})",
            "busiest link": f"{busiest} {self.result.utilisation[busiest]:.0%}",
            "mean link utilisation": f"{np.mean(list(self.result.utilisation.values())):.0%}",
            "smallest class share at any queue": f"{self.class_share_min:.2%}",
            "dropped by queues, of the bytes sent": f"{self.dropped_share:.2%}",
            "excluded: bytes in windows after a change": f"{self.excluded_share:.2%}",
            "stage event to plan installed, p50 / p99": f"{self.plan_text} ms",
            "Open vSwitch's busiest thread": f"{health.busiest_thread:.0%} of a core",
            "least rate of a link with backlog": backlogged,
            "processor wait, Open vSwitch / controller": self.waiting_text,
            "Jain's index of equal jobs": "" if self.measured.jain is None else f"{self.measured.jain:.3f}",
        }

    def document(self) -> dict[str, Any]:
        """Return all figures as plain data."""
        return {
            **run_document(self.result),
            "simulated_mean_sct_s": self.simulated.mean_sct_s,
            "class_share_min": self.class_share_min,
            "dropped_share": self.dropped_share,
            "excluded_share": self.excluded_share,
            "job_class_shares": self.job_class_shares,
            "plan_p50_ms": self.plan_ms(0.5),
            "plan_p99_ms": self.plan_ms(0.99),
            "plan_phases_ms": self.measured.phases_ms,
            "events": self.measured.events,
            "processor_ms_per_event": self.processor_ms,
            "vswitchd_thread_share": self.measured.health.busiest_thread,
            "backlogged_rate_share": self.measured.health.backlogged_rate,
            "processor_waiting_shares": self.measured.health.waiting_shares,
            "jain": self.measured.jain,
            "valid": not self.findings,
            "findings": list(self.findings),
            "hops": [
                {
                    "interface": h.interface,
                    "class": h.klass,
                    "edge_bytes": h.edge_bytes,
                    "queue_bytes": h.queue_bytes,
                    "window_bytes": h.window_bytes,
                    "dropped_packets": h.dropped_packets,
                }
                for h in self.hops
            ],
        }


def _result(policy: str, scenario: Scenario, measured: RunMeasurements) -> RunResult:
    stages, jobs = [], []
    for study in measured.studies:
        for stage in study["stages"]:
            start, end = (stage[key] - measured.started_s for key in ("registered_s", "ended_s"))
            stages.append(StageResult(study["name"], stage["name"], start, end))
        for trial in study["trials"]:
            for attempt in trial["attempts"]:  # Each attempt has the name of its stage.
                start, end = (attempt[key] - measured.started_s for key in ("started_s", "ended_s"))
                jobs.append(JobResult(f"{study['name']}/{attempt['name']}/{trial['name']}", start, end))
    jobs.sort(key=lambda job: job.start_s)
    fabric = scenario.fabric
    carried = dict.fromkeys(range(len(fabric.links)), 0)
    ran = {trial["key"] for study in measured.studies for trial in study["trials"]}
    for pair in measured.pairs:
        if pair.job in ran:
            for hop in fabric.path(pair.src, pair.dst, pair.plane):
                carried[hop] += pair.sent_bytes
    utilisation = {
        f"{link.src}-{link.dst}": 8 * carried[i] / (link.rate_bps * measured.duration_s) for i, link in enumerate(fabric.links)
    }
    return RunResult(policy, tuple(stages), tuple(jobs), utilisation)
