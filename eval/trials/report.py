"""Tables of the trials: variants relative to the shipped one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table

from eval.committed import Committed, seed_range
from eval.grid import Runs
from eval.statistics import CONFIDENCE, Ratio
from eval.trials.runs import TrialGroup, TrialsConfig

MEASURES = {"mean_s": "mean SCT", "p95_s": "95th percentile of the SCTs"}


@dataclass(frozen=True)
class TrialsStudy:
    """The runs of a config, by cell and variant."""

    config: TrialsConfig
    runs: Runs

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "TrialsStudy":
        """Return the study that a file's content is of."""
        return cls(TrialsConfig.model_validate(document["config"]), document["runs"])

    def as_json(self) -> dict[str, Any]:
        """Return its config and figures as plain JSON."""
        return {"config": self.config.model_dump(mode="json"), "runs": self.runs}

    @property
    def seeds_in_words(self) -> str:
        """The seeds of its runs, in words."""
        return seed_range(self.config.first_seed, self.config.seeds)

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
            each = [(self._figures(cell, name, measure), self._figures(cell, group.reference, measure)) for cell in group.cells]
            means = np.exp(np.mean(np.log(np.array(each)), axis=0))
            table.add_row(name, *(str(Ratio.of(*pair)) for pair in each), str(Ratio.of(*means.tolist())))
        return table

    def _figures(self, cell: str, variant: str, measure: str) -> list[float]:
        return [run[measure] for run in self.runs[cell][variant]]


COMMITTED = Committed("trials", "policies.md", TrialsStudy.from_json)
