"""The experiment on searches without barriers: how soon a search has what it looks for, under network policies, over seeds.

Every policy is given the same arrivals, slots and losses for a seed, so that comparisons are paired. What a search decides
depends on when its trials arrive, so that which trials it promotes differs between policies, as it would in a live system.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
import yaml
from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console
from rich.table import Table

from beamer.network.allocation import Classes
from beamer.sim import Assumptions, SimResult, simulate
from beamer.workloads import SuccessiveHalving, Workload, generate
from beamer.workloads.asynchronous import ASYNCHRONOUS_SEARCHES
from beamer.workloads.generate import asynchronous_searches
from beamer.workloads.scenario import Scenario, parse
from eval.statistics import Ratio
from eval.workers import worker_processes

CONFIG = Path(__file__).parent / "configs" / "asynchronous.yaml"
LIVE = Assumptions(acknowledgements=False, coflows_known=False)
RATE = "10gbit"

MEASURES = {
    "first_s": "seconds until the first trial has completed the top rung",
    "best_s": "seconds until the best of all that complete it has",
    "search_s": "seconds until the search ends",
    "sct_s": "mean SCT of the synchronous searches beside them",
}


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AsynchronousCell(_Entry):
    """A cluster and the searches on it.

    kind, trials, settings: of each search without barriers; so many `searches`, each with so many `slots`. studies: searches by
    synchronous halving beside them. leaves: of a leaf-spine network with one spine and uplinks of a host's rate; 1: one switch.
    """

    kind: Literal["asha", "median-stopping", "random"]
    trials: int
    settings: dict[str, int]
    searches: int
    slots: int
    studies: int
    hosts: int
    leaves: int
    workers: int
    compute_ratio: float
    models: tuple[str, ...]


class AsynchronousConfig(_Entry):
    """What the study consists of, as in the config file. queues: classes of the network."""

    seeds: int = Field(ge=2)
    first_seed: int
    queues: int
    policies: tuple[str, ...] = Field(min_length=2)
    base: AsynchronousCell
    cells: dict[str, dict[str, Any]]

    def cell(self, name: str) -> AsynchronousCell:
        """Return the cell of that name."""
        return AsynchronousCell.model_validate(self.base.model_dump() | self.cells[name])


def scenario(cell: AsynchronousCell, seed: int) -> Scenario:
    """Return the work of a cell for a seed."""
    topology: dict[str, Any] = {"shape": "single", "hosts": cell.hosts, "rate": RATE}
    if cell.leaves > 1:
        per_leaf = cell.hosts // cell.leaves
        topology = {"shape": "leaf-spine", "leaves": cell.leaves, "hosts_per_leaf": per_leaf, "spines": 1, "rate": RATE}
    workload = Workload(
        seed=seed,
        topology=topology,
        studies=cell.searches,
        search=SuccessiveHalving(),
        models=cell.models,
        workers=(cell.workers,),
        placement="random",
        compute_ratio=cell.compute_ratio,
    )
    search = ASYNCHRONOUS_SEARCHES[cell.kind](trials=cell.trials, **cell.settings)
    beside = parse(generate(replace(workload, studies=max(cell.studies, 1))))
    return replace(
        beside, studies=beside.studies[: cell.studies], asynchronous=asynchronous_searches(workload, search, cell.slots)
    )  # fmt: skip


def run_seed(cell: AsynchronousCell, policies: Sequence[str], queues: int, seed: int) -> dict[str, Any]:
    """Return the measures of every policy on the work of one seed, means over the searches of a kind, and the losses found."""
    work = scenario(cell, seed)
    runs = {name: simulate(work, name, assumptions=LIVE, allocator=Classes(queues=queues)) for name in policies}
    return {"seed": seed, "policies": {name: measured(run) for name, run in runs.items()}}


def measured(run: SimResult) -> dict[str, float]:
    """Return what is measured of a run, seconds; `loss` is the mean of what the searches' best trials reported."""
    found: dict[str, float] = {
        name: float(np.mean([getattr(search, name) for search in run.searches])) for name in ("first_s", "best_s", "search_s")
    }
    found["loss"] = float(np.mean([np.inf if search.best is None else search.best.loss for search in run.searches]))
    return found | ({"sct_s": run.mean_sct_s} if run.stages else {})


def by_policy(runs: Sequence[Mapping[str, Any]], policy: str, measure: str) -> list[float]:
    """Return a measure of a policy, seed by seed."""
    return [run["policies"][policy][measure] for run in runs]


def table(config: AsynchronousConfig, results: Mapping[str, Sequence[Mapping[str, Any]]], measure: str) -> Table:
    """Return a row per cell that has a measure: every policy relative to the first, and the last one's median over seeds."""
    first, *others = config.policies
    last = config.policies[-1]
    title = f"{MEASURES[measure]}, relative to {first}: geometric means over {config.seeds} seeds, 95 % intervals"
    shown = Table(title=title, title_justify="left")
    for column in ("cell", *others, f"{last}, median", "seeds in which it is later"):
        shown.add_column(column, justify="left" if column == "cell" else "right")
    for name, runs in results.items():
        if measure not in runs[0]["policies"][first]:
            continue
        base = by_policy(runs, first, measure)
        each = np.array(by_policy(runs, last, measure)) / np.array(base)
        shown.add_row(
            name,
            *(str(Ratio.of(by_policy(runs, other, measure), base)) for other in others),
            f"{float(np.median(each)):.2f}",
            f"{int((each > 1).sum())} of {len(each)}",
        )
    return shown


def losses(config: AsynchronousConfig, results: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the mean loss of the best trials under every policy, over all cells: whether an early end is also a good one."""
    means = {name: np.mean([np.mean(by_policy(runs, name, "loss")) for runs in results.values()]) for name in config.policies}
    return "mean loss of the best trials: " + ", ".join(f"{name} {mean:.4f}" for name, mean in means.items())


def asynchronous(
    config_file: Annotated[Path, typer.Option("--config", help="The study's config.", exists=True, dir_okay=False)] = CONFIG,
    seeds: Annotated[int | None, typer.Option(min=2, help="Fewer seeds than the config says.")] = None,
    cells: Annotated[str | None, typer.Option(help="Only cells whose name contains this.")] = None,
    json_file: Annotated[Path, typer.Option("--json", help="Write every run's figures here.")] = Path(
        "results/asynchronous.json"
    ),
    processes: Annotated[int, typer.Option(min=1)] = 2,
) -> None:
    """Compare network policies on searches without barriers, in the simulator."""
    config = AsynchronousConfig.model_validate(yaml.safe_load(config_file.read_text()))
    config = config.model_copy(update={"seeds": seeds or config.seeds})
    json_file.parent.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 200)
    results: dict[str, list[dict[str, Any]]] = {}
    with worker_processes(processes) as pool:
        for name in (cell for cell in config.cells if cells is None or cells in cell):
            started = time.perf_counter()
            work = partial(run_seed, config.cell(name), config.policies, config.queues)
            results[name] = list(pool.map(work, range(config.first_seed, config.first_seed + config.seeds)))
            console.print(f"{name}: {time.perf_counter() - started:.0f} s")
            json_file.write_text(json.dumps({"config": config.model_dump(), "cells": results}, indent=1))
    for measure in MEASURES:
        if (shown := table(config, results, measure)).row_count:
            console.print(shown)
    if results:
        console.print(losses(config, results))
    console.print(f"figures: {json_file}")
