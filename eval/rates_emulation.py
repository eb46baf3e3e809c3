"""Modes of keeping an order on real packets: emulated runs of one scenario beside the simulated ideal order.

Each repetition runs every mode one after another, so that they compare runs of the same minutes.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from beamer.network.allocation import Classes
from beamer.sim import Assumptions, simulate
from beamer.workloads.scenario import load
from eval.console import wide_console
from eval.emulated_runs import RunDocument, emulated_figures
from eval.rates.command import RATES
from eval.rates.runs import IDEAL, POLICY, WITHOUT, ModeEntry, RatesConfig

SCENARIO = Path(__file__).parent / "configs" / "twelve-searches.yaml"


def entries(config: RatesConfig) -> dict[str, tuple[str, ModeEntry]]:
    """Return by name what is run: no order first, then the policy under every mode."""
    return {name: entry for name, entry in config.entries.items() if name != IDEAL}


def emulated(scenario: Path, policy: str, entry: ModeEntry) -> RunDocument:
    """Run `scenario` once and return its figures."""
    (run,) = emulated_figures(scenario, "--policies", policy, "--mode", entry.mode, "--queues", str(entry.queues))
    return run


def table(repetitions: Sequence[Mapping[str, RunDocument]], ideal_s: float) -> Table:
    """Return a table with a row per mode. ideal_s: the mean stage completion time of the ideal order, simulated."""
    title = f"{len(repetitions)} repetitions: median (least to greatest); the ideal order takes {ideal_s:.2f} s, simulated"
    shown = Table(title=title, title_justify="left")
    for column in ("", "mean SCT (s)", "to ideal", "to fair", "p95 SCT (s)", "emulated / simulated", "invalid"):
        shown.add_column(column, justify="right" if column else "left")
    for name in repetitions[0]:
        runs = [repetition[name] for repetition in repetitions]
        means = [run["mean_sct_s"] for run in runs]
        shown.add_row(
            name,
            _spread(means, "{:.2f}"),
            _spread([mean / ideal_s for mean in means], "{:.2f}"),
            _spread([mean / rep[WITHOUT]["mean_sct_s"] for mean, rep in zip(means, repetitions, strict=True)], "{:.2f}"),
            _spread([float(np.quantile([stage["sct_s"] for stage in run["stages"]], 0.95)) for run in runs], "{:.2f}"),
            _spread([run["mean_sct_s"] / run["simulated_mean_sct_s"] for run in runs], "{:.3f}"),
            str(sum(not run["valid"] for run in runs)),
        )
    return shown


def _spread(values: Sequence[float], form: str) -> str:
    return f"{form.format(median(values))} ({form.format(min(values))} to {form.format(max(values))})"


def rates_emulation(
    scenario: Annotated[Path, typer.Argument(help="Scenario file.", exists=True, dir_okay=False)] = SCENARIO,
    config_file: Annotated[
        Path, typer.Option("--config", help="Whose modes are run.", exists=True, dir_okay=False)
    ] = RATES.config_file,
    repetitions: Annotated[int, typer.Option(min=1, help="How often all modes run.")] = 5,
    json_file: Annotated[Path, typer.Option("--json", help="Write every run's figures here.")] = Path(
        "results/rates-emulation.json"
    ),
) -> None:
    """Compare classes, ceilings on senders and both over repeated emulated runs."""
    config = RATES.read_config(config_file)
    ideal = simulate(load(scenario), POLICY, assumptions=Assumptions(coflows_known=False), allocator=Classes(queues=None))
    json_file.parent.mkdir(parents=True, exist_ok=True)
    console = wide_console(160)
    documents: list[dict[str, RunDocument]] = []
    for number in range(repetitions):
        documents.append({name: emulated(scenario, *entry) for name, entry in entries(config).items()})
        means = ", ".join(f"{name} {run['mean_sct_s']:.2f} s" for name, run in documents[-1].items())
        console.print(f"repetition {number + 1} of {repetitions}: {means}")
        json_file.write_text(json.dumps({"ideal_mean_sct_s": ideal.mean_sct_s, "repetitions": documents}, indent=1))
    console.print(table(documents, ideal.mean_sct_s))
    console.print(f"figures: {json_file}")
