"""`python -m eval rates`: every mode of keeping an order on every cell, paired by seed, tables and the sections of the docs."""

from collections.abc import Mapping

from beamer.network.policies import NETWORK_POLICIES
from eval.grid import GridExperiment, GridRun, code_digest
from eval.network.cells import Cell
from eval.rates.report import RatesStudy
from eval.rates.runs import RatesConfig, run_mode


def _runs(config: RatesConfig, name: str, cell: Cell, seed: int) -> Mapping[str, GridRun]:
    return {
        who: GridRun(run_mode, (cell, policy, entry, seed), code_digest("eval.rates.runs", NETWORK_POLICIES[policy]))
        for who, (policy, entry) in config.entries.items()
    }


RATES = GridExperiment(
    "rates",
    "Compare classes, ceilings on senders and both with the ideal order, in the simulator.",
    "experiments/rates.md",
    RatesConfig,
    RatesStudy,
    lambda config: {name: config.cell(name) for name in config.cells},
    _runs,
)
rates = RATES.command()
