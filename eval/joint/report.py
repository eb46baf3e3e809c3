"""Tables of the study of both levels."""

from collections.abc import Sequence
from statistics import fmean

from rich.table import Table

from eval.grid_study import GridStudy
from eval.joint.runs import JointConfig, JointVariants, in_variant
from eval.pairs import pair
from eval.statistics import Ratio


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
        gpu, network = self.config.gpu_policies[0], self.config.network_policies[0]
        title = f"mean search time relative to {self._neither}: {self._means()}"
        table = Table(title=title, title_justify="left")
        columns = ("network only", "", "GPUs only", "", "both", "", "both / the better single one", "both / bound")
        for column in ("cell", *columns, "both, with `resizing`", "", "that / the better single one"):
            table.add_column(column)
        for cell in (cell for cell in self.runs if cell in self.config.cells):
            of_network = self._best(cell, [pair(gpu, name) for name in self.config.network_policies])
            of_gpus = self._best(cell, [pair(name, network) for name in self.config.gpu_policies])
            both = self._best(cell, self.config.pairs)
            single = self._best(cell, [of_network, of_gpus])
            cells = [part for who in (of_network, of_gpus, both) for part in (who, str(self.ratio(cell, who, self._neither)))]
            ratios = str(self.ratio(cell, both, single)), str(self._to_bound(cell, both))
            table.add_row(cell, *cells, *ratios, *self._with_resizing(cell, single))
        return table

    def _with_resizing(self, cell: str, single: str) -> tuple[str, ...]:
        """Return the best pair of those that run with `resizing`, and its ratios; nothing of a cell without."""
        if cell not in self.config.resizing.cells:
            return "", "", ""
        several = [in_variant(who, called) for who in self.config.resizing.pairs for called in self.config.resizing.variants]
        best = self._best(cell, several)
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
