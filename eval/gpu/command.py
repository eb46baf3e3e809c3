"""`python -m eval gpu`: runs the published claims about GPU policies over many seeds, each against its baselines.

All contenders are given the same work for a seed, so that ratios are paired. The config in `eval/configs/gpu.yaml` lists what
is run; a policy that loses is shown like the others. Finished runs are kept, so that a second start repeats none of them.
"""

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated

import typer
from matplotlib.figure import Figure

from beamer.errors import InputError
from eval.console import wide_console
from eval.gpu import documents, regions, tuning
from eval.gpu.claims import Claim, Inputs
from eval.gpu.results_file import ClaimResults, StudyResults
from eval.gpu.study import CONFIG, GpuStudyConfig, Runner, grouped, read, runs_of
from eval.resume import run_cache


def gpu(
    config_file: Annotated[Path, typer.Option("--config", help="The study's config.", exists=True, dir_okay=False)] = CONFIG,
    claim: Annotated[list[str] | None, typer.Option(help="Only this claim; may be given several times.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the measured data; without it, work is synthetic.", exists=True, file_okay=False),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=2, help="Fewer seeds than the config says, or more.")] = None,
    cells: Annotated[str, typer.Option(help="Only cells whose name contains this.")] = "",
    json_file: Annotated[
        Path,
        typer.Option("--json", help="Write every run's figures here, beside those of other claims.", dir_okay=False),
    ] = Path("results/gpu.json"),
    plots: Annotated[Path, typer.Option(help="Draw a PNG per claim into this folder.", file_okay=False)] = Path("results"),
    measure: Annotated[
        bool, typer.Option(help="Measure on real processes what changes of GPUs take, for claims about it.")
    ] = True,
    processes: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 2,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget the runs that earlier starts have finished.")] = False,
    tune: Annotated[
        bool, typer.Option("--tune", help="Choose the policies' parameters instead, and write eval/results/gpu-tuning.json.")
    ] = False,
    conditions: Annotated[
        bool,
        typer.Option("--regions", help="Search conditions for published factors instead; eval/results/gpu-regions.json."),
    ] = False,
    docs: Annotated[
        bool, typer.Option("--docs", help="Write the tables and plots of docs/experiments/gpu.md from eval/results instead.")
    ] = False,
) -> None:
    """Compare GPU policies on the conditions of the claims published about them, in the simulator."""
    if sum((tune, conditions, docs)) > 1:
        raise InputError("--tune, --regions, --docs", "several", "one of them, as each does something else")
    if docs:
        documents.DOCS.write_text(documents.current(documents.DOCS.read_text()))
        documents.draw()
        return
    if data is None and (tune or conditions):
        raise InputError("--data", None, "the measured data, as what is found goes into the project's results")
    config = read(config_file)
    config = config.model_copy(update={"seeds": seeds or config.seeds})
    console = wide_console()
    runner = Runner(run_cache("gpu", fresh), processes, console)
    names = claim or list(config.claims)
    claims = {name: config.claim(name) for name in names}
    known = [cell for one in claims.values() for cell in one.cells()]
    if not any(cells in cell for cell in known):
        raise InputError("cells", cells, f"a part of one of {', '.join(known)}")
    for one in claims.values():
        one.check_data(Inputs(data))
    costs = runner.measured_costs() if measure and any(one.processes for one in claims.values()) else None
    inputs = {name: Inputs(data, costs if one.processes else None) for name, one in claims.items()}
    started = time.perf_counter()
    plots.mkdir(parents=True, exist_ok=True)
    if tune:
        _tune(claims, config, runner, inputs)
    elif conditions:
        _search(config, names, runner, inputs, plots)
    else:
        _compare(claims, config, runner, inputs, cells, json_file, plots)
    console.print(f"{time.perf_counter() - started:.0f} s")


def _compare(
    claims: Mapping[str, Claim],
    config: GpuStudyConfig,
    runner: Runner,
    inputs: Mapping[str, Inputs],
    cells: str,
    json_file: Path,
    plots: Path,
) -> None:
    """Run claims, write their figures as they come, draw them and print their tables."""
    tuned = tuning.read_chosen()
    found: list[ClaimResults] = []
    results = StudyResults(config, tuned, found)
    for name, untuned in claims.items():
        one = tuned.applied(untuned)
        runner.console.print(f"{one.title}: {one.describe(inputs[name])}")
        runs = runs_of(one, config, cells)
        if not runs:
            continue
        figures = runner.run(runs, inputs[name], name)
        seeds = config.drawn_for(one, one.judged()[0])
        found.append(ClaimResults.of(one, seeds, inputs[name], grouped(runs, figures)))
        results.write(json_file)
        figure = Figure(figsize=(13, 6), layout="constrained")
        one.draw(found[-1].cells, figure)
        figure.suptitle(f"{one.title} ({found[-1].inputs})", fontsize=10)
        figure.savefig(plots / f"gpu-{name}.png", dpi=110)
    for each in found:
        runner.console.print(f"\n{each.heading}")
        for table in each.tables(tuned):
            runner.console.print(table)
    runner.console.print(results.verdicts())
    runner.console.print(results.tally())
    runner.console.print(results.times())
    runner.console.print(f"figures: {json_file}   pictures: {plots}/gpu-*.png")


def _tune(claims: Mapping[str, Claim], config: GpuStudyConfig, runner: Runner, inputs: Mapping[str, Inputs]) -> None:
    """Choose the parameters of claims' policies."""
    budget = tuning.read()
    tuning.check_budget(budget, config.drawn)
    for name in _known(claims, config, budget.claims):
        tuning.write(budget, {name: tuning.tune(claims[name], budget, runner, inputs[name])})
        runner.console.print(tuning.read_chosen().table(claims[name]))


def _known(names: Collection[str], config: GpuStudyConfig, known: Collection[str]) -> list[str]:
    """Return those of `known`. Raises `InputError` for another, unless all claims of the config are meant."""
    missing = [name for name in names if name not in known]
    if missing and set(names) != set(config.claims):
        raise InputError("--claim", missing[0], f"one of {', '.join(known)}")
    return [name for name in names if name in known]


def _search(config: GpuStudyConfig, names: list[str], runner: Runner, inputs: Mapping[str, Inputs], plots: Path) -> None:
    """Search claims' conditions, and draw a map of each."""
    grids = regions.read()
    for name in _known(names, config, grids.claims):
        found = regions.search(config, name, grids, runner, inputs[name])
        regions.write({name: found})
        regions.save(found, plots / f"gpu-regions-{name}.png")
        runner.console.print(regions.summary(name, found))
