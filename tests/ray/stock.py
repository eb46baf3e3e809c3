"""Trials of ordinary programs of Ray Tune, which know nothing of Beamer, and what a controller knows of their searches."""

import json
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ray import tune

from beamer.network.fabric import Fabric
from topologies.single import build

STEP_S = 0.05
PATIENCE_S = 60.0


class Descent(tune.Trainable):  # type: ignore[misc]
    """A trial whose loss falls at the rate of its configuration.

    fails_at: the step at which it fails, if any; `marker`, a file, says that it has, so that it does once.
    first: a rate and a file: trials of other rates wait until the first result of that rate's is known (`let_first_go`).
    """

    def setup(self, config: dict[str, Any]) -> None:
        self.x = 1.0

    def step(self) -> dict[str, Any]:
        let_first_go(self.config, self.iteration + 1)
        # The best is the fastest. HyperBand of Ray 2.60 hangs where a trial is still being saved as its bracket ends.
        time.sleep(STEP_S * (2 - self.config["rate"]))
        if self.iteration + 1 == self.config.get("fails_at"):
            with suppress(FileExistsError):
                Path(self.config["marker"]).touch(exist_ok=False)
                raise RuntimeError("broken")
        self.x *= 1 - self.config["rate"]
        return {"loss": self.x, "score": 1 - self.x}

    def save_checkpoint(self, folder: str) -> None:
        Path(folder, "x.json").write_text(json.dumps(self.x))

    def load_checkpoint(self, folder: str) -> None:
        self.x = json.loads(Path(folder, "x.json").read_text())

    def reset_config(self, config: dict[str, Any]) -> bool:
        self.config = config
        self.x = 1.0
        return True


def descend(config: dict[str, Any]) -> None:
    """Report a loss that falls at the rate of the configuration, `steps` times."""
    x = 1.0
    for step in range(1, config["steps"] + 1):
        let_first_go(config, step)
        time.sleep(STEP_S * (2 - config["rate"]))
        x *= 1 - config["rate"]
        tune.report({"loss": x})


def let_first_go(config: dict[str, Any], step: int) -> None:
    """Wait at the first step until Tune has judged that of the trial that is to be first, as it then begins its second.

    Whom ASHA stops depends on the order of the results, and where each is better than those before it, it stops none.
    """
    if "first" not in config:
        return
    rate, path = config["first"]
    if config["rate"] == rate and step == 2:
        Path(path).touch()
    deadline = time.monotonic() + PATIENCE_S
    while config["rate"] != rate and step == 1 and not Path(path).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the trial of rate {rate} did not begin its second step within {PATIENCE_S} s")
        time.sleep(0.01)


def network(addresses: list[str]) -> Fabric:
    """Return a network whose hosts, h1 first, have these addresses, as the nodes of a Ray cluster do."""
    fabric = build(hosts=len(addresses))
    return replace(fabric, hosts=tuple(replace(host, ip=ip) for host, ip in zip(fabric.hosts, addresses, strict=True)))
