"""What the study of network policies consists of, as in `eval/configs/network.yaml`."""

from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from beamer.errors import InputError, nearest
from beamer.network.allocation import Allocator, Classes, allocator
from beamer.sim import Assumptions
from beamer.workloads.generate import Workload, generate
from beamer.workloads.scenario import Scenario, parse
from beamer.workloads.searches import search
from eval.config_section import ConfigSection

BY_CLASSES = "classes"
FAIR = "fair"  # Tails and stretches are relative to this policy.
LIVE = Assumptions(acknowledgements=False, coflows_known=False)


class Cell(ConfigSection):
    """A network and the searches on it, fields as of `Workload`. search: its kind and settings."""

    topology: dict[str, Any]
    studies: int
    search: dict[str, Any]
    trials: tuple[int, ...]
    budget_spread: float
    weights: tuple[float, ...]
    models: tuple[str, ...]
    collectives: dict[str, float]
    workers: tuple[int, ...]
    placement: str
    arrivals_per_hour: float | None
    compute_ratio: float | None
    compute_jitter: float
    overlap: float

    def scenario(self, seed: int) -> Scenario:
        """Return the work that is drawn from a seed. Raises `InputError` for what cannot be drawn."""
        return parse(generate(Workload(**(self.__dict__ | {"seed": seed, "search": search(**self.search)}))))


class Contender(ConfigSection):
    """A policy, how it is carried out, and what it knows.

    allocator: `classes` is what controllers and switches do; the others are ideal, with the coflows in flight known.
    survivors: whether it knows which trials each rung will keep, which nobody does. most_seeds, most_studies: of contenders
    that take long, how many of the seeds are run, and how many studies a cell may have for it to be run there.
    """

    policy: str
    allocator: str = BY_CLASSES
    survivors: bool = False
    most_seeds: int | None = Field(default=None, ge=2)
    most_studies: int | None = Field(default=None, ge=1)

    @property
    def run_parameters(self) -> dict[str, Any]:
        """What a run of it depends on."""
        return self.model_dump(exclude={"most_seeds", "most_studies"})

    def runs_in(self, cell: Cell) -> bool:
        """Return whether it is run in a cell."""
        return self.most_studies is None or cell.studies <= self.most_studies

    @property
    def name(self) -> str:
        """What tables call it."""
        told = ", told the survivors" if self.survivors else ""
        return f"{self.policy}{told}" if self.is_live else f"{self.policy}{told} ({self.allocator})"

    @property
    def is_live(self) -> bool:
        """Whether a controller could run it so, but for the survivors."""
        return self.allocator == BY_CLASSES

    def carried_out_by(self, queues: int) -> Allocator:
        """Return the allocator; `queues`: classes of a network that has them."""
        return Classes(queues=queues) if self.is_live else allocator(self.allocator)

    @property
    def assumptions(self) -> Assumptions:
        """What is assumed of the system around the network."""
        return replace(LIVE, coflows_known=False if self.is_live else None)


class CellGroup(ConfigSection):
    """Cells of one kind. title: what tables call them. base: what each cell changes, of the study's base."""

    title: str
    base: dict[str, Any] = Field(default_factory=dict)
    cells: dict[str, dict[str, Any]]


class SpreadSeries(ConfigSection):
    """A series of cells that differ in the spread of budgets. base: as of a group."""

    base: dict[str, Any]
    factors: tuple[float, ...] = Field(min_length=2)


class NetworkConfig(ConfigSection):
    """What is run: every contender on every cell, for every seed. reference: the contender that ratios are to."""

    seeds: int = Field(ge=2)
    first_seed: int
    queues: int
    reference: str
    contenders: tuple[Contender, ...] = Field(min_length=2)
    base: Cell
    groups: dict[Literal["mixed", "homogeneous"], CellGroup]
    spread: SpreadSeries

    def model_post_init(self, context: Any) -> None:
        """Check that contenders differ, and that those that others are compared with run everywhere. Raises `InputError`."""
        names = [contender.name for contender in self.contenders]
        if len(set(names)) < len(names):
            raise InputError("contenders", names, "each once")
        if self.reference not in names:
            raise InputError("reference", self.reference, nearest(self.reference, names))
        if FAIR not in names:
            raise InputError("contenders", names, f"{FAIR} among them")
        for contender in self.contenders:
            if contender.name in (self.reference, FAIR) and (contender.most_seeds or contender.most_studies):
                raise InputError("contenders", contender.name, "no limit of seeds or studies, as others are compared with it")

    def cells(self) -> dict[str, Cell]:
        """Return all cells by name, those of the groups before those of the spread."""
        found: dict[str, Cell] = {}
        for group in self.groups.values():
            found |= {name: self._cell(group.base | changes) for name, changes in group.cells.items()}
        return found | {spread_name(f): self._cell(self.spread.base | {"budget_spread": f}) for f in self.spread.factors}

    def _cell(self, changes: dict[str, Any]) -> Cell:
        return Cell.model_validate(self.base.model_dump() | changes)


def spread_name(factor: float) -> str:
    """Return the name of the cell of the spread series whose budgets differ by that factor either way."""
    return f"budgets within {factor:g}"
