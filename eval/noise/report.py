"""The table of the study of noisy losses."""

from collections.abc import Sequence
from statistics import fmean

from rich.table import Table

from eval.grid_study import GridStudy
from eval.noise.runs import NoiseConfig


class NoiseStudy(GridStudy[NoiseConfig]):
    """The runs of a config, by search and policy."""

    main_measure = "reached_s"

    def tables(self) -> dict[str, list[Table]]:
        """Return the table of all searches: mean times to the target, and time on trials that were known to be worse."""
        first, *others = self.config.contenders
        title = f"seconds to the target, means over {self._seeds()} seeds, and their ratios to {first}"
        table = Table(title=title, title_justify="left")
        columns = ("search", *(f"{name}, s" for name in self.config.contenders), *(f"{name} / {first}" for name in others))
        for column in (*columns, *(f"{name}, on worse ones" for name in others)):
            table.add_column(column, justify="left" if column == "search" else "right")
        for cell in self.runs:
            self._add(table, cell, [cell])
        self._add(table, "all", list(self.runs))
        return {"searches": [table]}

    def _add(self, table: Table, row: str, cells: Sequence[str]) -> None:
        first, *others = self.config.contenders
        means, worse = (
            {who: fmean(one for cell in cells for one in self.each(cell, who, measure)) for who in self.config.contenders}
            for measure in ("reached_s", "worse")
        )
        ratios = [f"{means[who] / means[first]:.2f}" for who in others]
        table.add_row(row, *(f"{mean:.1f}" for mean in means.values()), *ratios, *(f"{worse[who]:.0%}" for who in others))
