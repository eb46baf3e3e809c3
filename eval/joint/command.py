"""`python -m eval joint`: every pair of policies on every cell, paired by seed, tables and the sections of the docs."""

from collections.abc import Mapping

from beamer.gpu.policies import GPU_POLICIES
from beamer.network.policies import NETWORK_POLICIES
from eval.grid import GridExperiment, GridRun, code_digest
from eval.joint.report import JointStudy
from eval.joint.runs import PLAIN, JointCell, JointConfig, JointVariant, in_variant, run_pair
from eval.pairs import policies_of


def _runs(config: JointConfig, name: str, cell: JointCell, seed: int) -> Mapping[str, GridRun]:
    """Return the runs of pairs as they are, then those in variants."""
    found = {who: _run(cell, who, seed) for who in config.plain_pairs(name)}
    for table in config.tables:
        for who in table.pairs if name in table.cells else ():
            for called, variant in table.variants.items():
                found[in_variant(who, called)] = _run(cell, who, seed, variant)
    return found


def _run(cell: JointCell, who: str, seed: int, variant: JointVariant = PLAIN) -> GridRun:
    gpu, network = policies_of(who)
    code = code_digest("eval.joint.runs", GPU_POLICIES[gpu], NETWORK_POLICIES[network])
    return GridRun(run_pair, (cell, gpu, network, seed, variant), code)


JOINT = GridExperiment(
    "joint",
    "Compare pairs of a GPU policy and a network policy on searches that share GPUs and network, in the simulator.",
    "experiments/joint.md",
    JointConfig,
    JointStudy,
    lambda config: {name: config.cell(name) for name in (*config.cells, *config.cells_of_parts)},
    _runs,
)
joint = JOINT.command()
