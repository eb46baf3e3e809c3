"""Searches that train on real packets under pairs of policies, several times each, and what the simulator expects of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from pydantic import Field, field_validator
from rich.console import Console
from rich.table import Table

import beamer.workloads
from beamer.errors import InputError, nearest
from beamer.workloads.joint import JointScenario, load
from beamer.yaml_files import read_yaml
from eval.committed import Committed
from eval.config_section import ConfigSection
from eval.console import wide_console
from eval.emulated_runs import RunDocument, emulated_figures
from eval.grid import Docs, JsonFile
from eval.interval_plot import IntervalEstimate, IntervalPlot, Panel, single
from eval.pairs import policies_of
from topologies.emulation.platform import require_root
from topologies.emulation.searches import with_stand_ins

CONFIG = Path(__file__).parent / "configs" / "training.yaml"
SCENARIOS = Path(beamer.workloads.__file__).parent / "scenarios"
MAX_RUNS = 3  # A repetition has at most so many runs: an invalid one is repeated, and the last one counts.
KEPT = ("mean_search_s", "mean_sct_s", "end_s", "class_share_min", "dropped_share", "findings")
KEPT_OF_SIMULATED = ("mean_search_s", "mean_sct_s", "end_s")


class TrainingConfig(ConfigSection):
    """What is run. scenario: the name of a shipped file. pairs: of a GPU policy and a network policy, the baseline first."""

    scenario: str
    pairs: tuple[str, ...] = Field(min_length=2)
    repetitions: int = Field(ge=1)

    @field_validator("scenario")
    @classmethod
    def _check_scenario(cls, name: str) -> str:
        known = [path.name for path in sorted(SCENARIOS.glob("*.yaml"))]
        if name not in known:
            raise InputError("scenario", name, nearest(name, known))
        return name

    @field_validator("pairs")
    @classmethod
    def _check_pairs(cls, pairs: tuple[str, ...]) -> tuple[str, ...]:
        for who in pairs:
            policies_of(who)
        return pairs


@dataclass(frozen=True)
class TrainingStudy:
    """The runs of a config, by pair of policies, repetitions in order."""

    config: TrainingConfig
    runs: Mapping[str, Sequence[RunDocument]]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "TrainingStudy":
        """Return the study that a file's content is of."""
        return cls(TrainingConfig.model_validate(document["config"]), document["runs"])

    def as_json(self) -> dict[str, Any]:
        """Return its config and figures as plain JSON."""
        return {"config": self.config.model_dump(mode="json"), "runs": self.runs}

    @property
    def seeds_in_words(self) -> str:
        """The seeds of its runs, in words."""
        return "none"

    def tables(self) -> dict[str, list[Table]]:
        """Return every table by the name of its section."""
        return {"pairs": [self.pairs_table()]}

    def plots(self) -> dict[str, IntervalPlot]:
        """Return the search times by pair, emulated and simulated."""
        emulated, simulated = {}, {}
        for who in self.config.pairs:
            search_s = [run["mean_search_s"] for run in self.runs[who]]
            emulated[who] = IntervalEstimate(median(search_s), min(search_s), max(search_s))
            expected_s = self.runs[who][0]["simulated"]["mean_search_s"]
            simulated[who] = IntervalEstimate(expected_s, expected_s, expected_s)
        axis = "mean search time (s): median, least to most"
        series = {"on real packets": emulated, "simulated": simulated}
        return {"pairs": single(self.config.pairs, Panel(axis, series, line=None), strong=("on real packets",))}

    def best(self) -> set[tuple[str, ...]]:
        """Return the trials that searches ended with, a set of all runs' answers."""
        return {tuple(run["best"]) for runs in self.runs.values() for run in runs}

    def pairs_table(self) -> Table:
        """Return a row per pair, medians of its repetitions beside what the simulator expects."""
        base = self.runs[self.config.pairs[0]]
        winners = self.best()
        ended = (
            f"every run ended with {', '.join(next(iter(winners)))}"
            if len(winners) == 1
            else "runs ended with different trials"
        )
        times = self.config.repetitions
        of = "one run each" if times == 1 else f"medians of {times} repetitions (least to most)"
        title = f"the searches of {self.config.scenario}, {of}; {ended}"
        table = Table(title=title, title_justify="left")
        columns = (
            "search time (s)",
            "to the first pair",
            "simulated (s)",
            "to the first",
            "emulated / simulated",
            "mean SCT (s)",
        )
        for column in ("GPU policy", "network policy", *columns, "least class share, dropped", "invalid runs"):
            table.add_column(column)
        for who in self.config.pairs:
            runs = self.runs[who]
            search_s = [run["mean_search_s"] for run in runs]
            ratios = [run["mean_search_s"] / first["mean_search_s"] for run, first in zip(runs, base, strict=True)]
            simulated_s = runs[0]["simulated"]["mean_search_s"]
            table.add_row(
                *policies_of(who),
                _spread(search_s),
                f"{median(ratios):.2f}",
                f"{simulated_s:.1f}",
                f"{simulated_s / base[0]['simulated']['mean_search_s']:.2f}",
                f"{median(search_s) / simulated_s:.2f}",
                _spread([run["mean_sct_s"] for run in runs]),
                f"{min(run['class_share_min'] for run in runs):.1%}, {max(run['dropped_share'] for run in runs):.1%}",
                str(sum(bool(run["findings"]) for run in runs)),
            )
        return table


