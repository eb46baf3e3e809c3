"""Tables of the study of modes of keeping an order."""

from rich.table import Table

from eval.grid_study import GridStudy
from eval.interval_plot import IntervalEstimate, IntervalPlot, Panel, PanelBand
from eval.rates.runs import IDEAL, RatesConfig

MEASURES = {
    "mean": ("mean_s", "mean stage completion time"),
    "p95": ("p95_s", "95th percentile of stage completion times"),
    "changes": ("changes", "plans that differ from the one before"),
}
PLOTTED = {
    "mean": ("mean_s", "mean SCT"),
    "p95": ("p95_s", "95th percentile of SCTs"),
    "changes": ("changes", "plans that change"),
}


class RatesStudy(GridStudy[RatesConfig]):
    """The runs of a config, by cell and mode."""

    def tables(self) -> dict[str, list[Table]]:
        """Return every table by the name of its section."""
        return {name: [self._relative_to_ideal(name)] for name in MEASURES} | {"hybrid": [self._hybrid()]}

    def plots(self) -> dict[str, IntervalPlot]:
        """Return the modes relative to the ideal order, and `hybrid` to `classes`, a series per cell."""
        to_ideal = [
            Panel(
                f"{title} / ideal order",
                {
                    cell: {name: IntervalEstimate.of(self.ratio(cell, name, IDEAL, key)) for name in self.config.names}
                    for cell in self.runs
                },
            )
            for key, title in PLOTTED.values()
        ]
        pairs = {f"K = {queues}": modes for queues, modes in self._hybrids().items()}
        to_classes = [
            Panel(
                f"{title}, hybrid / classes",
                {
                    cell: {row: IntervalEstimate.of(self.ratio(cell, *modes, key)) for row, modes in pairs.items()}
                    for cell in self.runs
                },
            )
            for key, title in (PLOTTED["mean"], PLOTTED["p95"])
        ]
        return {
            "modes": IntervalPlot((PanelBand(self.config.names, to_ideal),)),
            "hybrid": IntervalPlot((PanelBand([*pairs], to_classes),)),
        }

    def _hybrids(self) -> dict[int, tuple[str, str]]:
        """Return the names of `hybrid` and `classes` by the queues that both have."""
        modes = {(entry.mode, entry.queues): entry.name for entry in self.config.modes}
        several = sorted(entry.queues or 0 for entry in self.config.modes if entry.mode == "hybrid")
        return {
            queues: (modes["hybrid", queues], modes["classes", queues]) for queues in several if ("classes", queues) in modes
        }

    def _relative_to_ideal(self, measure: str) -> Table:
        """Return a row per mode and a column per cell."""
        key, title = MEASURES[measure]
        table = self._table(f"{title}, relative to the ideal order")
        for name in self.config.names:
            table.add_row(name, *(str(self.ratio(cell, name, IDEAL, key)) for cell in self.runs))
        return table

    def _hybrid(self) -> Table:
        """Return `hybrid` relative to `classes` on as many queues: a row per number of queues and measure."""
        table = self._table("hybrid relative to classes")
        for queues, modes in self._hybrids().items():
            for key, title in (MEASURES["mean"], MEASURES["p95"]):
                table.add_row(f"K = {queues}, {title}", *(str(self.ratio(cell, *modes, key)) for cell in self.runs))
        return table

    def _table(self, title: str) -> Table:
        table = Table(title=f"{title}: {self._means()}", title_justify="left")
        for column in ("", *self.runs):
            table.add_column(column, justify="right" if column else "left")
        return table
