"""`python -m eval noise`: searches whose losses are noisy under GPU policies, paired by seed."""

from collections.abc import Mapping

from beamer.gpu.policies import GPU_POLICIES
from eval.grid import GridExperiment, GridRun, code_digest
from eval.noise.report import NoiseStudy
from eval.noise.runs import NoiseCell, NoiseConfig, run_contender


def _runs(config: NoiseConfig, name: str, cell: NoiseCell, seed: int) -> Mapping[str, GridRun]:
    return {
        who: GridRun(run_contender, (cell, contender, seed), code_digest("eval.noise.runs", GPU_POLICIES[contender.policy]))
        for who, contender in config.contenders.items()
    }


NOISE = GridExperiment(
    "noise",
    "Compare GPU policies on searches whose losses are noisy, in virtual time, with the losses of real training.",
    "experiments/gpu.md",
    NoiseConfig,
    NoiseStudy,
    lambda config: {name: config.cell(name) for name in config.cells},
    _runs,
)
noise = NOISE.command()