def _spread(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def kept(run: RunDocument) -> RunDocument:
    """Return what the study keeps of a run's figures. best: the trials that ran to the end of their searches."""
    best = sorted(trial["key"] for trial in run["trials"] if trial["status"] == "finished")
    simulated = {name: run["simulated"][name] for name in KEPT_OF_SIMULATED}
    return {name: run[name] for name in KEPT} | {"best": best, "simulated": simulated}


def check_programs(config: TrainingConfig, searches: Callable[[JointScenario], Any] = with_stand_ins) -> None:
    """Check that the scenario's own programs run. searches: as `with_stand_ins`. Raises `InputError` where stand-ins would."""
    if lines := searches(load(SCENARIOS / config.scenario))[1]:
        raise InputError("scenario", config.scenario, f"one whose programs are installed here ({'; '.join(lines)})")


def repeated(config: TrainingConfig, console: Console, keep: Callable[[TrainingStudy], None]) -> TrainingStudy:
    """Run every pair as often as the config says; those of one repetition one after another.

    keep: is given the study so far after each repetition.
    """
    runs: dict[str, list[RunDocument]] = {who: [] for who in config.pairs}
    for repetition in range(1, config.repetitions + 1):
        for who in config.pairs:
            gpu, network = policies_of(who)
            for _ in range(MAX_RUNS):
                (run,) = emulated_figures(SCENARIOS / config.scenario, "--gpu-policy", gpu, "--policies", network)
                if not run["findings"]:
                    break
            runs[who].append(kept(run))
            console.print(f"{repetition}: {who}: {run['mean_search_s']:.1f} s")
        study = TrainingStudy(config.model_copy(update={"repetitions": repetition}), runs)
        keep(study)
    return study


COMMITTED = Committed("training", "experiments/joint.md", TrainingStudy.from_json)


def training(
    config_file: Annotated[Path, typer.Option("--config", help="What is run.", exists=True, dir_okay=False)] = CONFIG,
    json_file: JsonFile = Path("results/training.json"),
    repetitions: Annotated[int | None, typer.Option(min=1, help="Other repetitions than the config says.")] = None,
    docs: Docs = False,
) -> None:
    """Compare pairs of a GPU policy and a network policy on searches that train, emulated and simulated."""
    require_root()
    config = TrainingConfig.model_validate(read_yaml(config_file, "--config"))
    check_programs(config)
    path = COMMITTED.output(docs, whole=config_file == CONFIG and repetitions is None, path=json_file)
    if repetitions is not None:
        config = config.model_copy(update={"repetitions": repetitions})
    console = wide_console(200)
    study = repeated(config, console, partial(COMMITTED.write, path=json_file))  # A part of the study is not committed.
    COMMITTED.write(study, path)
    console.print(study.pairs_table())
    if docs:
        COMMITTED.renew(study)
    console.print(f"figures: {path}")
