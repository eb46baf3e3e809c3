"""`python -m eval trials`: variants of `beamer` on some cells of the network study, tables and the sections of the docs."""

from collections.abc import Mapping

from beamer.errors import InputError, nearest
from beamer.network.policies import NETWORK_POLICIES
from eval.grid import GridExperiment, GridRun, code_digest
from eval.network.cells import Cell
from eval.network.command import NETWORK
from eval.trials.report import TrialsStudy
from eval.trials.runs import TrialsConfig, run_variant


def _cells(config: TrialsConfig) -> dict[str, Cell]:
    """Return the cells on which variants are compared. Raises `InputError` for one that the study of policies does not have."""
    cells = NETWORK.read_config().cells()
    for name in config.compared():
        if name not in cells:
            raise InputError("cells", name, nearest(name, cells))
    return {name: cells[name] for name in config.compared()}


def _runs(config: TrialsConfig, name: str, cell: Cell, seed: int) -> Mapping[str, GridRun]:
    variants = {who: config.variants[who] for who in config.compared()[name]}
    return {
        who: GridRun(
            run_variant,
            (cell, variant, config.queues, seed),
            code_digest("eval.trials.runs", NETWORK_POLICIES[variant.policy]),
        )
        for who, variant in variants.items()
    }


TRIALS = GridExperiment(
    "trials",
    "Compare `beamer` with variants of itself and with its plan, in the simulator.",
    "experiments/network.md",
    TrialsConfig,
    TrialsStudy,
    _cells,
    _runs,
    takes_cells=False,
)
trials = TRIALS.command()
