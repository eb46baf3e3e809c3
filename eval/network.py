"""The experiment on network policies: mean stage completion times against the best lower bound, over seeds and clusters.

Every policy is given the same work for a seed, so that comparisons are paired. The config in `eval/configs/network.yaml` says
which cells there are; a cell that misses a mark is shown like the others.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
import yaml
from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console
from rich.table import Table

from beamer.bounds.scenario import scenario_bounds
from beamer.network.allocation import Allocator, Classes, allocator
from beamer.sim import Assumptions, simulate
from beamer.workloads import SuccessiveHalving, Workload, generate
from beamer.workloads.scenario import Scenario, parse
from eval.statistics import Interval
from eval.workers import worker_processes

CONFIG = Path(__file__).parent / "configs" / "network.yaml"
PLAIN = Assumptions(acknowledgements=False)
LIVE = Assumptions(acknowledgements=False, coflows_known=False)


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Cell(_Entry):
    """A cluster and the searches on it. workers: of a job. trials, iterations: of a search's first rung."""

    hosts: int
    studies: int
    compute_ratio: float
    collective: str
    workers: int
    trials: int
    iterations: int
    placement: str
    models: tuple[str, ...]


class PolicyPair(_Entry):
    """A policy with the allocator that carries it out."""

    policy: str
    allocator: str
    queues: Literal["unlimited"] | int | None = None

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.policy if self.queues is None or self.policy != "beamer" else f"{self.policy}, K = {self.queues}"

    def build(self) -> Allocator:
        """Return the allocator."""
        if self.queues is None:
            return allocator(self.allocator)
        return Classes(queues=None if self.queues == "unlimited" else self.queues)


class NetworkConfig(_Entry):
    """What the study consists of, as in the config file."""

    seeds: int = Field(ge=2)
    first_seed: int
    base: Cell
    policies: tuple[PolicyPair, ...]
    queues: tuple[Literal["unlimited"] | int, ...]
    queue_cells: tuple[str, ...]
    cells: dict[str, dict[str, Any]]

    def cell(self, name: str) -> Cell:
        """Return the cell of that name."""
        return Cell.model_validate(self.base.model_dump() | self.cells[name])


def scenario(cell: Cell, seed: int) -> Scenario:
    """Return the work of a cell for a seed: one switch up to 64 hosts, beyond that a leaf-spine of full bisection bandwidth."""
    topology: dict[str, Any] = {"shape": "single", "hosts": cell.hosts, "rate": "10gbit"}
    if cell.hosts > 64:
        leaves = cell.hosts // 32
        topology = {
            "shape": "leaf-spine", "leaves": leaves, "hosts_per_leaf": 32, "rate": "10gbit",
            "spines": 8, "uplink_rate": "40gbit",
        }  # fmt: skip
    workload = Workload(
        seed=seed,
        topology=topology,
        studies=cell.studies,
        search=SuccessiveHalving(trials=cell.trials, iterations=cell.iterations),
        models=cell.models,
        collectives={cell.collective: 1.0},
        workers=(cell.workers,),
        placement=cell.placement,
        compute_ratio=cell.compute_ratio,
    )
    return parse(generate(workload))


def run_seed(cell: Cell, contenders: Sequence[PolicyPair], queues: Sequence[PolicyPair], seed: int) -> dict[str, Any]:
    """Return the mean SCT of every contender on the work of one seed, seconds, with its best lower bound."""
    work = scenario(cell, seed)
    bound = scenario_bounds(work, acknowledgements=False)
    means = {c.name: simulate(work, c.policy, assumptions=PLAIN, allocator=c.build()).mean_sct_s for c in contenders}
    means |= {c.name: simulate(work, c.policy, assumptions=LIVE, allocator=c.build()).mean_sct_s for c in queues}
    return {"seed": seed, "bound": bound.best, "bound_s": bound.mean_s, "mean_sct_s": means}


def ratios(runs: Sequence[Mapping[str, Any]], name: str, to: str | None = None) -> list[float]:
    """Return a contender's mean SCT by seed, relative to the bound, or to that of the contender `to`, or to the best found."""
    if to is None:
        return [run["mean_sct_s"][name] / run["bound_s"] for run in runs]
    if to == "best":
        return [run["mean_sct_s"][name] / min(run["mean_sct_s"].values()) for run in runs]
    return [run["mean_sct_s"][name] / run["mean_sct_s"][to] for run in runs]


