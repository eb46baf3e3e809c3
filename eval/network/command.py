"""`python -m eval network`: all contenders on every cell, paired by seed, tables, pictures and the sections of the docs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError
from beamer.network.policies import NETWORK_POLICIES
from eval import grid
from eval.grid import GridExperiment, GridOutput, GridRun, code_digest
from eval.network.cells import FAIR, Cell, NetworkConfig
from eval.network.report import BOUND, Study
from eval.network.runs import run_bound, run_contender
from eval.resume import source_digest


def _runs(config: NetworkConfig, name: str, cell: Cell, seed: int) -> Mapping[str, GridRun]:
    """Return the runs of the contenders that are run in a cell with a seed, and that of its bound."""
    found = {}
    for contender in config.contenders:
        if not contender.runs_in(cell) or seed - config.first_seed >= (contender.most_seeds or config.seeds):
            continue
        code = code_digest("eval.network.runs", NETWORK_POLICIES[contender.policy])
        parts = (cell, contender.run_parameters, config.queues, seed)
        found[contender.name] = GridRun(run_contender, (cell, contender, config.queues, seed), code, parts)
    code = source_digest(["eval.network.cells", "beamer.bounds.scenario"])
    return found | {BOUND: GridRun(run_bound, (cell, seed), code)}


NETWORK = GridExperiment(
    "network",
    "Compare network policies with each other and with the best lower bound, in the simulator.",
    "experiments/network.md",
    NetworkConfig,
    Study,
    NetworkConfig.cells,
    _runs,
)


def network(
    config_file: grid.ConfigFile = NETWORK.config_file,
    seeds: grid.Seeds = None,
    cells: grid.CellPart = None,
    policies: Annotated[
        str | None, typer.Option(help="Only contenders whose name contains this, the reference and fair.")
    ] = None,
    json_file: grid.JsonFile = NETWORK.json_file,
    images: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("results"),
    docs: grid.Docs = False,
    anew: grid.Anew = False,
    processes: grid.Processes = 2,
    ray: grid.Ray = None,
) -> None:
    """Compare network policies with each other and with the best lower bound, in the simulator."""
    config = _reduced(NETWORK.read_config(config_file, seeds), policies)
    whole = not (seeds or cells or policies or config_file != NETWORK.config_file)
    study = NETWORK.run(config, cells, GridOutput(json_file, docs, anew, processes, ray, whole))
    if not docs:
        typer.echo(f"pictures: {', '.join(map(str, NETWORK.committed.draw(study, images)))}")


def _reduced(config: NetworkConfig, policies: str | None) -> NetworkConfig:
    names = [contender.name for contender in config.contenders]
    if policies is not None and not any(policies in name for name in names):
        raise InputError("--policies", policies, f"a part of one of {', '.join(names)}")
    kept = [c for c in config.contenders if policies is None or policies in c.name or c.name in (config.reference, FAIR)]
    return config.model_copy(update={"contenders": tuple(kept)})
