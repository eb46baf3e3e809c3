"""`python -m eval packets`: the packets of two searches on the link where they meet, under `fair` and in Beamer's order.

Each policy runs several times on the emulated network. The picture is of the run of median mean stage completion time.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from typing import Annotated, Any

import typer
from pydantic import Field
from rich.console import Console
from rich.table import Table

from beamer.network.policies import network_policy
from beamer.progress import work
from beamer.workloads.scenario import Scenario, load
from controller.warm_up import warm_up
from eval.committed import FOLDER, Committed
from eval.config_section import ConfigSection
from eval.console import wide_console
from eval.grid import Docs, JsonFile
from topologies.emulation.exchange import RunConfig
from topologies.emulation.platform import require
from topologies.emulation.supervisor import emulated_run

SCENARIO = Path(__file__).parent / "configs" / "packets.yaml"
PICTURE = FOLDER / "images" / "two-searches.png"
LINK, INTERFACE = ("s1", "s2"), "s1-eth1"
POLICIES = ("fair", "beamer")
INTERVAL_S = 0.2  # about 55 frames at the link's rate
PATIENCE_S = 120.0
LABEL_HEIGHT = 0.1  # A row of labels per search, of the link's rate.
MAX_RUNS = 3  # A repetition has at most so many runs: an invalid one is repeated, and the last one counts.


class StageTimes(ConfigSection):
    """When a stage began and ended, seconds after the scenario's start."""

    study: str
    stage: str
    start_s: float
    end_s: float


class CapturedRun(ConfigSection):
    """A run.

    first_s: when the first interval began, seconds after the scenario's start. mbit_per_s: what each search sent over the link,
    by intervals. findings: what makes it invalid.
    """

    stages: tuple[StageTimes, ...]
    first_s: float
    mbit_per_s: dict[str, tuple[float, ...]]
    findings: tuple[str, ...] = ()

    @property
    def sct_s(self) -> dict[str, float]:
        """The stage completion times by STUDY/STAGE."""
        return {f"{stage.study}/{stage.stage}": stage.end_s - stage.start_s for stage in self.stages}

    @property
    def mean_sct_s(self) -> float:
        """The mean stage completion time."""
        return sum(self.sct_s.values()) / len(self.stages)


class PacketsConfig(ConfigSection):
    """What is run. repetitions: of each policy."""

    repetitions: int = Field(default=3, ge=1)


@dataclass(frozen=True)
class PacketsStudy:
    """The runs of each policy."""

    config: PacketsConfig
    runs: Mapping[str, Sequence[CapturedRun]]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "PacketsStudy":
        """Return the study that a file's content is of."""
        runs = {policy: [CapturedRun.model_validate(one) for one in found] for policy, found in document["runs"].items()}
        return cls(PacketsConfig.model_validate(document["config"]), runs)

    def as_json(self) -> dict[str, Any]:
        """Return its config and figures as plain JSON."""
        runs = {policy: [one.model_dump(mode="json") for one in found] for policy, found in self.runs.items()}
        return {"config": self.config.model_dump(mode="json"), "runs": runs}

    @property
    def seeds_in_words(self) -> str:
        """The seeds of its runs, in words."""
        return "none"

    def median_run(self, policy: str) -> CapturedRun:
        """Return the run of median mean stage completion time, the lower one of two."""
        found = self.runs[policy]
        middle = median_low(one.mean_sct_s for one in found)
        return next(one for one in found if one.mean_sct_s == middle)

    def tables(self) -> dict[str, list[Table]]:
        """Return every table by the name of its section."""
        times = self.config.repetitions
        table = Table(title=f"stage completion times (s) of the run of median mean, of {times}; (least to most) of all")
        shown = {policy: self.median_run(policy) for policy in self.runs}
        table.add_column("stage")
        for policy in self.runs:
            table.add_column(policy, justify="right")
        for name in sorted(shown[POLICIES[0]].sct_s):
            table.add_row(name, *(f"{run.sct_s[name]:.2f}" for run in shown.values()))
        means = {policy: [one.mean_sct_s for one in found] for policy, found in self.runs.items()}
        table.add_row(
            "mean", *(f"{shown[who].mean_sct_s:.2f} ({min(found):.2f} to {max(found):.2f})" for who, found in means.items())
        )
        return {"searches": [table]}


COMMITTED = Committed("packets", "experiments/emulation.md", PacketsStudy.from_json)


