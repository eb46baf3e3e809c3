"""Mean stage completion time under a policy against the baseline, over repeated emulated runs of one scenario.

Each repetition runs all policies one after another, so that a ratio compares runs of the same minutes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.table import Table

from beamer.progress import work
from eval.console import wide_console
from eval.emulated_runs import RunDocument, emulated_figures


@dataclass(frozen=True)
class SctComparison:
    """One repetition's run of a policy beside the baseline's.

    reduction: of the mean SCT. growth: of the makespan of the study that fares worst.
    """

    reduction: float
    growth: float

    @classmethod
    def of(cls, base: RunDocument, run: RunDocument) -> "SctComparison":
        """Compare two runs of one document."""
        growths = [run["makespans_s"][study] / base["makespans_s"][study] - 1 for study in base["makespans_s"]]
        return cls(1 - run["mean_sct_s"] / base["mean_sct_s"], max(growths))


def summary(repetitions: Sequence[Sequence[RunDocument]]) -> Table:
    """Return the table of all repetitions; the first run of each is its baseline."""
    table = Table(title=f"{len(repetitions)} repetitions: median (least to greatest)", title_justify="left")
    for heading in (
        "policy",
        "mean SCT (s)",
        "reduction",
        "worst makespan growth",
        "emulated / simulated",
        "class share",
        "invalid",
    ):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for position, first in enumerate(repetitions[0]):
        runs = [repetition[position] for repetition in repetitions]
        against = [SctComparison.of(repetition[0], repetition[position]) for repetition in repetitions]
        table.add_row(
            first["policy"],
            _spread([r["mean_sct_s"] for r in runs], "{:.2f}"),
            _spread([c.reduction for c in against], "{:.1%}") if position else "",
            _spread([c.growth for c in against], "{:+.1%}") if position else "",
            _spread([r["mean_sct_s"] / r["simulated_mean_sct_s"] for r in runs], "{:.3f}"),
            _spread([r["class_share_min"] for r in runs], "{:.2%}"),
            str(sum(not r["valid"] for r in runs)),
        )
    return table


def _spread(values: Sequence[float], form: str) -> str:
    return f"{form.format(median(values))} ({form.format(min(values))} to {form.format(max(values))})"


def sct(
    scenario: Annotated[Path | None, typer.Argument(help="Scenario file; the shipped one by default.")] = None,
    repetitions: Annotated[int, typer.Option(min=1, help="How often all policies run.")] = 5,
    policies: Annotated[str, typer.Option(help="Comma-separated, the first is the baseline.")] = "fair,beamer",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every repetition's figures here.")] = None,
) -> None:
    """Compare mean stage completion times over repeated emulated runs."""
    console = wide_console(120)
    documents: list[list[RunDocument]] = []
    for number in range(repetitions):
        with work(f"repetition {number + 1} of {repetitions}"):
            documents.append(emulated_figures(scenario, "--policies", policies))
        means = ", ".join(f"{run['policy']} {run['mean_sct_s']:.2f} s" for run in documents[-1])
        console.print(f"repetition {number + 1} of {repetitions}: {means}")
        if json_file is not None:
            json_file.write_text(json.dumps({"repetitions": documents}, indent=2))
    console.print(summary(documents))
