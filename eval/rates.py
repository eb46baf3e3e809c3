"""The experiment on modes of keeping an order: classes, ceilings on senders, or both, against the ideal order, over seeds.

The ideal order has a class for every job. All are decided by `beamer` with what a live system knows, on the same work for a
seed, so that comparisons are paired. `rates` uses one class whatever the number of queues.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
import yaml
from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console
from rich.table import Table

from beamer.network.allocation import Classes
from beamer.network.plan_modes import plan_mode
from beamer.sim import SimResult, simulate
from eval.network.cells import LIVE, Cell
from eval.statistics import Ratio
from eval.workers import worker_processes

CONFIG = Path(__file__).parent / "configs" / "rates.yaml"
POLICY = "beamer"
IDEAL, WITHOUT = "ideal", "fair"

MEASURES = {
    "mean_s": "mean stage completion time",
    "p95_s": "95th percentile of stage completion times",
    "longest_s": "longest stage completion time",
    "changes": "plans that differ from the one before",
}


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModeEntry(_Entry):
    """A mode on a number of queues."""

    mode: str
    queues: int

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.mode if self.queues == 1 else f"{self.mode}, K = {self.queues}"

    def build(self) -> Classes:
        """Return the allocator that carries it out. Raises `InputError`."""
        return Classes(queues=self.queues, plan_mode=plan_mode(self.mode))


class RatesConfig(_Entry):
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


def run_seed(cell: Cell, modes: Sequence[ModeEntry], seed: int) -> dict[str, Any]:
    """Return the measures of the ideal order, of no order and of every mode on the work of one seed."""
    work = cell.scenario(seed)
    runs = {
        IDEAL: simulate(work, POLICY, assumptions=LIVE, allocator=Classes(queues=None)),
        WITHOUT: simulate(work, "fair", assumptions=LIVE, allocator=Classes(queues=1)),
    }
    runs |= {entry.name: simulate(work, POLICY, assumptions=LIVE, allocator=entry.build()) for entry in modes}
    return {"seed": seed, "modes": {name: measured(run) for name, run in runs.items()}}


def measured(run: SimResult) -> dict[str, float]:
    """Return what is measured of a run."""
    each = [stage.sct_s for stage in run.stages]
    p95_s, longest_s = np.quantile(each, [0.95, 1.0]).tolist()
    return {"mean_s": run.mean_sct_s, "p95_s": p95_s, "longest_s": longest_s, "changes": float(run.plan_changes)}


def by_mode(runs: Sequence[Mapping[str, Any]], name: str, measure: str) -> list[float]:
    """Return a measure of a mode, seed by seed."""
    return [run["modes"][name][measure] for run in runs]


def table(config: RatesConfig, results: Mapping[str, Sequence[Mapping[str, Any]]], measure: str) -> Table:
    """Return a table with a row per mode and a column per cell: the measure relative to the ideal order."""
    seeds = len(next(iter(results.values())))
    title = f"{MEASURES[measure]}, relative to the ideal order: geometric means over {seeds} seeds, 95 % intervals"
    shown = Table(title=title, title_justify="left")
    for column in ("", *results):
        shown.add_column(column, justify="right" if column else "left")
    for name in config.names:
        ratios = (Ratio.of(by_mode(runs, name, measure), by_mode(runs, IDEAL, measure)) for runs in results.values())
        shown.add_row(name, *map(str, ratios))
    return shown


def rates(
    config_file: Annotated[Path, typer.Option("--config", help="The study's config.", exists=True, dir_okay=False)] = CONFIG,
    seeds: Annotated[int | None, typer.Option(min=2, help="Fewer seeds than the config says.")] = None,
    cells: Annotated[str | None, typer.Option(help="Only cells whose name contains this.")] = None,
    json_file: Annotated[Path, typer.Option("--json", help="Write every run's figures here.")] = Path("results/rates.json"),
    processes: Annotated[int, typer.Option(min=1)] = 2,
) -> None:
    """Compare classes, ceilings on senders and both with the ideal order, in the simulator."""
    config = RatesConfig.model_validate(yaml.safe_load(config_file.read_text()))
    config = config.model_copy(update={"seeds": seeds or config.seeds})
    json_file.parent.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 200)
    results: dict[str, list[dict[str, Any]]] = {}
    with worker_processes(processes) as pool:
        for name in (cell for cell in config.cells if cells is None or cells in cell):
            started = time.perf_counter()
            work = partial(run_seed, config.cell(name), config.modes)
            results[name] = list(pool.map(work, range(config.first_seed, config.first_seed + config.seeds)))
            console.print(f"{name}: {time.perf_counter() - started:.0f} s")
            json_file.write_text(json.dumps({"config": config.model_dump(), "cells": results}, indent=1))
    for measure in MEASURES if results else ():
        console.print(table(config, results, measure))
    console.print(f"figures: {json_file}")
