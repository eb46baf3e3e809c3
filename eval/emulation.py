"""Whether what is true of simulated works is true of emulated ones: works as they are drawn, each emulated under each policy.

The distribution itself is simulated over many seeds, so that it can be seen whether a work is an unusual one.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from pydantic import Field
from rich.table import Table

from beamer.errors import InputError
from beamer.network.allocation import Classes
from beamer.sim import simulate
from beamer.workloads.generate import Workload, generate
from beamer.workloads.scenario import parse
from beamer.workloads.searches import search
from beamer.yaml_files import dump_yaml, read_yaml
from eval.committed import Committed, seed_range
from eval.config_section import ConfigSection
from eval.console import wide_console
from eval.emulated_runs import RunDocument, emulated_figures
from eval.interval_plot import IntervalEstimate, IntervalPlot, Panel, single
from eval.network.cells import Cell
from topologies.emulation.accounting import CLASS_SHARE_LIMIT, DROP_LIMIT

CONFIG = Path(__file__).parent / "configs" / "emulation.yaml"
MAX_DISAGREEMENT = 0.10  # An emulated mean may differ by so much, relative to the simulated one.
RUNS = 3  # A work has at most so many runs under a policy.
SHIPPED_SEED = 0  # The shipped scenario is drawn from the config's base with this seed.
SIDES = ("emulated", "simulated")
RATIOS = {"mean": "mean SCT", "p95": "p95 SCT", "makespan": "worst makespan"}  # of `Ratios`, as tables call them

ScenarioDocument = dict[str, Any]
"""The content of a scenario file."""


class DrawnWork(Cell):
    """A network and the searches on it, fields as of `Workload`. transport: keys of a scenario file."""

    bytes_scale: float
    start_up_s: float
    transport: dict[str, Any] = Field(default_factory=dict)

    def document(self, seed: int) -> ScenarioDocument:
        """Return what is drawn from a seed. Raises `InputError` for what cannot be."""
        fields = {name: value for name, value in self if name != "transport"}
        return generate(Workload(**(fields | {"seed": seed, "search": search(**self.search)}))) | self.transport


class EmulationConfig(ConfigSection):
    """What is run. works: by name, a seed and the fields that differ from `base`. seeds: of `base`, simulated alone."""

    policies: tuple[str, ...] = Field(min_length=2)
    seeds: int = Field(ge=2)
    base: DrawnWork
    works: dict[str, dict[str, Any]]

    def model_post_init(self, context: Any) -> None:
        """Check that every work can be drawn."""
        for name in self.works:
            parse(self.work(name))

    def work(self, name: str) -> ScenarioDocument:
        """Return a work. Raises `InputError`."""
        changes = dict(self.works[name])
        seed = changes.pop("seed", None)
        if not isinstance(seed, int):
            raise InputError(f"works.{name}.seed", seed, "a number, to draw from")
        return DrawnWork.model_validate(self.base.model_dump() | changes).document(seed)


@dataclass(frozen=True)
class Ratios:
    """A policy's run beside the baseline's. makespan: of the search that fares worst."""

    mean: float
    p95: float
    makespan: float

    @classmethod
    def of(cls, run: RunDocument, base: RunDocument) -> "Ratios":
        """Compare two runs of one work."""
        worst = max(run["makespans_s"][study] / base["makespans_s"][study] for study in base["makespans_s"])
        return cls(run["mean_sct_s"] / base["mean_sct_s"], run["p95_sct_s"] / base["p95_sct_s"], worst)


def simulated(work: ScenarioDocument, policies: Sequence[str]) -> dict[str, RunDocument]:
    """Return by policy what the simulator expects of a work."""
    scenario = parse(work)
    found: dict[str, RunDocument] = {}
    for policy in policies:
        run = simulate(scenario, policy, allocator=Classes(queues=scenario.queues))
        found[policy] = {"mean_sct_s": run.mean_sct_s, "p95_sct_s": run.p95_sct_s, "makespans_s": run.makespans_s}
    return found


def emulated(work: ScenarioDocument, policies: Sequence[str]) -> dict[str, RunDocument]:
    """Emulate a work under each policy and return what came of it.

    A run that the machine was too slow for says nothing of the network: it is repeated, twice at most, and the last one counts.
    """
    return {policy: _until_kept_up(partial(_emulated, work, policy)) for policy in policies}


def _emulated(work: ScenarioDocument, policy: str) -> RunDocument:
    with tempfile.TemporaryDirectory() as directory:
        scenario = Path(directory) / "scenario.yaml"
        scenario.write_text(dump_yaml(work))
        (run,) = emulated_figures(scenario, "--policies", policy)
    shares = ("class_share_min", "dropped_share", "vswitchd_thread_share")
    return {key: run[key] for key in ("mean_sct_s", "p95_sct_s", "makespans_s", *shares, "findings")}


def _disagreement(relative: float) -> str:
    """Return in words how far an emulated mean is from the simulated one, if farther than it is to be."""
    off = relative - 1
    if abs(off) <= MAX_DISAGREEMENT:
        return ""
    return f"{abs(off):.1%} {'above' if off > 0 else 'below'} simulated (bound {MAX_DISAGREEMENT:.0%})"


def _until_kept_up(emulate: Callable[[], RunDocument]) -> RunDocument:
    for _ in range(RUNS - 1):
        run = emulate()
        is_of_queues = run["class_share_min"] < CLASS_SHARE_LIMIT or run["dropped_share"] > DROP_LIMIT
        if is_of_queues or not run["findings"]:
            return run
    return emulate()


@dataclass
class EmulationStudy:
    """What came of it. works: by name, `emulated` and `simulated`, by policy. distribution: by policy, a run per seed."""

    config: EmulationConfig
    works: dict[str, dict[str, dict[str, RunDocument]]]
    distribution: dict[str, list[RunDocument]]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "EmulationStudy":
        """Return the study that a file's content is of."""
        return cls(EmulationConfig.model_validate(document["config"]), document["works"], document["distribution"])

    def as_json(self) -> dict[str, Any]:
        """Return its config and figures as plain JSON."""
        return {"config": self.config.model_dump(), "works": self.works, "distribution": self.distribution}

    def has(self, config: EmulationConfig, name: str) -> bool:
        """Return whether its figures of a work are of what `config` draws under that name, and of its policies."""
        same = name in self.config.works and self.config.work(name) == config.work(name)
        return same and self.config.policies == config.policies

    @property
    def seeds_in_words(self) -> str:
        """The seeds of its runs, in words."""
        drawn = sorted({work["seed"] for work in self.config.works.values()})
        return f"{seed_range(0, self.config.seeds)}, simulated; {', '.join(map(str, drawn))}, emulated"

    def tables(self) -> dict[str, list[Table]]:
        """Return every table by the name of its section."""
        return {"works": [self.works_table()], "distribution": [self.distribution_table()]}

    def plots(self) -> dict[str, IntervalPlot]:
        """Return every plot that the document shows, by a name."""
        return {"works": self._plot_of_works(), "distribution": self._plot_of_distribution()}

    def _plot_of_works(self) -> IntervalPlot:
        """Return the works' ratios to the baseline, emulated and simulated, and emulated means to simulated ones."""
        base, *others = self.config.policies
        panels = []
        for key, title in RATIOS.items():
            series: dict[str, dict[str, IntervalEstimate]] = {}
            for policy in others:
                for side in SIDES:
                    found = {name: asdict(Ratios.of(of[side][policy], of[side][base]))[key] for name, of in self.works.items()}
                    series[f"{policy}, {side}"] = {name: IntervalEstimate(one, one, one) for name, one in found.items()}
            panels.append(Panel(f"{title} / {base}", series))
        accuracy: dict[str, dict[str, IntervalEstimate]] = {}
        for policy in (base, *others):
            means = {side: {name: of[side][policy]["mean_sct_s"] for name, of in self.works.items()} for side in SIDES}
            ratios = {name: means["emulated"][name] / means["simulated"][name] for name in self.works}
            accuracy[policy] = {name: IntervalEstimate(one, one, one) for name, one in ratios.items()}
        panels.append(Panel("emulated / simulated mean", accuracy))
        return single(list(self.works), *panels)

    def _plot_of_distribution(self) -> IntervalPlot:
        """Return the ratios to the baseline over the seeds: the median, from the least to the greatest, by policy."""
        base = self.config.policies[0]
        series: dict[str, dict[str, IntervalEstimate]] = {}
        for policy, runs in self.distribution.items():
            if policy == base:
                continue
            ratios = [asdict(Ratios.of(run, of)) for run, of in zip(runs, self.distribution[base], strict=True)]
            for key, title in RATIOS.items():
                values = [ratio[key] for ratio in ratios]
                series.setdefault(policy, {})[title] = IntervalEstimate(float(np.median(values)), min(values), max(values))
        axis = f"ratio to {base}: median of {self.config.seeds} seeds, least to greatest"
        return single(list(RATIOS.values()), Panel(axis, series))

    def works_table(self) -> Table:
        """Return a row per work and policy, relative to the baseline."""
        base, *others = self.config.policies
        table = Table(title=f"drawn works: ratios to {base}, emulated (simulated)", title_justify="left")
        ratios = ("mean SCT", "p95 SCT", "worst makespan", "emulated / simulated mean SCT")
        for column in ("work", "policy", *ratios, "class share, dropped", "findings"):
            table.add_column(column)
        for name, runs in self.works.items():
            real, expected = runs["emulated"], runs["simulated"]
            for policy in others:
                pair = [asdict(Ratios.of(side[policy], side[base])) for side in (real, expected)]
                relative = {p: real[p]["mean_sct_s"] / expected[p]["mean_sct_s"] for p in (base, policy)}
                accuracy = (f"{p} {value:.2f}" for p, value in relative.items())
                findings = [f"{p}: {finding}" for p in (base, policy) for finding in real[p]["findings"]] or ["valid"]
                findings += [f"{p}: mean {why}" for p, value in relative.items() if (why := _disagreement(value))]
                cells = [f"{pair[0][key]:.2f} ({pair[1][key]:.2f})" for key in ("mean", "p95", "makespan")]
                shares = (f"{p} {real[p]['class_share_min']:.1%}, {real[p]['dropped_share']:.1%}" for p in (base, policy))
                table.add_row(name, policy, *cells, ", ".join(accuracy), "; ".join(shares), "; ".join(findings))
        return table

    def distribution_table(self) -> Table:
        """Return a row per policy and measure: its ratio to the baseline over the seeds, and that of the shipped scenario."""
        base = self.config.policies[0]
        title = f"{self.config.seeds} seeds, simulated: ratios to {base}"
        table = Table(title=title, title_justify="left")
        for column in ("policy", "", "median", "middle half", "range", f"seed {SHIPPED_SEED}", "seeds that are lower"):
            table.add_column(column)
        for policy, runs in self.distribution.items():
            if policy == base:
                continue
            ratios = [asdict(Ratios.of(run, of)) for run, of in zip(runs, self.distribution[base], strict=True)]
            for key, label in RATIOS.items():
                values = np.array([ratio[key] for ratio in ratios])
                low, first, middle, third, high = np.quantile(values, (0, 0.25, 0.5, 0.75, 1))
                row = (
                    f"{middle:.2f}",
                    f"{first:.2f} to {third:.2f}",
                    f"{low:.2f} to {high:.2f}",
                    f"{values[SHIPPED_SEED]:.2f}",
                )
                table.add_row(policy, label, *row, str(int((values < values[SHIPPED_SEED]).sum())))
        return table


