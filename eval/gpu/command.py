"""`python -m eval gpu`: runs the published claims about GPU policies over many seeds, each against its baselines.

All contenders are given the same work for a seed, so that ratios are paired. The config in `eval/configs/gpu.yaml` lists what
is run; a policy that loses is shown like the others.
"""

import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from matplotlib.figure import Figure
from pydantic import Field
from rich.console import Console

from beamer.errors import InputError, nearest
from beamer.gpu.model import Costs
from eval.gpu.claims import CLAIMS, Claim, Figures, GpuContender, Inputs, Results
from eval.gpu.claims.base import ConfigSection
from eval.gpu.processes import measure as measure_processes
from eval.gpu.report import verdicts

CONFIG = Path(__file__).parent.parent / "configs" / "gpu.yaml"


class GpuStudyConfig(ConfigSection):
    """What the study consists of, as in the config file."""

    seeds: int = Field(ge=2)
    first_seed: int
    claims: dict[str, dict[str, Any]]

    @property
    def drawn(self) -> range:
        """The seeds."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def claim(self, name: str) -> Claim:
        """Return a claim. Raises `InputError` for one that does not exist."""
        known = [one for one in CLAIMS if one in self.claims]
        if name not in known:
            raise InputError("claim", name, nearest(name, known))
        return CLAIMS[name].model_validate(self.claims[name])


def read(path: Path = CONFIG) -> GpuStudyConfig:
    """Return the study of a config file."""
    return GpuStudyConfig.model_validate(yaml.safe_load(path.read_text()))


def run_one(claim: Claim, cell: str, contender: GpuContender, seed: int, inputs: Inputs) -> Figures:
    """Return the figures of one run, with the processor time that it took."""
    started = time.process_time()
    figures = claim.run(cell, contender, seed, inputs)
    return {"seed": seed, **figures, "cpu_s": time.process_time() - started}


def run_claim(
    pool: ProcessPoolExecutor, claim: Claim, seeds: Sequence[int], inputs: Inputs, cells: str, console: Console
) -> Results:
    """Run a claim's cells whose names contain `cells`, and print the progress."""
    work = [
        (cell, contender, [pool.submit(run_one, claim, cell, contender, seed, inputs) for seed in seeds])
        for cell in claim.cells()
        if cells in cell
        for contender in claim.contenders(cell)
    ]
    results: dict[str, dict[str, list[Figures]]] = {}
    for cell, contender, runs in work:
        done = [run.result() for run in runs]
        results.setdefault(cell, {})[contender.name] = done
        first = claim.metrics[0]
        mean = sum(figures[first.key] for figures in done) / len(done) * first.scale
        cpu_s = sum(figures["cpu_s"] for figures in done)
        console.print(f"{claim.name}, {cell}: {contender.name}: {first.title} {mean:.4g} ({cpu_s:.1f} s of computing)")
    return results


def measured_costs() -> Costs:
    """Return what suspending, resuming and restarting a job of two processes takes here, the medians."""
    found = measure_processes()
    return Costs(found.suspend.p50_s, found.resume.p50_s, found.restart.p50_s)


def gpu(
    config_file: Annotated[Path, typer.Option("--config", help="The study's config.", exists=True, dir_okay=False)] = CONFIG,
    claim: Annotated[str, typer.Option(help="Only this claim.")] = "",
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the measured data; without it, work is synthetic.", exists=True, file_okay=False),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=2, help="Fewer seeds than the config says, or more.")] = None,
    cells: Annotated[str, typer.Option(help="Only cells whose name contains this.")] = "",
    json_file: Annotated[Path, typer.Option("--json", help="Write every run's figures here.")] = Path("results/gpu.json"),
    plots: Annotated[Path, typer.Option(help="Draw a PNG per claim into this folder.")] = Path("results"),
    measure: Annotated[
        bool, typer.Option(help="Measure on real processes what changes of GPUs take, for claims about it.")
    ] = True,
    processes: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 2,
) -> None:
    """Compare GPU policies on the conditions of the claims published about them, in the simulator."""
    config = read(config_file)
    config = config.model_copy(update={"seeds": seeds or config.seeds})
    for folder in (json_file.parent, plots):
        folder.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 220)
    chosen = {name: config.claim(name) for name in ([claim] if claim else config.claims)}
    names = [cell for one in chosen.values() for cell in one.cells()]
    if not any(cells in cell for cell in names):
        raise InputError("cells", cells, f"a part of one of {', '.join(names)}")
    costs = measured_costs() if measure and any(one.processes for one in chosen.values()) else None
    document: dict[str, Any] = {"config": config.model_dump(), "data": data and str(data), "claims": {}}
    shown: list[tuple[Claim, Results]] = []
    tables: list[Any] = []
    started = time.perf_counter()
    with ProcessPoolExecutor(processes) as pool:
        for name, one in chosen.items():
            inputs = Inputs(data, costs if one.processes else None)
            console.print(f"{one.title}: {one.describe(inputs)}")
            results = run_claim(pool, one, config.drawn, inputs, cells, console)
            shown.append((one, results))
            further = one.figures(config.drawn, inputs)
            tables += [f"\n{one.title}: {one.describe(inputs)}; {config.seeds} seeds, 95 % intervals"]
            tables += [*one.tables(results), *one.further(further, results)]
            document["claims"][name] = {
                "inputs": one.describe(inputs),
                "published": dict(one.published),
                "cells": results,
                **further,
            }
            json_file.write_text(json.dumps(document, indent=1))
            figure = Figure(figsize=(13, 6), layout="constrained")
            one.draw(results, figure)
            figure.suptitle(f"{one.title} ({one.describe(inputs)})", fontsize=10)
            figure.savefig(plots / f"gpu-{name}.png", dpi=110)
    for table in (*tables, verdicts(shown)):
        console.print(table)
    console.print(f"{time.perf_counter() - started:.0f} s   figures: {json_file}   pictures: {plots}/gpu-*.png")
