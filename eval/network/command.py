"""`python -m eval network`: all contenders on every cell, paired by seed, tables, pictures and the sections of the docs."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console

from beamer.errors import InputError
from beamer.network.policies import NETWORK_POLICIES
from eval.network.cells import Contender, NetworkConfig
from eval.network.report import Study
from eval.network.results_file import DOCS, IMAGES, RESULTS, current, write_results
from eval.network.runs import run_bound, run_contender
from eval.resume import ResultCache, Task, digest, imported_sources, run_resumably, source_digest

CONFIG = Path(__file__).parent.parent / "configs" / "network.yaml"
REGISTRY = "beamer.network.policies"
CACHE = Path("results/network-runs")


def read_config(path: Path = CONFIG) -> NetworkConfig:
    """Return a config file, checked. Raises `pydantic.ValidationError` and `InputError`."""
    return NetworkConfig.model_validate(yaml.safe_load(path.read_text()))


def network(
    config_file: Annotated[Path, typer.Option("--config", help="The study's config.", exists=True, dir_okay=False)] = CONFIG,
    seeds: Annotated[int | None, typer.Option(min=2, help="Fewer seeds than the config says.")] = None,
    cells: Annotated[str | None, typer.Option(help="Only cells whose name contains this.")] = None,
    policies: Annotated[str | None, typer.Option(help="Only contenders whose name contains this, and the reference.")] = None,
    json_file: Annotated[Path, typer.Option("--json", help="Write every run's figures here.")] = Path("results/network.json"),
    images: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("results"),
    docs: Annotated[bool, typer.Option("--docs", help="Write the committed figures, and the docs' tables from them.")] = False,
    anew: Annotated[bool, typer.Option("--anew", help="Repeat runs whose figures are known.")] = False,
    processes: Annotated[int, typer.Option(min=1)] = 2,
) -> None:
    """Compare network policies with each other and with the best lower bound, in the simulator."""
    config = read_config(config_file)
    if docs:
        if seeds or cells or policies or config_file != CONFIG:
            raise InputError("--docs", "fewer runs", "all of the committed config, as the docs show them")
        json_file, images = RESULTS, IMAGES
    config = _reduced(config, seeds, policies)
    chosen = {name: cell for name, cell in config.cells().items() if cells is None or cells in name}
    if not chosen:
        raise InputError("--cells", cells, f"a part of one of {', '.join(config.cells())}")
    console = Console(width=None if sys.stdout.isatty() else 220)
    numbers = range(config.first_seed, config.first_seed + config.seeds)
    tasks: list[Task] = []
    for name, cell in chosen.items():
        drawn = cell.model_dump()
        for contender in config.contenders:
            code = _code(contender)
            tasks += [
                Task(
                    digest(drawn, contender.model_dump(), config.queues, seed, code),
                    f"{name}, {contender.name}, seed {seed}",
                    run_contender,
                    (cell, contender, config.queues, seed),
                )
                for seed in numbers
            ]
        code = source_digest(["eval.network.cells", "beamer.bounds.scenario"])
        tasks += [Task(digest(drawn, seed, code), f"{name}, bound, seed {seed}", run_bound, (cell, seed)) for seed in numbers]
    cache = ResultCache(CACHE)
    if anew:
        cache.forget()
    found = run_resumably(tasks, cache, processes, console, "network")
    study = _study(config, list(chosen), found)
    for folder in (json_file.parent, images):
        folder.mkdir(parents=True, exist_ok=True)
    write_results(study, json_file)
    pictures = study.draw(images)
    if docs:
        DOCS.write_text(current(DOCS.read_text(), study))
    for tables in study.tables().values():
        for table in tables:
            console.print(table)
    console.print(f"figures: {json_file}   pictures: {', '.join(map(str, pictures))}")


def _reduced(config: NetworkConfig, seeds: int | None, policies: str | None) -> NetworkConfig:
    kept = [c for c in config.contenders if policies is None or policies in c.name or c.name in (config.reference, "fair")]
    return config.model_copy(update={"seeds": seeds or config.seeds, "contenders": tuple(kept)})


def _code(contender: Contender) -> str:
    """Return a digest of the sources that a contender's run depends on: not those of policies that have no part in it."""
    own = NETWORK_POLICIES[contender.policy].__module__
    needed = imported_sources([own], without=[REGISTRY])
    others = {NETWORK_POLICIES[name].__module__ for name in NETWORK_POLICIES} - needed.keys()
    return source_digest(["eval.network.runs", own], without=others)


def _study(config: NetworkConfig, cells: list[str], found: list[Mapping[str, Any]]) -> Study:
    left = iter(found)
    runs: dict[str, dict[str, list[Any]]] = {}
    bounds: dict[str, list[Any]] = {}
    for name in cells:
        runs[name] = {contender.name: [next(left) for _ in range(config.seeds)] for contender in config.contenders}
        bounds[name] = [next(left) for _ in range(config.seeds)]
    return Study(config, runs, bounds)
