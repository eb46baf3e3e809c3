"""What happens at the GPU level."""

from dataclasses import dataclass

from beamer.gpu.devices import Devices
from beamer.gpu.model import Costs, Grant, Node, Report, Request, Speed
from beamer.studies.events import Decision, Event


@dataclass(frozen=True)
class NodesSeen(Event):
    """These nodes are up; replaces what was known before."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class JobSubmitted(Event):
    """A job of an open stage asks for GPUs."""

    study: str
    stage: str
    job: str
    request: Request


@dataclass(frozen=True)
class JobReported(Event):
    """What a submitted job reports: its progress, its speed, what changing its GPUs took; each may be missing."""

    job: str
    report: Report | None = None
    speeds: tuple[Speed, ...] = ()
    costs: Costs | None = None


@dataclass(frozen=True)
class Allocated(Decision):
    """A GPU policy's decision.

    grants: the whole allocation, by job. devices: the GPUs that each of them means.
    """

    grants: dict[str, Grant]
    devices: dict[str, Devices]
