"""`python -m eval asynchronous`: every policy on every cell, paired by seed, tables and the sections of the docs."""

from collections.abc import Mapping

from beamer.network.policies import NETWORK_POLICIES
from eval.asynchronous.report import AsynchronousStudy
from eval.asynchronous.runs import AsynchronousCell, AsynchronousConfig, run_policy
from eval.grid import GridExperiment, GridRun, code_digest


def _runs(config: AsynchronousConfig, name: str, cell: AsynchronousCell, seed: int) -> Mapping[str, GridRun]:
    return {
        policy: GridRun(
            run_policy,
            (cell, policy, config.queues, seed),
            code_digest("eval.asynchronous.runs", NETWORK_POLICIES[policy]),
        )
        for policy in config.policies
    }


ASYNCHRONOUS = GridExperiment(
    "asynchronous",
    "Compare network policies on searches without barriers, in the simulator.",
    "experiments/asynchronous.md",
    AsynchronousConfig,
    AsynchronousStudy,
    lambda config: {name: config.cell(name) for name in config.cells},
    _runs,
)
asynchronous = ASYNCHRONOUS.command()
