"""A search by `BeamerScheduler` on nodes without GPUs, as a program of its own: `python -m tests.ray.cpu_program FOLDER`.

A cluster of its own is needed, to which no other driver of the process is connected.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from eval.ray_cluster import LocalRayCluster
from tests.support.checkout import ROOT

QUALITIES = (0.9, 0.3, 0.1, 0.5)


def train(config: dict[str, Any]) -> None:
    """Report an accuracy that rises, most for the best quality, and which CPUs the trial holds."""
    from ray import tune

    for i in range(1, 17):
        time.sleep(0.05)
        held = tune.get_context().get_trial_resources().required_resources
        tune.report({"accuracy": config["quality"] * i / 16, "cpus": held["CPU"], "gpus": held.get("GPU", 0)})


def main(folder: str) -> None:
    """Write how far each quality has come to `folder`/outcome."""
    with LocalRayCluster((0, 0), cpus=2, path=ROOT):
        from ray import tune

        from beamer.engines.ray_tune.scheduler import BeamerScheduler
        from beamer.studies.asynchronous_halving import AsynchronousHalving

        results = tune.Tuner(
            tune.with_resources(train, {"cpu": 2}),
            param_space={"quality": tune.grid_search(list(QUALITIES))},
            tune_config=tune.TuneConfig(
                metric="accuracy",
                mode="max",
                scheduler=BeamerScheduler("fifo", rungs=AsynchronousHalving(iterations=16), journal=f"sqlite:///{folder}/j.db"),
            ),
            run_config=tune.RunConfig(name="cpus", storage_path=f"{folder}/results", verbose=0),
        ).fit()
        last = [(one.config["quality"], {key: one.metrics[key] for key in KEYS}) for one in results]
    Path(folder, "outcome").write_text(json.dumps(last))


KEYS = ("training_iteration", "cpus", "gpus")

if __name__ == "__main__":
    main(sys.argv[1])