def captured(scenario: Scenario, policy: str) -> CapturedRun:
    """Emulate the scenario under a policy, and count what each search sends over the link meanwhile."""
    search_of = {
        host.ip: study.name
        for study in scenario.studies
        for stage in study.stages
        for job in stage.jobs
        for worker in job.workers
        for host in scenario.fabric.hosts
        if host.name == worker.host
    }
    with emulated_run(RunConfig(SCENARIO, policy)) as run:
        command = [*run.enter(), sys.executable, "-m", "eval.link_capture", INTERFACE, str(INTERVAL_S)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as capture:
            assert capture.stdout
            try:
                capture.stdout.readline()
                run.start_studies()
                measured = run.finish_studies(PATIENCE_S)
            finally:
                capture.send_signal(signal.SIGTERM)
            seen = json.loads(capture.stdout.read())
    skipped = int((measured.started_s - seen["began_s"]) / INTERVAL_S)
    rates: dict[str, list[float]] = {}
    for sender, counts in seen["bytes"].items():
        if sender in search_of:
            rate = [8 * count / INTERVAL_S / 1e6 for count in counts[skipped:]]
            known = rates.setdefault(search_of[sender], [0.0] * len(rate))
            rates[search_of[sender]] = [round(a + b, 3) for a, b in zip(known, rate, strict=True)]
    stages = [
        StageTimes(
            study=study["name"],
            stage=stage["name"],
            start_s=round(stage["registered_s"] - measured.started_s, 3),
            end_s=round(stage["ended_s"] - measured.started_s, 3),
        )
        for study in measured.studies
        for stage in study["stages"]
    ]
    return CapturedRun(
        stages=tuple(stages),
        first_s=round(seen["began_s"] + skipped * INTERVAL_S - measured.started_s, 3),
        mbit_per_s={name: tuple(rate) for name, rate in rates.items()},
        findings=measured.health.findings(),
    )


def draw(study: PacketsStudy, scenario: Scenario, path: Path) -> None:
    """Draw what each search sent over the link, a panel per policy, with the ends of its stages, and write the picture."""
    from matplotlib.figure import Figure

    names = [each.name for each in scenario.studies]
    capacity = scenario.fabric.links[scenario.fabric.link_index[LINK]].rate_bps / 1e6
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    panels = figure.subplots(len(POLICIES), 1, sharex=True, sharey=True)
    for panel, policy in zip(panels, POLICIES, strict=True):
        run = study.median_run(policy)
        length = max(map(len, run.mbit_per_s.values()))
        times = [run.first_s + i * INTERVAL_S for i in range(length)]
        rates = [[*run.mbit_per_s[name], *[0.0] * (length - len(run.mbit_per_s[name]))] for name in names]
        panel.stackplot(times, rates, labels=[f"packets of search {name!r}" for name in names], step="post", alpha=0.85)
        for stage in run.stages:
            color = f"C{names.index(stage.study)}"
            panel.axvline(stage.end_s, color=color, linewidth=1.5, linestyle="--")
            height = 1.05 + LABEL_HEIGHT * names.index(stage.study)
            panel.text(stage.end_s, capacity * height, f"{stage.study}/{stage.stage}", color=color, fontsize=8, ha="center")
        title = "without Beamer (one class, TCP shares)" if policy == POLICIES[0] else "with Beamer (classes by stage)"
        panel.set_title(f"{title}: mean stage completion time {run.mean_sct_s:.1f} s", loc="left", fontsize=10, pad=26)
        panel.set_ylim(0, capacity * 1.02)
        panel.set_ylabel("Mbit/s")
    panels[0].legend(loc="lower right", fontsize=8)
    panels[-1].set_xlabel(f"time (s); dashed: a stage ends; link {'-'.join(LINK)}, {capacity:.0f} Mbit/s, emulated")
    figure.savefig(path, dpi=120)


def packets(
    json_file: JsonFile = Path("results/packets.json"),
    plot: Annotated[Path, typer.Option(help="Draw the picture to this PNG.", dir_okay=False)] = Path("results/packets.png"),
    repetitions: Annotated[int | None, typer.Option(min=1, help="Runs of each policy.  [default: 3]")] = None,
    docs: Docs = False,
) -> None:
    """Draw the packets of two searches on the link where they meet, under `fair` and `beamer`."""
    require()
    path = COMMITTED.output(docs, whole=repetitions is None, path=json_file)
    config = PacketsConfig() if repetitions is None else PacketsConfig(repetitions=repetitions)
    console, scenario = wide_console(120), load(SCENARIO)
    for policy in POLICIES:
        warm_up(scenario.fabric, network_policy(policy), scenario.queues, None)
    study = repeated(config, scenario, console)
    COMMITTED.write(study, path)
    draw(study, scenario, PICTURE if docs else plot)
    for table in study.tables()["searches"]:
        console.print(table)
    if docs:
        COMMITTED.renew(study)
    console.print(f"figures: {path}   picture: {PICTURE if docs else plot}")


def repeated(config: PacketsConfig, scenario: Scenario, console: Console) -> PacketsStudy:
    """Run every policy as often as the config says; those of one repetition one after another."""
    runs: dict[str, list[CapturedRun]] = {policy: [] for policy in POLICIES}
    for repetition in range(1, config.repetitions + 1):
        for policy in POLICIES:
            for _ in range(MAX_RUNS):
                with work(f"{repetition} of {config.repetitions}: {policy}"):
                    run = captured(scenario, policy)
                if not run.findings:
                    break
                console.print(f"{repetition}: {policy}: invalid: {'; '.join(run.findings)}")
            runs[policy].append(run)
            console.print(f"{repetition}: {policy}: {run.mean_sct_s:.2f} s")
    return PacketsStudy(config, runs)