COMMITTED = Committed("emulation", "experiments/emulation.md", EmulationStudy.from_json)


def emulation(
    config_file: Annotated[Path, typer.Option("--config", help="What is run.", exists=True, dir_okay=False)] = CONFIG,
    json_file: Annotated[Path, typer.Option("--json", help="Write every run's figures here.")] = Path("results/emulation.json"),
    works: Annotated[str, typer.Option(help="Emulate works whose name contains this; the file's figures of others stay.")] = "",
    simulate_only: Annotated[bool, typer.Option("--simulate", help="The distribution alone; emulate nothing.")] = False,
    docs: Annotated[bool, typer.Option("--docs", help="Write the committed figures, and the docs' tables and plots.")] = False,
) -> None:
    """Compare network policies on drawn works, emulated and simulated."""
    config = EmulationConfig.model_validate(read_yaml(config_file, "--config"))
    path = COMMITTED.output(docs, whole=config_file == CONFIG and not simulate_only, path=json_file)
    if works and simulate_only:
        raise InputError("--works", works, "nothing beside --simulate, which emulates none")
    chosen = [name for name in config.works if works in name and not simulate_only]
    if works and not chosen:
        raise InputError("--works", works, f"a part of one of {', '.join(config.works)}")
    before = COMMITTED.read(path) if (works or simulate_only) and path.exists() else EmulationStudy(config, {}, {})
    kept = {name: before.works[name] for name in config.works if name in before.works and before.has(config, name)}
    if docs and (missing := [name for name in config.works if name not in kept and name not in chosen]):
        raise InputError("--works", works, f"also a part of {', '.join(missing)}, of which there are no figures")
    console = wide_console(160)
    # SEBF is the best of those that know no stages, and runs for the simulated seeds.
    policies = dict.fromkeys([*config.policies, "sebf"])
    drawn = [simulated(config.base.document(seed), list(policies)) for seed in range(config.seeds)]
    study = EmulationStudy(config, {}, {policy: [runs[policy] for runs in drawn] for policy in policies})
    console.print(study.distribution_table())
    study.works |= kept
    for name in chosen:
        work = config.work(name)
        study.works[name] = {"emulated": emulated(work, config.policies), "simulated": simulated(work, config.policies)}
        means = ", ".join(f"{policy} {run['mean_sct_s']:.2f} s" for policy, run in study.works[name]["emulated"].items())
        console.print(f"{name}: {means}")
        COMMITTED.write(study, path)
    study.works = {name: study.works[name] for name in config.works if name in study.works}
    COMMITTED.write(study, path)
    if study.works:
        console.print(study.works_table())
    if docs:
        COMMITTED.renew(study)
    console.print(f"figures: {path}")
