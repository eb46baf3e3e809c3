"""`python -m eval joint`: every pair of policies on every cell, paired by seed, tables and the sections of the docs."""

from functools import lru_cache, partial
from pathlib import Path

from beamer.gpu.policies import GPU_POLICIES
from beamer.network.policies import NETWORK_POLICIES
from beamer.yaml_files import read_yaml
from eval.grid import Anew, CellPart, ConfigFile, Docs, JsonFile, Processes, Ray, Seeds, StudyOutput, chosen, run_study
from eval.joint.report import COMMITTED, JointStudy
from eval.joint.runs import PLAIN, JointConfig, JointVariant, in_variant, run_pair
from eval.pairs import policies_of
from eval.resume import Task, digest, imported_sources, source_digest

CONFIG = Path(__file__).parent.parent / "configs" / "joint.yaml"
REGISTRIES = {"beamer.gpu.policies": GPU_POLICIES, "beamer.network.policies": NETWORK_POLICIES}


def read_config(path: Path = CONFIG) -> JointConfig:
    """Return a config file, checked. Raises `pydantic.ValidationError`."""
    return JointConfig.model_validate(read_yaml(path, "--config"))


def joint(
    config_file: ConfigFile = CONFIG,
    seeds: Seeds = None,
    cells: CellPart = None,
    json_file: JsonFile = Path("results/joint.json"),
    docs: Docs = False,
    anew: Anew = False,
    processes: Processes = 2,
    ray: Ray = None,
) -> None:
    """Compare pairs of a GPU policy and a network policy on searches that share GPUs and network, in the simulator."""
    config = read_config(config_file)
    config = config.model_copy(update={"seeds": seeds or config.seeds})
    numbers = range(config.first_seed, config.first_seed + config.seeds)
    names = chosen([*config.cells, *config.cells_of_parts], cells)
    tasks = {
        name: {who: [_task(config, name, who, seed) for seed in numbers] for who in config.plain_pairs(name)} for name in names
    }
    for table in config.tables:
        for name in (name for name in table.cells if name in names):
            for who in table.pairs:
                for called, variant in table.variants.items():
                    several = [_task(config, name, who, seed, called, variant) for seed in numbers]
                    tasks[name][in_variant(who, called)] = several
    whole = not (seeds or cells or config_file != CONFIG)
    run_study(COMMITTED, partial(JointStudy, config), tasks, StudyOutput(json_file, docs, anew, processes, ray, whole))


def _task(config: JointConfig, name: str, who: str, seed: int, called: str = "", variant: JointVariant = PLAIN) -> Task:
    cell = config.cell(name)
    gpu, network = policies_of(who)
    key = digest(cell.model_dump(), gpu, network, seed, variant.model_dump(), _code_digest(gpu, network))
    title = f"{name}, {in_variant(who, called) if called else who}, seed {seed}"
    return Task(key, title, run_pair, (cell, gpu, network, seed, variant))


@lru_cache
def _code_digest(gpu: str, network: str) -> str:
    """Return a digest of the sources that a run depends on: not those of other policies."""
    own = [GPU_POLICIES[gpu].__module__, NETWORK_POLICIES[network].__module__]
    needed = imported_sources(own, without=[*REGISTRIES])
    every = {registry[name].__module__ for registry in (GPU_POLICIES, NETWORK_POLICIES) for name in registry}
    return source_digest(["eval.joint.runs", *own], without=every - needed.keys())
