"""Tables and plot of the study of noise."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, geometric_mean

from rich.table import Table

from eval.gpu.loss_noise import LEVEL_DEVIATION, LEVELS
from eval.grid_study import GridStudy
from eval.interval_plot import IntervalEstimate, IntervalEstimates, IntervalPlot, Panel, PanelBand
from eval.loss_noise.runs import CORRELATION, DEVIATION, LAGS, LossNoiseConfig, bands
from eval.statistics import Interval

FRESH, FINITE = "fresh samples", "finite data"
THEORY = "drawn without replacement"
BY_LEVEL = {f"{low:.1f} to {low + 0.1:.1f}": f"{LEVEL_DEVIATION} {low}" for low in reversed(LEVELS)}
BY_LAG = {str(lag): f"{CORRELATION} {lag}" for lag in LAGS}


class LossNoiseStudy(GridStudy[LossNoiseConfig]):
    """The runs of a config, by model with its data and by learning rate."""

    def tables(self) -> dict[str, list[Table]]:
        """Return the deviations by iteration and by level, how far learning rates are apart in both, and the correlations."""
        by_iteration = self._by_iteration()
        apart = {"the same iterations": by_iteration, "the same level": BY_LEVEL}
        return {
            "iterations": [
                self._table(
                    "standard deviation of losses at the middle learning rate, % of the trend",
                    "iterations",
                    {
                        row: [self._percent(cell, key, self._middle(cell)) for cell in self.runs]
                        for row, key in by_iteration.items()
                    },
                )
            ],
            "levels": [
                self._table(
                    "standard deviation of losses, % of the trend",
                    "trend / first loss",
                    {row: [self._percent(cell, key) for cell in self.runs] for row, key in BY_LEVEL.items()},
                ),
                self._table(
                    "largest standard deviation of a learning rate / smallest",
                    "at",
                    {row: [f"{self._apart(cell, keys.values()):.2f}" for cell in self.runs] for row, keys in apart.items()},
                ),
            ],
            "correlations": [
                self._table(
                    "correlation of losses",
                    "lag",
                    {row: [f"{self._figure(cell, key):+.3f}" for cell in self.runs] for row, key in BY_LAG.items()},
                )
            ],
        }

    def plots(self) -> dict[str, IntervalPlot]:
        """Return deviations by level and correlations by lag, a panel each for fresh samples and for finite data."""
        both = {FRESH: [cell for cell in self.runs if not self.config.cell(cell).epoch]}
        both[FINITE] = [cell for cell in self.runs if cell not in both[FRESH]]
        theory = self._theory(both[FINITE][0])
        return {
            "measured": IntervalPlot(
                [
                    PanelBand(
                        [*BY_LEVEL],
                        [
                            Panel("deviation / trend, by trend / first loss", self._series(cells, kind, BY_LEVEL), kind, None)
                            for kind, cells in both.items()
                        ],
                    ),
                    PanelBand(
                        [*BY_LAG],
                        [
                            Panel(
                                "correlation, by lag",
                                self._series(cells, kind, BY_LAG) | ({THEORY: theory} if kind == FINITE else {}),
                                kind,
                                0.0,
                            )
                            for kind, cells in both.items()
                        ],
                    ),
                ]
            )
        }

    def _by_iteration(self) -> dict[str, str]:
        """Return the keys of deviations by iteration, of the longest cell."""
        ends = bands(max(self.config.cell(cell).iterations for cell in self.runs))
        return {f"{first + 1} to {last}": f"{DEVIATION} {last}" for first, last in pairwise(ends)}

    def _middle(self, cell: str) -> list[str]:
        """Return the middle learning rate's name, alone in a list."""
        rates = [*self.runs[cell]]
        return [rates[len(rates) // 2]]

    def _values(self, cell: str, key: str, rates: Iterable[str] | None = None) -> list[float]:
        """Return a figure of all runs that have it."""
        return [run[key] for rate in rates or self.runs[cell] for run in self.runs[cell][rate] if key in run]

    def _figure(self, cell: str, key: str) -> float:
        return fmean(self._values(cell, key))

    def _percent(self, cell: str, key: str, rates: Iterable[str] | None = None) -> str:
        values = self._values(cell, key, rates)
        return f"{100 * fmean(values):.1f}" if values else ""

    def _apart(self, cell: str, keys: Iterable[str]) -> float:
        """Return how far learning rates are apart: a geometric mean over the figures that all of them have."""
        rates = self.runs[cell]
        found = []
        for key in keys:
            means = [fmean(values) for rate in rates if (values := self._values(cell, key, [rate]))]
            if len(means) == len(rates):
                found.append(max(means) / min(means))
        return geometric_mean(found)

    def _series(self, cells: Sequence[str], kind: str, keys: Mapping[str, str]) -> dict[str, IntervalEstimates]:
        """Return the mean over learning rates with its interval over seeds, by model and row."""
        return {
            cell.removesuffix(f", {kind}"): {
                row: IntervalEstimate.of(Interval.of(means))
                for row, key in keys.items()
                if len(means := self._by_seed(cell, key)) > 1
            }
            for cell in cells
        }

    def _by_seed(self, cell: str, key: str) -> list[float]:
        """Return the means over the learning rates that have a figure, of the seeds in which one has."""
        seeds = zip(*self.runs[cell].values(), strict=True)
        return [fmean(values) for runs in seeds if (values := [run[key] for run in runs if key in run])]

    def _theory(self, cell: str) -> IntervalEstimates:
        """Return the correlations of the batches of an epoch whose deviations add up to nothing."""
        epoch = self.config.cell(cell).epoch
        values = {str(lag): -max(1 - lag / epoch, 0.0) / (epoch - 1) for lag in LAGS}
        return {row: IntervalEstimate(value, value, value) for row, value in values.items()}

    def _table(self, title: str, first: str, rows: Mapping[str, Sequence[str]]) -> Table:
        table = Table(title=f"{title}, means over {self._seeds()} problems", title_justify="left")
        for column in (first, *self.runs):
            table.add_column(column, justify="left" if column == first else "right")
        for row, entries in rows.items():
            table.add_row(row, *entries)
        return table
