"""A search of Ray Tune at a controller, as a program of its own: `python -m tests.ray.program JSON`, see `main`."""

import fcntl
import json
import logging
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune import FailureConfig, ResultGrid, RunConfig, TuneConfig, Tuner

from beamer.engines.ray_tune.scheduler import BeamerScheduler
from beamer.studies.model import Rung
from tests.ray.searches import Trial

RATES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4)
RUNGS = (Rung("r0", 6, 10), Rung("r1", 3, 20), Rung("r2", 1, 30))


class LockingTrial(Trial):
    """A trial that holds a lock on its GPUs during a step, and says so where another program has it.

    Of its configuration: locks: their directory. hosts: of the controller's network, by the address of their Ray node.
    """

    def step(self) -> dict[str, Any]:
        assert not self.config["shared"] or all(os.environ[name] for name in ("BEAMER_URL", "BEAMER_RUN"))
        host = self.config["hosts"][ray.util.get_node_ip_address()]
        with ExitStack() as held:
            for index in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
                lock = held.enter_context(open(f"{self.config['locks']}/{host}-{index}", "a"))
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    with open(f"{self.config['locks']}/violations", "a") as violations:
                        violations.write(f"{self.trial_id} on {host}-{index}\n")
            return super().step()


def search(
    folder: Path,
    url: str | None,
    study: str,
    hosts: dict[str, str],
    locks: Path,
    pause_s: float,
    restore: bool = False,
    reuse: bool = True,
) -> ResultGrid:
    """Run a search to its end, or go on with it. url: of the controller, None for none."""
    journal = f"sqlite:///{folder / 'journal.db'}"
    trainable = tune.with_resources(LockingTrial, {"cpu": 1, "gpu": 1})
    if restore:
        return Tuner.restore(str(folder / "results" / study), trainable, restart_errored=True).fit()
    (folder / "lines").mkdir(parents=True)
    return Tuner(
        trainable,
        param_space={
            "rate": tune.grid_search(list(RATES)),
            "lines": str(folder / "lines"),
            "pause_s": pause_s,
            "hosts": hosts,
            "locks": str(locks),
            "shared": url is not None,
        },
        tune_config=TuneConfig(
            scheduler=BeamerScheduler(rungs=RUNGS, study=study, journal=journal, controller=url, hosts=hosts if url else None),
            reuse_actors=reuse,
        ),
        run_config=RunConfig(
            name=study,
            storage_path=str(folder / "results"),
            verbose=0,
            failure_config=FailureConfig(max_failures=-1),
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
        ),
    ).fit()


def main(address: str, root: str, **options: Any) -> None:
    """Connect to the Ray cluster at `address` and write to `folder`/outcome how far each rate has come."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    ray.init(
        address=address,
        _node_ip_address="127.0.0.2",
        log_to_driver=False,
        logging_level="warning",
        runtime_env={"env_vars": {"PYTHONPATH": root}},
    )
    folder, locks = Path(options.pop("folder")), Path(options.pop("locks"))
    begun_s = time.monotonic()
    results = search(folder, locks=locks, **options)
    # Tune does not know the configuration of a trial that was stopped before its first result
    outcome = {str(one.config["rate"]): one.metrics.get("training_iteration", 0) for one in results if one.config}
    (folder / "outcome").write_text(json.dumps(outcome))
    print(f"{time.monotonic() - begun_s:.1f} s", outcome)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
