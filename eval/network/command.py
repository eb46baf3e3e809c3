"""`python -m eval network`: all contenders on every cell, paired by seed, tables, pictures and the sections of the docs."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError
from beamer.yaml_files import read_yaml
from eval.grid import (
    Anew,
    CellPart,
    ConfigFile,
    Docs,
    JsonFile,
    Processes,
    Ray,
    Runs,
    Seeds,
    StudyOutput,
    chosen,
    code_digest,
    run_study,
)
from eval.network.cells import FAIR, NetworkConfig
from eval.network.report import Study
from eval.network.results_file import COMMITTED, IMAGES
from eval.network.runs import run_bound, run_contender
from eval.resume import Task, digest, source_digest

CONFIG = Path(__file__).parent.parent / "configs" / "network.yaml"
BOUND = "bound"


def read_config(path: Path = CONFIG) -> NetworkConfig:
    """Return a config file, checked. Raises `pydantic.ValidationError` and `InputError`."""
    return NetworkConfig.model_validate(read_yaml(path, "--config"))


def network(
    config_file: ConfigFile = CONFIG,
    seeds: Seeds = None,
    cells: CellPart = None,
    policies: Annotated[
        str | None, typer.Option(help="Only contenders whose name contains this, the reference and fair.")
    ] = None,
    json_file: JsonFile = Path("results/network.json"),
    images: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("results"),
    docs: Docs = False,
    anew: Anew = False,
    processes: Processes = 2,
    ray: Ray = None,
) -> None:
    """Compare network policies with each other and with the best lower bound, in the simulator."""
    config = _reduced(read_config(config_file), seeds, policies)
    whole = not (seeds or cells or policies or config_file != CONFIG)
    tasks = {name: _tasks(config, name) for name in chosen(config.cells(), cells)}
    study = run_study(COMMITTED, partial(_study, config), tasks, StudyOutput(json_file, docs, anew, processes, ray, whole))
    images = IMAGES if docs else images
    images.mkdir(parents=True, exist_ok=True)
    typer.echo(f"pictures: {', '.join(map(str, study.draw(images)))}")


def _reduced(config: NetworkConfig, seeds: int | None, policies: str | None) -> NetworkConfig:
    names = [contender.name for contender in config.contenders]
    if policies is not None and not any(policies in name for name in names):
        raise InputError("--policies", policies, f"a part of one of {', '.join(names)}")
    kept = [c for c in config.contenders if policies is None or policies in c.name or c.name in (config.reference, FAIR)]
    return config.model_copy(update={"seeds": seeds or config.seeds, "contenders": tuple(kept)})


def _tasks(config: NetworkConfig, name: str) -> dict[str, list[Task]]:
    """Return the tasks of a cell by contender, and those of its bound."""
    cell, numbers = config.cells()[name], range(config.first_seed, config.first_seed + config.seeds)
    drawn = cell.model_dump()
    found: dict[str, list[Task]] = {}
    for contender in config.contenders:
        if not contender.runs_in(cell):
            continue
        parts, code = (drawn, contender.run_parameters, config.queues), code_digest("eval.network.runs", contender.policy)
        found[contender.name] = [
            Task(
                digest(*parts, seed, code),
                f"{name}, {contender.name}, seed {seed}",
                run_contender,
                (cell, contender, config.queues, seed),
            )
            for seed in numbers[: contender.most_seeds]
        ]
    code = source_digest(["eval.network.cells", "beamer.bounds.scenario"])
    found[BOUND] = [Task(digest(drawn, seed, code), f"{name}, bound, seed {seed}", run_bound, (cell, seed)) for seed in numbers]
    return found


def _study(config: NetworkConfig, found: Runs) -> Study:
    runs = {name: {who: several for who, several in of.items() if who != BOUND} for name, of in found.items()}
    return Study(config, runs, {name: of[BOUND] for name, of in found.items()})
