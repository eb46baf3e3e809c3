"""Tables of the trials: variants relative to the shipped one."""

import numpy as np
from rich.table import Table

from eval.grid_study import GridStudy
from eval.statistics import CONFIDENCE, Ratio
from eval.trials.runs import TrialGroup, TrialsConfig

MEASURES = {"mean_s": "mean SCT", "p95_s": "95th percentile of the SCTs"}


class TrialsStudy(GridStudy[TrialsConfig]):
    """The runs of a config, by cell and variant."""

    def tables(self) -> dict[str, list[Table]]:
        """Return every table by the name of its section."""
        return {name: [self._table(group, measure) for measure in MEASURES] for name, group in self.config.groups.items()}

    def _table(self, group: TrialGroup, measure: str) -> Table:
        """Return a row per variant and a column per cell; the last one is of the means over cells, seed by seed."""
        seeds = min(len(runs) for cell in group.cells for runs in self.runs[cell].values())
        title = f"{group.title}: {MEASURES[measure]} relative to {group.reference}; {seeds} seeds, {CONFIDENCE:.0%} intervals"
        table = Table(title=title, title_justify="left")
        for column in ("variant", *group.cells, "all of these"):
            table.add_column(column, justify="left" if column == "variant" else "right")
        for name in group.variants:
            each = [(self.each(cell, name, measure), self.each(cell, group.reference, measure)) for cell in group.cells]
            means = np.exp(np.mean(np.log(np.array(each)), axis=0))
            table.add_row(name, *(str(Ratio.of(*pair)) for pair in each), str(Ratio.of(*means.tolist())))
        return table
