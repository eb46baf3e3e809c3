"""What is run again of a committed table: its cells, each with the committed figures and how to make them again."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

Figures = Mapping[str, float]

TOLERANCE = 1e-6
"""Relative difference from which figures are others: results files keep seven digits."""


@dataclass(frozen=True)
class CommittedCell:
    """A cell of a table. committed: its figures. again: makes them by today's code, with others that are not compared."""

    name: str
    committed: Figures
    again: Callable[[], Figures]

    def differences(self) -> Iterator["CellDifference"]:
        """Run it again and yield what differs."""
        now = self.again()
        for figure, before in self.committed.items():
            after = now.get(figure, math.nan)
            same = before == after or math.isclose(before, after, rel_tol=TOLERANCE, abs_tol=TOLERANCE**2)
            if not (same or (math.isnan(before) and math.isnan(after))):
                yield CellDifference(self.name, figure, before, after)


@dataclass(frozen=True)
class CellDifference:
    """A figure that today's code does not make. now: not a number where it makes none of that name."""

    cell: str
    figure: str
    committed: float
    now: float

    def __str__(self) -> str:
        relative = f", {self.now / self.committed - 1:+.2%}" if self.committed and math.isfinite(self.committed) else ""
        return f"{self.cell}: {self.figure} is {self.committed:.7g}, now {self.now:.7g}{relative}"


@dataclass(frozen=True)
class RecheckInputs:
    """What some tables need besides the project.

    data: folder of the measured data. peers: checkouts of other projects by the peer's name, each with an interpreter that has
    its packages, None for one that is made.
    """

    data: Path | None
    peers: Mapping[str, tuple[Path, Path | None]]


NOTHING_GIVEN = RecheckInputs(None, {})

Cells = Callable[[RecheckInputs], Collection[CommittedCell]]
"""Returns the cells of a table that are run again. Raises `MissingInput` where it needs more than is given."""


class MissingInput(Exception):
    """A table cannot be run again without an input; the message names the option and what it is to be."""


def only(figures: Figures, names: Collection[str]) -> dict[str, float]:
    """Return some figures, those that follow from the code and not from how long it took."""
    return {name: value for name, value in figures.items() if name in names}
