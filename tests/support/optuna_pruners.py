"""Pruners of Optuna that tests try, by name: each kind that has milestones, and two of them as short searches need them."""

from collections.abc import Callable
from typing import Any

import optuna

PRUNERS: dict[str, Callable[[], Any]] = {
    "halving": lambda: optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3),
    "late halving": lambda: optuna.pruners.SuccessiveHalvingPruner(
        min_resource=2, reduction_factor=2, min_early_stopping_rate=1
    ),
    "estimated halving": lambda: optuna.pruners.SuccessiveHalvingPruner(),
    "hyperband": lambda: optuna.pruners.HyperbandPruner(min_resource=1, max_resource=81, reduction_factor=3),
    "estimated hyperband": lambda: optuna.pruners.HyperbandPruner(min_resource=2, reduction_factor=2),
    "median": lambda: optuna.pruners.MedianPruner(n_startup_trials=1, n_warmup_steps=6, interval_steps=7),
    "percentile": lambda: optuna.pruners.PercentilePruner(30.0, n_startup_trials=1, n_warmup_steps=4, interval_steps=3),
    "threshold": lambda: optuna.pruners.ThresholdPruner(upper=1e6, n_warmup_steps=5, interval_steps=10),
    "patient": lambda: optuna.pruners.PatientPruner(optuna.pruners.SuccessiveHalvingPruner(2, 2), patience=0),
    "short hyperband": lambda: optuna.pruners.HyperbandPruner(min_resource=1, max_resource=9, reduction_factor=3),
    "early median": lambda: optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=2, interval_steps=3),
}
