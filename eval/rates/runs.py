"""What the study of modes consists of, as in `eval/configs/rates.yaml`, and one run of it.

The ideal order has a class for every job. All are decided by `beamer` with what a live system knows, on the same work for a
seed, so that comparisons are paired. `rates` uses one class whatever the number of queues.
"""

from typing import Any

from pydantic import Field

from beamer.network.allocation import Classes
from beamer.network.plan_modes import plan_mode
from beamer.sim import simulate
from eval.config_section import ConfigSection
from eval.network.cells import LIVE, Cell

POLICY = "beamer"
IDEAL, WITHOUT = "ideal", "fair"


class ModeEntry(ConfigSection):
    """A mode on a number of queues; None: as many as there are jobs."""

    mode: str
    queues: int | None

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.mode if self.queues == 1 else f"{self.mode}, K = {self.queues}"

    def build(self) -> Classes:
        """Return the allocator that carries it out. Raises `InputError`."""
        return Classes(queues=self.queues, plan_mode=plan_mode(self.mode))


class RatesConfig(ConfigSection):
    """What the study consists of, as in the config file."""

    seeds: int = Field(ge=2)
    first_seed: int
    modes: tuple[ModeEntry, ...]
    base: Cell
    cells: dict[str, dict[str, Any]]

    def cell(self, name: str) -> Cell:
        """Return the cell of that name."""
        return Cell.model_validate(self.base.model_dump() | self.cells[name])

    @property
    def names(self) -> tuple[str, ...]:
        """What is compared with the ideal order."""
        return (WITHOUT, *(entry.name for entry in self.modes))

    @property
    def entries(self) -> dict[str, tuple[str, ModeEntry]]:
        """What is run, by name: a policy and its mode."""
        modes = {entry.name: (POLICY, entry) for entry in self.modes}
        every = {IDEAL: (POLICY, ModeEntry(mode="classes", queues=None))}
        return every | {WITHOUT: (WITHOUT, ModeEntry(mode="classes", queues=1))} | modes


def run_mode(cell: Cell, policy: str, entry: ModeEntry, seed: int) -> dict[str, float]:
    """Return what is measured of a policy under a mode on the work of a seed, seconds. changes: plans unlike those before."""
    run = simulate(cell.scenario(seed), policy, assumptions=LIVE, allocator=entry.build())
    return {"mean_s": run.mean_sct_s, "p95_s": run.p95_sct_s, "changes": float(run.plan_changes)}
