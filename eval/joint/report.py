"""Tables and plots of the study of both levels."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from rich.table import Table

from eval.grid_study import GridStudy
from eval.interval_plot import IntervalEstimate, IntervalPlot, Panel, PanelBand, single
from eval.joint.runs import JointConfig, JointVariants, in_variant
from eval.pairs import pair
from eval.statistics import Ratio

SINGLE = ("network level alone", "GPU level alone")
BOTH, WITH_RESIZING = "both levels", "both, with resizing"
ACROSS = 4  # panels of the plot of pairs


class JointStudy(GridStudy[JointConfig]):
    """The runs of a config, by cell and pair of policies."""

    main_measure = "search_s"

    def tables(self) -> dict[str, list[Table]]:
        """Return every table by the name of its section."""
        return {
            "levels": [self._levels()],
            "pairs": [self._pairs(cell) for cell in self.runs if cell in self.config.cells],
            "parts": [self._parts(cell, self.config.parts) for cell in self.config.parts.cells if cell in self.runs],
            "resizing": [self._parts(cell, self.config.resizing) for cell in self.config.resizing.cells if cell in self.runs],
            "robustness": [self._robustness(cell) for cell in self.config.robustness.cells if cell in self.runs],
        }

    def plots(self) -> dict[str, IntervalPlot]:
        """Return every plot that the document shows, by a name."""
        return {
            "levels": self._plot_of_levels(),
            "pairs": self._plot_of_pairs(),
            "parts": self._plot_of_parts(),
            "robustness": self._plot_of_robustness(),
        }

    def _plot_of_levels(self) -> IntervalPlot:
        """Return a row per cell: the best pair by level, relative to neither level, to the better level and to the bound."""
        best = {cell: self._best_pairs(cell) for cell in self.runs if cell in self.config.cells}
        levels = list(dict.fromkeys(level for found in best.values() for level in found))

        def to(base: Mapping[str, str], *shown: str) -> dict[str, dict[str, IntervalEstimate]]:
            return {
                level: {
                    cell: IntervalEstimate.of(self.ratio(cell, of[level], base[cell]))
                    for cell, of in best.items()
                    if level in of
                }
                for level in shown
            }

        single_level = {cell: self._better_single(cell, of) for cell, of in best.items()}
        bound = {cell: IntervalEstimate.of(self._to_bound(cell, of[BOTH])) for cell, of in best.items()}
        return single(
            list(best),
            Panel(f"search time / {self._neither}", to(dict.fromkeys(best, self._neither), *levels)),
            Panel("search time / better single level", to(single_level, *(level for level in levels if level not in SINGLE))),
            Panel("search time / lower bound", {BOTH: bound}),
            strong=(BOTH,),
        )

    def _best_pairs(self, cell: str) -> dict[str, str]:
        """Return the best pair that differs from the baseline in one level alone, of all, and of those with `resizing`."""
        gpu, network = self.config.gpu_policies[0], self.config.network_policies[0]
        found = {
            SINGLE[0]: self._best(cell, [pair(gpu, name) for name in self.config.network_policies]),
            SINGLE[1]: self._best(cell, [pair(name, network) for name in self.config.gpu_policies]),
            BOTH: self._best(cell, self.config.pairs),
        }
        if cell not in self.config.resizing.cells:
            return found
        several = [in_variant(who, called) for who in self.config.resizing.pairs for called in self.config.resizing.variants]
        return found | {WITH_RESIZING: self._best(cell, several)}

    def _better_single(self, cell: str, best: Mapping[str, str]) -> str:
        return self._best(cell, [best[level] for level in SINGLE])

    def _plot_of_pairs(self) -> IntervalPlot:
        """Return a panel per cell: a row per GPU policy, a series per network policy."""
        cells = [cell for cell in self.runs if cell in self.config.cells]
        panels = [
            Panel(
                f"search time / {self._neither}",
                {
                    network: {
                        gpu: IntervalEstimate.of(self.ratio(cell, pair(gpu, network), self._neither))
                        for gpu in self.config.gpu_policies
                    }
                    for network in self.config.network_policies
                },
                cell,
            )
            for cell in cells
        ]
        rows = self.config.gpu_policies
        bands = [PanelBand(rows, panels[first : first + ACROSS]) for first in range(0, len(panels), ACROSS)]
        return IntervalPlot(bands, (self.config.network_policies[-1],))

    def _plot_of_parts(self) -> IntervalPlot:
        """Return the search time and the bytes with each part, relative to the same policies without, a series per pair."""
        bands = []
        for what, variants in (("the part", self.config.parts), ("resizing", self.config.resizing)):
            rows = {
                f"{cell}, {called}": (cell, called)
                for cell in variants.cells
                if cell in self.runs
                for called in variants.variants
            }
            panels = [
                Panel(
                    f"{title} with {what} / without",
                    {
                        who: {
                            row: IntervalEstimate.of(self.ratio(cell, in_variant(who, called), who, measure))
                            for row, (cell, called) in rows.items()
                        }
                        for who in variants.pairs
                    },
                )
                for measure, title in (("search_s", "search time"), ("network_gb", "bytes on links"))
            ]
            bands.append(PanelBand([*rows], panels))
        return IntervalPlot(bands)

    def _plot_of_robustness(self) -> IntervalPlot:
        """Return a row per disturbance and a band per cell, relative to the first pair, and that one to itself undisturbed."""
        first, *others = self.config.robustness.pairs
        called = {"none": lambda who: who} | {
            name: lambda who, name=name: in_variant(who, name) for name in self.config.robustness.variants
        }
        bands = []
        for cell in (cell for cell in self.config.robustness.cells if cell in self.runs):
            to_first = {
                who: {name: IntervalEstimate.of(self.ratio(cell, of(who), of(first))) for name, of in called.items()}
                for who in others
            }
            to_itself = {first: {name: IntervalEstimate.of(self.ratio(cell, of(first), first)) for name, of in called.items()}}
            panels = (
                Panel(f"search time / {first}, both disturbed", to_first, cell),
                Panel("search time, disturbed / undisturbed", to_itself, cell),
            )
            bands.append(PanelBand([*called], panels))
        return IntervalPlot(bands)

    @property
    def _neither(self) -> str:
        return pair(self.config.gpu_policies[0], self.config.network_policies[0])

    def _to_bound(self, cell: str, who: str) -> Ratio:
        return Ratio.of(self.each(cell, who, "search_s"), self.each(cell, who, "bound_s"))

    def _best(self, cell: str, whos: Sequence[str]) -> str:
        """Return the pair whose searches take least in the mean over the seeds."""
        return min(whos, key=lambda who: fmean(self.each(cell, who, "search_s")))

    def _levels(self) -> Table:
        """Return a row per cell: the best pair that differs from the baseline in one level alone, and the best of all."""
        title = f"mean search time relative to {self._neither}: {self._means()}"
        table = Table(title=title, title_justify="left")
        columns = ("network only", "", "GPUs only", "", "both", "", "both / the better single one", "both / bound")
        for column in ("cell", *columns, "both, with `resizing`", "", "that / the better single one"):
            table.add_column(column)
        for cell in (cell for cell in self.runs if cell in self.config.cells):
            best = self._best_pairs(cell)
            better = self._better_single(cell, best)
            shown = [best[level] for level in (*SINGLE, BOTH)]
            cells = [part for who in shown for part in (who, str(self.ratio(cell, who, self._neither)))]
            ratios = str(self.ratio(cell, best[BOTH], better)), str(self._to_bound(cell, best[BOTH]))
            table.add_row(cell, *cells, *ratios, *self._with_resizing(cell, best.get(WITH_RESIZING), better))
        return table

    def _with_resizing(self, cell: str, best: str | None, single: str) -> tuple[str, ...]:
        """Return the best pair of those that run with `resizing`, and its ratios; nothing of a cell without."""
        if best is None:
            return "", "", ""
        return best.rpartition(", ")[0], str(self.ratio(cell, best, self._neither)), str(self.ratio(cell, best, single))

    def _parts(self, cell: str, variants: JointVariants) -> Table:
        """Return a row per part, a column per pair of policies and another for the bytes on links."""
        title = f"{cell}: search time, and bytes on all links, relative to the same policies without, {self._means()}"
        table = Table(title=title, title_justify="left")
        table.add_column("told to each other")
        for who in variants.pairs:
            table.add_column(who)
            table.add_column("bytes")
        for called in variants.variants:
            cells = [
                str(self.ratio(cell, in_variant(who, called), who, measure))
                for who in variants.pairs
                for measure in ("search_s", "network_gb")
            ]
            table.add_row(called, *cells)
        return table

    def _robustness(self, cell: str) -> Table:
        """Return a row per disturbance, a column per pair of policies, the first of which the others are compared with."""
        first, *others = self.config.robustness.pairs
        title = f"{cell}: search time relative to {first} under the same disturbance, {self._means()}"
        table = Table(title=title, title_justify="left")
        for column in ("disturbance", *others, f"{first} / undisturbed"):
            table.add_column(column)
        table.add_row("none", *(str(self.ratio(cell, who, first)) for who in others), "")
        for called in self.config.robustness.variants:
            disturbed = in_variant(first, called)
            cells = [str(self.ratio(cell, in_variant(who, called), disturbed)) for who in others]
            table.add_row(called, *cells, str(self.ratio(cell, disturbed, first)))
        return table

    def _pairs(self, cell: str) -> Table:
        """Return a row per GPU policy of a cell, a column per network policy.

        Mean SCTs are as search times, as every pair has the same stages.
        """
        title = f"{cell}: search time relative to {self._neither}, {self._means()}; GPU-seconds idle under the last column"
        table = Table(title=title, title_justify="left")
        for column in ("GPU policy", *self.config.network_policies, "idle"):
            table.add_column(column)
        for gpu in self.config.gpu_policies:
            whos = [pair(gpu, network) for network in self.config.network_policies]
            idle = fmean(self.each(cell, whos[-1], "idle"))
            table.add_row(gpu, *(str(self.ratio(cell, who, self._neither)) for who in whos), f"{idle:.0%}")
        return table
