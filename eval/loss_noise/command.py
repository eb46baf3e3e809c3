"""`python -m eval loss-noise`: trains small models, and measures how much their losses deviate from their trend."""

from collections.abc import Mapping

from eval.grid import GridExperiment, GridRun, code_digest
from eval.loss_noise.report import LossNoiseStudy
from eval.loss_noise.runs import LossNoiseCell, LossNoiseConfig, run_rate


def _runs(config: LossNoiseConfig, name: str, cell: LossNoiseCell, seed: int) -> Mapping[str, GridRun]:
    return {f"rate {rate:g}": GridRun(run_rate, (cell, rate, seed), code_digest("eval.loss_noise.runs")) for rate in cell.rates}


LOSS_NOISE = GridExperiment(
    "loss-noise",
    "Measure how much the losses of models that train deviate from their trend, on fresh samples and on finite data.",
    "experiments/loss-noise.md",
    LossNoiseConfig,
    LossNoiseStudy,
    lambda config: {name: config.cell(name) for name in config.cells},
    _runs,
)
loss_noise = LOSS_NOISE.command()
