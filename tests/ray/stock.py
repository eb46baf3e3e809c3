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


class Descent(tune.Trainable):  # type: ignore[misc]
    """A trial whose loss falls at the rate of its configuration.

    fails_at: the step at which it fails, if any; `marker`, a file, says that it has, so that it does once.
    """

    def setup(self, config: dict[str, Any]) -> None:
        self.x = 1.0

    def step(self) -> dict[str, Any]:
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
    for _ in range(config["steps"]):
        time.sleep(STEP_S * (2 - config["rate"]))
        x *= 1 - config["rate"]
        tune.report({"loss": x})


def network(addresses: list[str]) -> Fabric:
    """Return a network whose hosts, h1 first, have these addresses, as the nodes of a Ray cluster do."""
    fabric = build(hosts=len(addresses))
    return replace(fabric, hosts=tuple(replace(host, ip=ip) for host, ip in zip(fabric.hosts, addresses, strict=True)))
