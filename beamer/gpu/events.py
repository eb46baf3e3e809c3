"""What happens at the GPU level."""

from dataclasses import dataclass

from beamer.gpu.devices import Devices
from beamer.gpu.model import Costs, Grant, Node, Report, Request, Speed
from beamer.studies.events import Decision, Event, TrialEnded
from beamer.studies.model import Process
from beamer.studies.wakes import Wakes


@dataclass(frozen=True)
class NodesSeen(Event, wakes=Wakes.GPUS):
    """These nodes are up; replaces what was known before."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class TrialSampled(Event, wakes=Wakes.NOTHING):
    """A search's sampler has drawn the values of a trial, which is registered next.

    number: of the trial among those that the search has drawn, from 0. values: by parameter, as its program is given them.
    results_below: the draw knew the results of all trials with lower numbers than that; None: all results until then.
    """

    study: str
    trial: str
    number: int
    values: dict[str, str]
    results_below: int | None = None


@dataclass(frozen=True)
class GpusRequested(Event, wakes=Wakes.GPUS):
    """A trial asks for GPUs, for as long as it has a target that its processes have not come to."""

    trial: str
    request: Request


@dataclass(frozen=True)
class TrialReported(Event, wakes=Wakes.STANDING | Wakes.GPUS_PACE):
    """What a trial reports: its progress, its speed, what changing its GPUs took; each may be missing.

    The trial has progressed as far as the report says, as if `Progressed` had been taken.
    """

    trial: str
    report: Report | None = None
    speeds: tuple[Speed, ...] = ()
    costs: Costs | None = None


@dataclass(frozen=True)
class RunFinished(Event, wakes=Wakes.STANDING | Wakes.GPUS):
    """The processes of a trial have ended well at the step that they were started for, and hold no GPUs any more.

    The trial has progressed as far, and its attempt is over; it continues if it is given a farther target.
    """

    trial: str
    step: int


@dataclass(frozen=True)
class RunFailed(Event, wakes=Wakes.GPUS):
    """The processes of a trial have failed, or were given up, and hold no GPUs any more; the trial may be started again.

    launch: which of the engine's launches of the trial it was, so that each fails once; 0: they are not counted.
    """

    trial: str
    launch: int
    reason: str


@dataclass(frozen=True)
class ReportRefused(Event, wakes=Wakes.NOTHING):
    """What a trial printed as a report is none, and was left out; of several the first is kept. reason: what was expected."""

    trial: str
    reason: str


@dataclass(frozen=True)
class RanksSeen(Event, wakes=Wakes.NOTHING):
    """A trial's ranks run, or stand, under these processes: by node, the one that those there descend from.

    It is the worker of its node's first rank in the trial's present attempt, and in later ones on that node.
    """

    trial: str
    processes: dict[str, Process]


@dataclass(frozen=True)
class Allocated(Decision):
    """A GPU policy's decision.

    grants: the whole allocation, by job. devices: the GPUs that each of them means. Of a trial whose GPUs change another
    attempt starts; of one that loses them all, the attempt is paused.
    """

    grants: dict[str, Grant]
    devices: dict[str, Devices]


FREEING = (RunFinished, RunFailed, TrialEnded)
"""After these, GPUs that their trial was granted before are another's."""
