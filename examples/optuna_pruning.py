"""A stock search by Optuna, without Beamer: docs/tuners/optuna.md shows the two lines that it takes.

python examples/optuna_pruning.py
"""

import optuna


def objective(trial: optuna.Trial) -> float:
    """Return the loss of a training with a drawn rate."""
    rate = trial.suggest_float("rate", 1e-3, 0.5, log=True)
    x = 1.0
    for step in range(1, 28):
        x -= rate * 2 * x  # stands for an epoch of training
        trial.report(x * x, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return x * x


optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(study_name="descent", pruner=optuna.pruners.HyperbandPruner(max_resource=27))
study.optimize(objective, n_trials=20)
print(f"{len(study.trials)} trials, the best has {study.best_value:.2g}")
