"""The figures of a study of cells, contenders and seeds: as its file has them, and what its tables share."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from rich.table import Table

from eval.committed import seed_range
from eval.interval_plot import IntervalEstimate, IntervalEstimates
from eval.statistics import CONFIDENCE, Ratio

Runs = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
"""Results by cell and contender, seeds in order."""


class GridConfig(Protocol):
    """What such a study runs, as far as all of them say it alike: so many `seeds` from `first_seed` on; a `ConfigSection`."""

    @property
    def seeds(self) -> int:
        """How many seeds are drawn."""

    @property
    def first_seed(self) -> int:
        """The first of them."""

    @classmethod
    def model_validate(cls, obj: Any) -> Self:
        """Return the config that a document holds. Raises `pydantic.ValidationError`."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """Return it as a document."""

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """Return it with other values of some fields."""


C = TypeVar("C", bound=GridConfig)


@dataclass(frozen=True)
class GridStudy(ABC, Generic[C]):
    """The runs of a config, by cell and contender.

    main_measure: the measure that ratios are of where none is named.
    """

    main_measure: ClassVar[str] = ""
    config: C
    runs: Runs

    @classmethod
    def of_runs(cls, config: C, found: Runs) -> Self:
        """Return the study that results make up."""
        return cls(config, found)

    @classmethod
    def from_json(cls, config: type[C], document: Mapping[str, Any]) -> Self:
        """Return the study that a file's content is of. config: the type of its config."""
        return cls(config.model_validate(document["config"]), document["runs"])

    def as_json(self) -> dict[str, Any]:
        """Return its config and figures as plain JSON."""
        return {"config": self.config.model_dump(mode="json"), "runs": self.runs}

    @property
    def seeds_in_words(self) -> str:
        """The seeds of its runs, in words."""
        return seed_range(self.config.first_seed, self.config.seeds)

    @abstractmethod
    def tables(self) -> dict[str, list[Table]]:
        """Return every table by the name of its section."""

    def each(self, cell: str, who: str, measure: str) -> list[float]:
        """Return a measure of a contender, seed by seed."""
        return [run[measure] for run in self.runs[cell][who]]

    def ratio(self, cell: str, who: str, base: str, measure: str = "") -> Ratio:
        """Return a contender's measure relative to that of `base`, paired by seed, over the seeds that both were run with."""
        measure = measure or self.main_measure
        pairs = list(zip(self.runs[cell][who], self.runs[cell][base], strict=False))
        return Ratio.of([run[measure] for run, _ in pairs], [run[measure] for _, run in pairs])

    def estimates(self, cells: Iterable[str], who: str, base: str, measure: str = "") -> IntervalEstimates:
        """Return `ratio` by cell, of those in which both were run, for plots."""
        both = [cell for cell in cells if who in self.runs[cell] and base in self.runs[cell]]
        return {cell: IntervalEstimate.of(self.ratio(cell, who, base, measure)) for cell in both}

    def _seeds(self) -> int:
        """Return how many seeds every contender has at least."""
        return min(len(runs) for cell in self.runs.values() for runs in cell.values())

    def _means(self) -> str:
        """Return in words what the ratios of a table are."""
        return f"geometric means over {self._seeds()} seeds, {CONFIDENCE:.0%} intervals"
