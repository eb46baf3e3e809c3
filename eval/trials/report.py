"""Tables of the trials: variants relative to the shipped one."""

import numpy as np
from rich.table import Table

from eval.grid_study import GridStudy
from eval.interval_plot import IntervalEstimate, IntervalPlot, Panel, single
from eval.statistics import CONFIDENCE, Ratio
from eval.trials.runs import TrialGroup, TrialsConfig

ALL = "all of these"
MEASURES = {"mean_s": "mean SCT", "p95_s": "95th percentile of the SCTs"}


class TrialsStudy(GridStudy[TrialsConfig]):
    """The runs of a config, by cell and variant."""

    def tables(self) -> dict[str, list[Table]]:
        """Return every table by the name of its section."""
        return {name: [self._table(group, measure) for measure in MEASURES] for name, group in self.config.groups.items()}

    def plots(self) -> dict[str, IntervalPlot]:
        """Return the variants of each group relative to the shipped one, a series per cell."""
        return {name: self._plot(group) for name, group in self.config.groups.items()}

    def _plot(self, group: TrialGroup) -> IntervalPlot:
        panels = []
        for measure, title in MEASURES.items():
            ratios = {name: self._ratios(group, name, measure) for name in group.variants}
            series = {
                cell: {name: IntervalEstimate.of(found[place]) for name, found in ratios.items()}
                for place, cell in enumerate((*group.cells, ALL))
            }
            panels.append(Panel(f"{title} / {group.reference}", series))
        return single(list(group.variants), *panels, strong=(ALL,))

    def _ratios(self, group: TrialGroup, name: str, measure: str) -> list[Ratio]:
        """Return a variant's ratio to the reference in each cell; the last one is of the means over cells, seed by seed."""
        each = [(self.each(cell, name, measure), self.each(cell, group.reference, measure)) for cell in group.cells]
        means = np.exp(np.mean(np.log(np.array(each)), axis=0))
        return [*(Ratio.of(*pair) for pair in each), Ratio.of(*means.tolist())]

    def _table(self, group: TrialGroup, measure: str) -> Table:
        """Return a row per variant and a column per cell, the last one of all cells."""
        seeds = min(len(runs) for cell in group.cells for runs in self.runs[cell].values())
        title = f"{group.title}: {MEASURES[measure]} relative to {group.reference}; {seeds} seeds, {CONFIDENCE:.0%} intervals"
        table = Table(title=title, title_justify="left")
        for column in ("variant", *group.cells, ALL):
            table.add_column(column, justify="left" if column == "variant" else "right")
        for name in group.variants:
            table.add_row(name, *map(str, self._ratios(group, name, measure)))
        return table
