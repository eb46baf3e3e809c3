"""How a run differs from what policies are told of it."""

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from beamer.errors import InputError
from beamer.network.fabric import Fabric
from beamer.sim.network_level import NetworkLevel
from beamer.sim.networked_engine import NetworkedEngine
from beamer.studies.model import split_key

FailedCable = tuple[float, str, str]
"""When it fails, and the nodes that it connects."""


@dataclass(frozen=True)
class Disturbances:
    """What is wrong or missing.

    bytes_off: factor by which each search declares too many or too few bytes, which of both at random. reports_lost: share of
    the reports of progress, at random. cable: that fails and stays dead.
    """

    bytes_off: float = 1.0
    reports_lost: float = 0.0
    cable: FailedCable | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.bytes_off < float("inf"):
            raise InputError("bytes_off", self.bytes_off, "a finite factor of at least 1")
        if not 0 <= self.reports_lost < 1:
            raise InputError("reports_lost", self.reports_lost, "a share of at least 0, below 1")
        if self.cable and not 0 <= self.cable[0] < float("inf"):
            raise InputError("cable", self.cable[0], "seconds after the start, of at least 0")

    def check_cable(self, fabric: Fabric) -> None:
        """Check that what fails is there. Raises `InputError`."""
        if self.cable and all({link.src, link.dst} != {*self.cable[1:]} for link in fabric.links):
            raise InputError("cable", self.cable[1:], "two nodes with a cable between them")

    def sent_bytes(self, study: str, declared: int, seed: int) -> int:
        """Return what a trial of a study sends where it declares so many bytes."""
        too_many = Random(f"{seed}/bytes/{study}").random() < 0.5
        return round(declared / self.bytes_off if too_many else declared * self.bytes_off)


class DisturbedEngine(NetworkedEngine):
    """A simulated engine under disturbances. seed: of what is drawn. arguments: of `NetworkedEngine`."""

    def __init__(self, level: NetworkLevel, *arguments: Any, disturbances: Disturbances, seed: int) -> None:
        super().__init__(level, *arguments)
        self._disturbances = disturbances
        self._seed = seed
        self._losses = Random(f"{seed}/reports")
        if disturbances.cable is not None:
            at_s, one, other = disturbances.cable
            level.after(at_s, partial(level.reroute, {(one, other), (other, one)}))

    def sent_bytes(self, job: str, declared: int) -> int:
        """Return what a job sends where its search declares another number of bytes."""
        return self._disturbances.sent_bytes(split_key(job)[0], declared, self._seed)

    def loses_report(self) -> bool:
        """Draw whether nobody hears of a report."""
        return self._losses.random() < self._disturbances.reports_lost
