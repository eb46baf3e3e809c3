"""`python -m eval trials`: variants of `beamer` on some cells of the network study, tables and the sections of the docs."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from beamer.errors import InputError, nearest
from beamer.yaml_files import read_yaml
from eval.grid import Anew, ConfigFile, Docs, JsonFile, Processes, Ray, Seeds, StudyOutput, code_digest, run_study
from eval.network.cells import Cell
from eval.network.command import read_config as read_network_config
from eval.resume import Task, digest
from eval.trials.report import COMMITTED, TrialsStudy
from eval.trials.runs import TrialsConfig, run_variant

CONFIG = Path(__file__).parent.parent / "configs" / "trials.yaml"


def read_config(path: Path = CONFIG) -> TrialsConfig:
    """Return a config file, checked. Raises `pydantic.ValidationError`."""
    return TrialsConfig.model_validate(read_yaml(path, "--config"))


def trials(
    config_file: ConfigFile = CONFIG,
    seeds: Seeds = None,
    json_file: JsonFile = Path("results/trials.json"),
    docs: Docs = False,
    anew: Anew = False,
    processes: Processes = 2,
    ray: Ray = None,
) -> None:
    """Compare `beamer` with variants of itself and with its plan, in the simulator."""
    config = read_config(config_file)
    config = config.model_copy(update={"seeds": seeds or config.seeds})
    numbers = range(config.first_seed, config.first_seed + config.seeds)
    cells = read_network_config().cells()
    for name in config.compared():
        if name not in cells:
            raise InputError("cells", name, nearest(name, cells))
    tasks = {
        name: {who: [_task(config, cells, name, who, seed) for seed in numbers] for who in variants}
        for name, variants in config.compared().items()
    }
    whole = not (seeds or config_file != CONFIG)
    run_study(COMMITTED, partial(TrialsStudy, config), tasks, StudyOutput(json_file, docs, anew, processes, ray, whole))


def _task(config: TrialsConfig, cells: Mapping[str, Cell], name: str, who: str, seed: int) -> Task:
    cell, variant = cells[name], config.variants[who]
    key = digest(cell.model_dump(), variant.model_dump(), config.queues, seed, code_digest("eval.trials.runs", variant.policy))
    return Task(key, f"{name}, {who}, seed {seed}", run_variant, (cell, variant, config.queues, seed))
