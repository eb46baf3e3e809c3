"""`python -m eval rates`: every mode of keeping an order on every cell, paired by seed, tables and the sections of the docs."""

from functools import partial
from pathlib import Path

from beamer.yaml_files import read_yaml
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
from eval.rates.report import COMMITTED, RatesStudy
from eval.rates.runs import RatesConfig, run_mode
from eval.resume import Task, digest

CONFIG = Path(__file__).parent.parent / "configs" / "rates.yaml"


def read_config(path: Path = CONFIG) -> RatesConfig:
    """Return a config file, checked. Raises `pydantic.ValidationError`."""
    return RatesConfig.model_validate(read_yaml(path, "--config"))


def rates(
    config_file: ConfigFile = CONFIG,
    seeds: Seeds = None,
    cells: CellPart = None,
    json_file: JsonFile = Path("results/rates.json"),
    docs: Docs = False,
    anew: Anew = False,
    processes: Processes = 2,
    ray: Ray = None,
) -> None:
    """Compare classes, ceilings on senders and both with the ideal order, in the simulator."""
    config = read_config(config_file)
    config = config.model_copy(update={"seeds": seeds or config.seeds})
    numbers = range(config.first_seed, config.first_seed + config.seeds)
    tasks = {
        name: {who: [_task(config, name, who, seed) for seed in numbers] for who in config.entries}
        for name in chosen(config.cells, cells)
    }
    whole = not (seeds or cells or config_file != CONFIG)
    run_study(COMMITTED, partial(RatesStudy, config), tasks, StudyOutput(json_file, docs, anew, processes, ray, whole))


def _task(config: RatesConfig, name: str, who: str, seed: int) -> Task:
    cell, (policy, entry) = config.cell(name), config.entries[who]
    key = digest(cell.model_dump(), policy, entry.model_dump(), seed, code_digest("eval.rates.runs", policy))
    return Task(key, f"{name}, {who}, seed {seed}", run_mode, (cell, policy, entry, seed))