def significantly_worse(runs: Sequence[Mapping[str, Any]], name: str, than: str) -> bool:
    """Say whether a contender's ratio to the bound is above another's beyond chance, seed by seed."""
    difference = Interval.of([a - b for a, b in zip(ratios(runs, name), ratios(runs, than), strict=True)])
    return difference.mean > difference.half_width


def summary(config: NetworkConfig, results: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """Return a table with a row per cell: the first policy to bound and best found, then the others relative to it."""
    first, *others = (c.name for c in config.policies)
    table = Table(title=f"mean SCT over {config.seeds} seeds, 95 % intervals; others relative to {first}", title_justify="left")
    for column in ("cell", f"{first} / bound", f"{first} / best found", *others, "worse than"):
        table.add_column(column, justify="left" if column in ("cell", "worse than") else "right")
    for name, runs in results.items():
        worse = [other for other in others if significantly_worse(runs, first, other)]
        table.add_row(
            name,
            str(Interval.of(ratios(runs, first))),
            str(Interval.of(ratios(runs, first, "best"))),
            *(f"{float(np.mean(ratios(runs, other, first))):.3f}" for other in others),
            ", ".join(worse) or "none",
        )
    return table


def queue_table(config: NetworkConfig, results: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """Return a table of what K classes cost, against as many as there are jobs."""
    names = [c.name for c in _by_queues(config)]
    table = Table(title="beamer as a live system runs it, by number of classes, relative to unlimited", title_justify="left")
    for column in ("cell", *names):
        table.add_column(column, justify="left" if column == "cell" else "right")
    for cell in config.queue_cells:
        if cell in results:
            table.add_row(cell, *(str(Interval.of(ratios(results[cell], name, names[-1]))) for name in names))
    return table


def _by_queues(config: NetworkConfig) -> list[PolicyPair]:
    return [PolicyPair(policy="beamer", allocator="classes", queues=queues) for queues in config.queues]


def plot(config: NetworkConfig, results: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Draw every policy's ratio to the bound, a row per cell, and write the picture to `path`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 1.2 + 0.38 * len(results)), layout="constrained")
    axes = figure.subplots()
    for number, contender in enumerate(config.policies):
        intervals = [Interval.of(ratios(runs, contender.name)) for runs in results.values()]
        axes.errorbar(
            [i.mean for i in intervals],
            np.arange(len(results)) + 0.08 * (number - len(config.policies) / 2),
            xerr=[i.half_width for i in intervals],
            fmt="o",
            markersize=6 if number == 0 else 4,
            label=contender.name,
            zorder=len(config.policies) - number,
        )
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(results)), list(results))
    axes.invert_yaxis()
    axes.set_xlabel("mean stage completion time / best lower bound")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=4, frameon=False)
    figure.savefig(path, dpi=120)


def network(
    config_file: Annotated[Path, typer.Option("--config", help="The study's config.", exists=True, dir_okay=False)] = CONFIG,
    seeds: Annotated[int | None, typer.Option(min=2, help="Fewer seeds than the config says.")] = None,
    cells: Annotated[str | None, typer.Option(help="Only cells whose name contains this.")] = None,
    json_file: Annotated[Path, typer.Option("--json", help="Write every run's figures here.")] = Path("results/network.json"),
    plot_file: Annotated[Path, typer.Option("--plot", help="Draw the ratios into this PNG.")] = Path("results/network.png"),
    processes: Annotated[int, typer.Option(min=1)] = 2,
) -> None:
    """Compare network policies with each other and with the best lower bound, in the simulator."""
    config = NetworkConfig.model_validate(yaml.safe_load(config_file.read_text()))
    config = config.model_copy(update={"seeds": seeds or config.seeds})
    for path in (json_file, plot_file):
        path.parent.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 200)
    results: dict[str, list[dict[str, Any]]] = {}
    with worker_processes(processes) as pool:
        for name in (cell for cell in config.cells if cells is None or cells in cell):
            started = time.perf_counter()
            queues = _by_queues(config) if name in config.queue_cells else []
            work = partial(run_seed, config.cell(name), config.policies, queues)
            results[name] = list(pool.map(work, range(config.first_seed, config.first_seed + config.seeds)))
            first = Interval.of(ratios(results[name], config.policies[0].name))
            console.print(f"{name}: {config.policies[0].name} / bound {first}, {time.perf_counter() - started:.0f} s")
            json_file.write_text(json.dumps({"config": config.model_dump(), "cells": results}, indent=1))
    console.print(summary(config, results))
    console.print(queue_table(config, results))
    plot(config, results, plot_file)
    console.print(f"figures: {json_file}   picture: {plot_file}")
