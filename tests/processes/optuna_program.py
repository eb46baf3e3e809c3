"""A search by Optuna, as a program of its own: `python -m tests.processes.optuna_program JSON`, see `main`."""

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import optuna

from beamer.client import membership
from beamer.integrations.optuna import BeamerCallback
from tests.support.optuna_pruners import PRUNERS

STEPS = 9


def main(options: dict[str, Any]) -> None:
    """Take part in a study.

    storage: its URL. study: its name. pruner: one of `PRUNERS`. trials: how many. heartbeat: whether the storage has one.
    together: how many trials have to be there before one goes on. hold: a file in whose absence the trials that this process
    starts go on; `hold.held` is there once one is held. lease_s: that of members.
    """
    membership.LEASE_S = options.get("lease_s", membership.LEASE_S)
    storage = optuna.storages.RDBStorage(
        options["storage"],
        heartbeat_interval=1 if options.get("heartbeat") else None,
        grace_period=2 if options.get("heartbeat") else None,
        heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=1),
    )
    pruner = PRUNERS[options["pruner"]]()
    study = optuna.create_study(study_name=options["study"], storage=storage, pruner=pruner, load_if_exists=True)
    hold = Path(options["hold"]) if options.get("hold") else None

    def objective(trial: optuna.Trial) -> float:
        rate = trial.suggest_float("rate", 0.0, 1.0)
        while len(study.get_trials(deepcopy=False)) < options.get("together", 0):
            time.sleep(0.01)
        for step in range(1, STEPS + 1):
            trial.report(rate + 1 / step, step)
            while hold is not None and hold.exists():
                hold.with_suffix(".held").touch()
                time.sleep(0.01)
            if trial.should_prune():
                raise optuna.TrialPruned
        return rate

    study.optimize(objective, n_trials=options["trials"], callbacks=[BeamerCallback(study)])


if __name__ == "__main__":
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    main(json.loads(sys.argv[1]))
