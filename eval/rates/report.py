"""Tables of the study of modes of keeping an order."""

from rich.table import Table

from eval.grid_study import GridStudy
from eval.rates.runs import IDEAL, RatesConfig

MEASURES = {
    "mean": ("mean_s", "mean stage completion time"),
    "p95": ("p95_s", "95th percentile of stage completion times"),
    "changes": ("changes", "plans that differ from the one before"),
}


class RatesStudy(GridStudy[RatesConfig]):
    """The runs of a config, by cell and mode."""

    def tables(self) -> dict[str, list[Table]]:
        """Return every table by the name of its section."""
        return {name: [self._relative_to_ideal(name)] for name in MEASURES} | {"hybrid": [self._hybrid()]}

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
        modes = {(entry.mode, entry.queues): entry.name for entry in self.config.modes}
        for queues in sorted(entry.queues or 0 for entry in self.config.modes if entry.mode == "hybrid"):
            if ("classes", queues) in modes:
                for key, title in (MEASURES["mean"], MEASURES["p95"]):
                    pair = modes["hybrid", queues], modes["classes", queues]
                    table.add_row(f"K = {queues}, {title}", *(str(self.ratio(cell, *pair, key)) for cell in self.runs))
        return table

    def _table(self, title: str) -> Table:
        table = Table(title=f"{title}: {self._means()}", title_justify="left")
        for column in ("", *self.runs):
            table.add_column(column, justify="right" if column else "left")
        return table
