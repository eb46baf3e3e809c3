"""Tables and plots of the study of network policies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from eval.grid_study import GridStudy, Runs
from eval.network.cells import FAIR, Contender, NetworkConfig, spread_name
from eval.statistics import CONFIDENCE, Interval, Ratio

BOUND = "bound"  # The runs of this name are of lower bounds.
EQUIVALENT = 0.03  # a ratio whose whole interval is this close to 1 is called equal

Bounds = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Study(GridStudy[NetworkConfig]):
    """The runs of a config, of some contenders those of the first seeds alone. bounds: by cell, seeds in order."""

    main_measure = "mean_s"
    bounds: Mapping[str, Bounds]

    @classmethod
    def of_runs(cls, config: NetworkConfig, found: Runs) -> "Study":
        """Return the study that results make up; the runs of `BOUND` are the bounds."""
        runs = {name: {who: several for who, several in of.items() if who != BOUND} for name, of in found.items()}
        return cls(config, runs, {name: of[BOUND] for name, of in found.items()})

    @classmethod
    def from_json(cls, config: type[NetworkConfig], document: Mapping[str, Any]) -> "Study":
        """Return the study that a file's content is of."""
        return cls(config.model_validate(document["config"]), document["runs"], document["bounds"])

    def as_json(self) -> dict[str, Any]:
        """Return its config and figures as plain JSON."""
        return {**super().as_json(), "bounds": self.bounds}

    @property
    def _live(self) -> list[Contender]:
        return [contender for contender in self.config.contenders if contender.is_live and not contender.survivors]

    @property
    def _ideal(self) -> list[Contender]:
        return [contender for contender in self.config.contenders if not contender.is_live]

    @property
    def _told(self) -> list[Contender]:
        return [contender for contender in self.config.contenders if contender.survivors]

    def overall(self, cells: Sequence[str], name: str, base: str, measure: str = "mean_s") -> float:
        """Return the geometric mean of that ratio over cells."""
        return float(np.exp(np.mean([np.log(self.ratio(cell, name, base, measure).mean) for cell in cells])))

    def _overall(self, cells: Sequence[str], name: str, base: str, measure: str = "mean_s") -> str:
        """Return `overall` as text, empty of a contender that some of the cells were run without."""
        return f"{self.overall(cells, name, base, measure):.3f}" if all(name in self.runs[cell] for cell in cells) else ""

    def over_bound(self, cell: str, name: str) -> Interval | None:
        """Return a contender's mean SCTs over the lower bounds of a cell's works; None where there are none for all of them."""
        bounds = self.bounds.get(cell, ())
        if not bounds or not all(bounds):
            return None
        runs = self.runs[cell][name]
        return Interval.of([run["mean_s"] / bound["bound_s"] for run, bound in zip(runs, bounds, strict=False)])

    def known(self, cells: Sequence[str]) -> list[str]:
        """Return those of the cells that were run."""
        return [cell for cell in cells if cell in self.runs]

    def tables(self) -> dict[str, list[Table]]:
        """Return every table by the name of its section."""
        found: dict[str, list[Table]] = {}
        for name, group in self.config.groups.items():
            cells = self.known(list(group.cells))
            if cells:
                found[name] = [
                    self._to_reference(f"{group.title}, live", cells, self._live),
                    self._relative_to_fair(f"{group.title}, live: 95th percentile of the SCTs", cells, "p95_s"),
                    self._relative_to_fair(f"{group.title}, live: largest stretch", cells, "stretch"),
                ]
                others = self._ideal + self._told
                if self._run(others, cells):
                    title = f"{group.title}, by ideal allocators or told the survivors"
                    found[f"{name} ideal"] = [self._to_reference(title, cells, others)]
                found[f"{name} bound"] = [self._against_bound(group.title, cells)]
        if self._spread():
            found["spread"] = [self._to_reference("Searches by the spread of their budgets, live", self._spread(), self._live)]
        if self.runs:
            found["decisions"] = [self._decisions()]
        return found

    def _spread(self) -> list[str]:
        return self.known([spread_name(factor) for factor in self.config.spread.factors])

    def _to_reference(self, title: str, cells: Sequence[str], contenders: Sequence[Contender]) -> Table:
        reference = self.config.reference
        names = self._run(contenders, cells, besides=reference)
        table = _table(f"{title}: mean SCT relative to {reference}", self._counted(cells, names), names)
        for cell in cells:
            known = self.runs[cell]
            table.add_row(cell, *(_marked(self.ratio(cell, name, reference)) if name in known else "" for name in names))
        table.add_row("geometric mean", *(self._overall(cells, name, reference) for name in names))
        return table

    def _relative_to_fair(self, title: str, cells: Sequence[str], measure: str) -> Table:
        names = self._run(self._live, cells, besides=FAIR)
        table = _table(f"{title} relative to {FAIR}", self._counted(cells, names), names)
        for cell in cells:
            known = self.runs[cell]
            table.add_row(cell, *(str(self.ratio(cell, name, FAIR, measure)) if name in known else "" for name in names))
        table.add_row("geometric mean", *(self._overall(cells, name, FAIR, measure) for name in names))
        return table

    def _against_bound(self, title: str, cells: Sequence[str]) -> Table:
        """Return mean SCTs over the bound and the best schedule found, the best of all contenders that ran a seed."""
        reference = self.config.reference
        told = self._run(self._told, cells)
        over_bound = [f"{name} / bound" for name in (reference, *told, "best found")]
        columns = ["bound", *over_bound, f"{reference} / best found"]
        table = _table(f"{title}: mean SCT against bounds and best schedules found", self._counted(cells, [reference]), columns)
        for cell in cells:
            bounds = self.bounds.get(cell, ())
            means = {name: np.array([run["mean_s"] for run in runs]) for name, runs in self.runs[cell].items()}
            best = np.full(len(means[reference]), np.inf)
            for own in means.values():
                np.minimum(best[: len(own)], own, out=best[: len(own)])
            shown = [str(Interval.of((means[reference] / best).tolist()))]
            if not bounds or not all(bounds):
                table.add_row(cell, "none for weights", *[""] * (len(columns) - 2), *shown)
                continue
            least = np.array([bound["bound_s"] for bound in bounds])
            over = [str(self.over_bound(cell, name)) if name in means else "" for name in (reference, *told)]
            names = sorted({str(bound["bound"]) for bound in bounds})
            table.add_row(cell, ", ".join(names), *over, str(Interval.of((best / least).tolist())), *shown)
        return table

    def _decisions(self) -> Table:
        """Return how long decisions take: the 99th percentile of a run's, its median and greatest over all runs."""
        table = Table(title="Seconds that a decision takes, 99th percentile of a run", title_justify="left")
        for column in ("policy", "median over all runs", "greatest"):
            table.add_column(column, justify="left" if column == "policy" else "right")
        for contender in self.config.contenders:
            each = [run["decide_p99_s"] for runs in self.runs.values() for run in runs.get(contender.name, ())]
            if each:
                table.add_row(contender.name, f"{float(np.median(each)):.4f}", f"{max(each):.4f}")
        return table

    def _run(self, contenders: Sequence[Contender], cells: Sequence[str], besides: str | None = None) -> list[str]:
        """Return the names of those contenders that were run in any of the cells, without that of one to which they relate."""
        names = [contender.name for contender in contenders if contender.name != besides]
        return [name for name in names if any(name in self.runs[cell] for cell in cells)]

    def _counted(self, cells: Sequence[str], names: Sequence[str]) -> str:
        """Return how many seeds these contenders were run with, as text."""
        counts = {len(self.runs[cell][name]) for cell in cells for name in names if name in self.runs[cell]}
        return " to ".join(map(str, sorted({min(counts), max(counts)})))

    def draw(self, folder: Path) -> list[Path]:
        """Draw the pictures that there are cells for into PNG files of a folder; return their paths."""
        drawn: list[Path] = []
        if any(self.known(list(group.cells)) for group in self.config.groups.values()):
            drawn.append(folder / "network-cells.png")
            self.draw_cells(drawn[-1])
        if self._spread():
            drawn.append(folder / "network-spread.png")
            self.draw_spread(drawn[-1])
        return drawn

    def draw_spread(self, path: Path) -> None:
        """Draw mean SCTs relative to the reference by the spread of budgets, and write the picture to `path`."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes = figure.subplots()
        reference, cells = self.config.reference, self._spread()
        factors = [factor for factor in self.config.spread.factors if spread_name(factor) in cells]
        for name in self._run(self._live, cells, besides=reference):
            ratios = [self.ratio(cell, name, reference) for cell in cells]
            means = [ratio.mean for ratio in ratios]
            reach = [[ratio.mean - ratio.low for ratio in ratios], [ratio.high - ratio.mean for ratio in ratios]]
            axes.errorbar(factors, means, yerr=reach, marker="o", markersize=4, capsize=2, label=name)
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_xticks(factors, [f"{factor:g}" for factor in factors])
        axes.set_xlabel("budgets of searches within this factor of their median, either way")
        axes.set_ylabel(f"mean SCT / that of {reference}")
        axes.grid(axis="y", alpha=0.3)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        figure.savefig(path, dpi=120)

    def draw_cells(self, path: Path) -> None:
        """Draw mean SCTs and 95th percentiles of all live contenders relative to `FAIR`, a row per cell, to `path`."""
        from matplotlib.figure import Figure

        cells = [cell for group in self.config.groups.values() for cell in self.known(list(group.cells))]
        figure = Figure(figsize=(12, 1.4 + 0.34 * len(cells)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        self._draw(left, cells, "mean_s", f"mean SCT / {FAIR}")
        self._draw(right, cells, "p95_s", f"95th percentile of the SCTs / {FAIR}")
        left.set_yticks(range(len(cells)), cells)
        left.invert_yaxis()
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
        figure.savefig(path, dpi=120)

    def _draw(self, axes: Any, cells: Sequence[str], measure: str, label: str) -> None:
        shown = self._run(self._live, cells, besides=FAIR)
        for number, name in enumerate(shown):
            rows = [row for row, cell in enumerate(cells) if name in self.runs[cell]]
            ratios = [self.ratio(cells[row], name, FAIR, measure) for row in rows]
            means = [ratio.mean for ratio in ratios]
            axes.errorbar(
                means,
                np.array(rows) + 0.07 * (number - len(shown) / 2),
                xerr=[[r.mean - r.low for r in ratios], [r.high - r.mean for r in ratios]],
                fmt="o",
                markersize=6 if name == self.config.reference else 3.5,
                elinewidth=0.8,
                label=name,
            )
        axes.axvline(1.0, color="black", linewidth=0.8)
        axes.set_xlabel(label)
        axes.grid(axis="x", alpha=0.3)


def _table(title: str, seeds: str, columns: Sequence[str]) -> Table:
    table = Table(title=f"{title}; {seeds} seeds, {CONFIDENCE:.0%} intervals", title_justify="left")
    table.add_column("cell")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _marked(ratio: Ratio) -> str:
    """Return a ratio as text: bold where it is below 1 beyond chance, `=` where all of its interval is close to 1."""
    if max(ratio.high - 1, 1 - ratio.low) <= EQUIVALENT:
        return f"{ratio} ="
    return f"**{ratio}**" if ratio.high < 1 else str(ratio)
