"""Tables of the study of modes of keeping an order."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from eval.committed import Committed, seed_range
from eval.grid import Runs
from eval.rates.runs import IDEAL, RatesConfig
from eval.statistics import CONFIDENCE, Ratio

MEASURES = {
    "mean": ("mean_s", "mean stage completion time"),
    "p95": ("p95_s", "95th percentile of stage completion times"),
    "changes": ("changes", "plans that differ from the one before"),
}


@dataclass(frozen=True)
class RatesStudy:
    """The runs of a config, by cell and mode."""

    config: RatesConfig
    runs: Runs

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "RatesStudy":
        """Return the study that a file's content is of."""
        return cls(RatesConfig.model_validate(document["config"]), document["runs"])

    def as_json(self) -> dict[str, Any]:
        """Return its config and figures as plain JSON."""
        return {"config": self.config.model_dump(mode="json"), "runs": self.runs}

    def ratio(self, cell: str, name: str, base: str, measure: str) -> Ratio:
        """Return a mode's measure relative to that of `base`, paired by seed."""
        return Ratio.of(*([run[measure] for run in self.runs[cell][who]] for who in (name, base)))

    @property
    def seeds_in_words(self) -> str:
        """The seeds of its runs, in words."""
        return seed_range(self.config.first_seed, self.config.seeds)

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
        seeds = min(len(runs) for cell in self.runs.values() for runs in cell.values())
        table = Table(title=f"{title}: geometric means over {seeds} seeds, {CONFIDENCE:.0%} intervals", title_justify="left")
        for column in ("", *self.runs):
            table.add_column(column, justify="right" if column else "left")
        return table


COMMITTED = Committed("rates", "rates.md", RatesStudy.from_json)
