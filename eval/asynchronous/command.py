"""`python -m eval asynchronous`: every policy on every cell, paired by seed, tables and the sections of the docs."""

from functools import partial
from pathlib import Path

from beamer.yaml_files import read_yaml
from eval.asynchronous.report import COMMITTED, AsynchronousStudy
from eval.asynchronous.runs import AsynchronousConfig, run_policy
from eval.grid import (
    Anew,
    CellPart,
    ConfigFile,
    Docs,
    JsonFile,
    Processes,
    Ray,
    Seeds,
    StudyOutput,
    chosen,
    code_digest,
    run_study,
)
from eval.resume import Task, digest

CONFIG = Path(__file__).parent.parent / "configs" / "asynchronous.yaml"


def read_config(path: Path = CONFIG) -> AsynchronousConfig:
    """Return a config file, checked. Raises `pydantic.ValidationError`."""
    return AsynchronousConfig.model_validate(read_yaml(path, "--config"))


def asynchronous(
    config_file: ConfigFile = CONFIG,
    seeds: Seeds = None,
    cells: CellPart = None,
    json_file: JsonFile = Path("results/asynchronous.json"),
    docs: Docs = False,
    anew: Anew = False,
    processes: Processes = 2,
    ray: Ray = None,
) -> None:
    """Compare network policies on searches without barriers, in the simulator."""
    config = read_config(config_file)
    config = config.model_copy(update={"seeds": seeds or config.seeds})
    numbers = range(config.first_seed, config.first_seed + config.seeds)
    tasks = {
        name: {who: [_task(config, name, who, seed) for seed in numbers] for who in config.policies}
        for name in chosen(config.cells, cells)
    }
    whole = not (seeds or cells or config_file != CONFIG)
    run_study(COMMITTED, partial(AsynchronousStudy, config), tasks, StudyOutput(json_file, docs, anew, processes, ray, whole))


def _task(config: AsynchronousConfig, name: str, policy: str, seed: int) -> Task:
    cell = config.cell(name)
    key = digest(cell.model_dump(), policy, config.queues, seed, code_digest("eval.asynchronous.runs", policy))
    return Task(key, f"{name}, {policy}, seed {seed}", run_policy, (cell, policy, config.queues, seed))
