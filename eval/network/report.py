"""Tables and plots of the study of network policies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table

from eval.grid_study import GridStudy, Runs
from eval.interval_plot import IntervalEstimate, IntervalPlot, Panel, PanelBand, single
from eval.network.cells import FAIR, Contender, NetworkConfig, spread_name
from eval.statistics import CONFIDENCE, Interval, Ratio

BOUND = "bound"  # The runs of this name are of lower bounds.
EQUIVALENT = 0.03  # a ratio whose whole interval is this close to 1 is called equal
BEST = "best found"
PLOTTED = {"mean_s": "mean SCT", "p95_s": "95th percentile of SCTs", "stretch": "largest stretch"}

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
        return self._over_bound(cell, self.each(cell, name, "mean_s"))

    def _over_bound(self, cell: str, means_s: Sequence[float]) -> Interval | None:
        bounds = self.bounds.get(cell, ())
        if not bounds or not all(bounds):
            return None
        return Interval.of([mean_s / bound["bound_s"] for mean_s, bound in zip(means_s, bounds, strict=False)])

    def _best_found(self, cell: str) -> "np.ndarray[Any, np.dtype[np.float64]]":
        """Return the least mean of all contenders that ran a seed, seeds in order."""
        best = np.full(len(self.runs[cell][self.config.reference]), np.inf)
        for runs in self.runs[cell].values():
            own = np.array([run["mean_s"] for run in runs])
            np.minimum(best[: len(own)], own, out=best[: len(own)])
        return best

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

    def plots(self) -> dict[str, IntervalPlot]:
        """Return every plot that there are cells for, by a name."""
        known = {name: self.known(list(group.cells)) for name, group in self.config.groups.items()}
        groups = {name: cells for name, cells in known.items() if cells}
        found: dict[str, IntervalPlot] = {name: self._plot_of_group(cells) for name, cells in groups.items()}
        if groups:
            found["ideal"] = self._plot_of_ideal([*groups.values()])
            found["bound"] = self._plot_of_bounds([*groups.values()])
        if cells := self._spread():
            axis = f"mean SCT / {self.config.reference}"
            names = self._run(self._live, cells, besides=self.config.reference)
            found["spread"] = single(
                cells, Panel(axis, {name: self.estimates(cells, name, self.config.reference) for name in names})
            )
        if self.runs:
            found["decisions"] = self._plot_of_decisions()
        return found

    def _plot_of_group(self, cells: Sequence[str]) -> IntervalPlot:
        """Return all live contenders relative to `FAIR` by cell."""
        names = self._run(self._live, cells, besides=FAIR)
        panels = [
            Panel(f"{title} / {FAIR}", {name: self.estimates(cells, name, FAIR, measure) for name in names})
            for measure, title in PLOTTED.items()
        ]
        return single(cells, *panels, strong=(self.config.reference,))

    def _plot_of_ideal(self, groups: Sequence[Sequence[str]]) -> IntervalPlot:
        """Return the contenders that no network can carry out relative to the reference, a band per group of cells."""
        reference = self.config.reference
        kinds = {"ideal allocators": self._ideal, "told the survivors": self._told}
        bands = [
            PanelBand(
                cells,
                [
                    Panel(
                        f"mean SCT, {kind} / {reference}",
                        {name: self.estimates(cells, name, reference) for name in self._run(several, cells)},
                    )
                    for kind, several in kinds.items()
                ],
            )
            for cells in groups
        ]
        return IntervalPlot(bands)

    def _plot_of_bounds(self, groups: Sequence[Sequence[str]]) -> IntervalPlot:
        """Return mean SCTs over the bound and over the best schedule found, a band per group of cells."""
        bands = []
        for cells in groups:
            over: dict[str, dict[str, IntervalEstimate]] = {}
            for name in (self.config.reference, *self._run(self._told, cells)):
                there = [cell for cell in cells if name in self.runs[cell]]
                over[name] = {cell: IntervalEstimate.of(one) for cell in there if (one := self.over_bound(cell, name))}
            best = {cell: self._best_found(cell) for cell in cells}
            over[BEST] = {
                cell: IntervalEstimate.of(one) for cell in cells if (one := self._over_bound(cell, best[cell].tolist()))
            }
            ours = {cell: np.array(self.each(cell, self.config.reference, "mean_s")) / best[cell] for cell in cells}
            to_best = {cell: IntervalEstimate.of(Interval.of(ratios.tolist())) for cell, ratios in ours.items()}
            panels = (Panel("mean SCT / lower bound", over), Panel(f"mean SCT / {BEST}", {self.config.reference: to_best}))
            bands.append(PanelBand(cells, panels))
        return IntervalPlot(bands, (self.config.reference,))

    def _plot_of_decisions(self) -> IntervalPlot:
        """Return how long decisions take by contender, from the median over runs to the greatest."""
        found = {}
        for contender in self.config.contenders:
            each = [run["decide_p99_s"] for runs in self.runs.values() for run in runs.get(contender.name, ())]
            middle = 1000 * float(np.median(each)) if each else 0.0
            if middle > 0:
                found[contender.name] = IntervalEstimate(middle, middle, 1000 * max(each))
        axis = "ms, 99th percentile of a run: median of all runs, to the greatest"
        return single(list(found), Panel(axis, {"": found}, line=None), strong=(self.config.reference,))

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
        over_bound = [f"{name} / bound" for name in (reference, *told, BEST)]
        columns = ["bound", *over_bound, f"{reference} / {BEST}"]
        table = _table(f"{title}: mean SCT against bounds and best schedules found", self._counted(cells, [reference]), columns)
        for cell in cells:
            best = self._best_found(cell)
            ours = np.array(self.each(cell, reference, "mean_s"))
            shown = [str(Interval.of((ours / best).tolist()))]
            best_over_bound = self._over_bound(cell, best.tolist())
            if best_over_bound is None:
                table.add_row(cell, "none for weights", *[""] * (len(columns) - 2), *shown)
                continue
            over = [str(self.over_bound(cell, name)) if name in self.runs[cell] else "" for name in (reference, *told)]
            names = sorted({str(bound["bound"]) for bound in self.bounds[cell]})
            table.add_row(cell, ", ".join(names), *over, str(best_over_bound), *shown)
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
