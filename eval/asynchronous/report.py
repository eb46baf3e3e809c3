"""Tables of the study of searches without barriers."""

import numpy as np
from rich.table import Table

from eval.asynchronous.runs import AsynchronousConfig
from eval.grid_study import GridStudy
from eval.interval_plot import IntervalPlot, Panel, PanelBand

MEASURES = {
    "first": ("first_s", "seconds until the first trial has completed the top rung"),
    "best": ("best_s", "seconds until the best of all that complete it has"),
    "end": ("search_s", "seconds until the search ends"),
    "SCT": ("sct_s", "mean SCT of the synchronous searches beside them"),
}
PLOTTED = {
    "first": "first trial at the top",
    "best": "best trial at the top",
    "end": "end of the search",
    "SCT": "SCT of synchronous searches",
}


class AsynchronousStudy(GridStudy[AsynchronousConfig]):
    """The runs of a config, by cell and policy."""

    def tables(self) -> dict[str, list[Table]]:
        """Return every table by the name of its section, those of measures that no cell has left out."""
        found = {name: [table] for name in MEASURES if (table := self._relative_to_first(name)).row_count}
        return found | {"losses": [self._losses()]}

    def plots(self) -> dict[str, IntervalPlot]:
        """Return the policies relative to the first by cell: searches without barriers, and synchronous ones beside them."""
        first, *others = self.config.policies
        bands = []
        for several in (("first", "best", "end"), ("SCT",)):
            cells = [cell for cell, runs in self.runs.items() if MEASURES[several[0]][0] in runs[first][0]]
            panels = [
                Panel(
                    f"{PLOTTED[name]} / {first}",
                    {other: self.estimates(cells, other, first, MEASURES[name][0]) for other in others},
                )
                for name in several
            ]
            bands += [PanelBand(cells, panels)] if cells else []
        return {"cells": IntervalPlot(bands, (others[-1],))}

    def _relative_to_first(self, measure: str) -> Table:
        """Return a row per cell that has a measure: policies relative to the first, and the last one's median."""
        key, title = MEASURES[measure]
        first, *others = self.config.policies
        last = others[-1]
        title = f"{title}, relative to {first}: {self._means()}"
        table = Table(title=title, title_justify="left")
        for column in ("cell", *others, f"{last}, median", f"seeds in which {last} is later"):
            table.add_column(column, justify="left" if column == "cell" else "right")
        for cell, runs in self.runs.items():
            if key not in runs[first][0]:
                continue
            ratios = np.array(self.each(cell, last, key)) / np.array(self.each(cell, first, key))
            table.add_row(
                cell,
                *(str(self.ratio(cell, other, first, key)) for other in others),
                f"{float(np.median(ratios)):.2f}",
                f"{int((ratios > 1).sum())} of {len(ratios)}",
            )
        return table

    def _losses(self) -> Table:
        """Return the mean loss of the best trials under every policy: whether an early end is also a good one."""
        table = Table(title=f"mean loss of the searches' best trials; {self._seeds()} seeds", title_justify="left")
        for column in ("", *self.config.policies):
            table.add_column(column, justify="right" if column else "left")
        means = (np.mean([np.mean(self.each(cell, name, "loss")) for cell in self.runs]) for name in self.config.policies)
        table.add_row("all cells", *(f"{mean:.4f}" for mean in means))
        return table
