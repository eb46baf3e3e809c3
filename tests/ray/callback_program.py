"""A search with a `BeamerCallback` as a program of its own: `python -m tests.ray.callback_program RAY URL FOLDER`."""

import sys
from pathlib import Path

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

from beamer.integrations.ray_tune import BeamerCallback
from tests.ray.stock import Descent
from tests.support.checkout import ROOT


def main(address: str, url: str, folder: str) -> None:
    """Run a search that takes long."""
    ray.init(
        address=address,
        _node_ip_address="127.0.0.2",
        log_to_driver=False,
        logging_level="warning",
        runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
    )
    tune.Tuner(
        tune.with_resources(Descent, {"cpu": 1, "gpu": 1}),
        param_space={"rate": tune.grid_search([0.1, 0.2])},
        tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=ASHAScheduler(max_t=1000, grace_period=500)),
        run_config=tune.RunConfig(
            name="search", storage_path=str(Path(folder) / "results"), verbose=0, callbacks=[BeamerCallback(url=url)]
        ),
    ).fit()


if __name__ == "__main__":
    main(*sys.argv[1:])
