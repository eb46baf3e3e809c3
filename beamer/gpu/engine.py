"""The seam of engines: what the GPU scheduler asks of whatever runs the training processes.

An engine holds no opinion: it starts, suspends, resumes, resizes and stops the jobs it is told to, and reports what it sees.
Every call may be repeated: asked for what holds already, it does nothing. None blocks for longer than its time-out; what takes
longer (a job on its way to an iteration boundary) is accepted, goes on, and shows in `report`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from beamer.gpu.devices import Devices
from beamer.gpu.model import Costs, Node, Report, Speed


class RunState(StrEnum):
    """What a job's processes do.

    A job that is not known to the engine has no state. STOPPING: on its way to an iteration boundary, to leave its GPUs.
    SUSPENDED: its processes stand still with their memory. PARKED: they are gone, its checkpoint remains.
    """

    RUNNING = "running"
    STOPPING = "stopping"
    SUSPENDED = "suspended"
    PARKED = "parked"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True)
class Placement:
    """The GPUs that a job runs on. servers: nodes of its parameter servers, a name for each. batch_size: 0: as requested."""

    devices: Devices
    servers: tuple[str, ...] = ()
    batch_size: int = 0


@dataclass(frozen=True)
class Observed:
    """What an engine sees of a job.

    placement: the GPUs that its processes hold, compute on or have memory on; None where they are gone.
    reports, speeds: what it has said since the last call of `Engine.report`; of a job that has ended, its last report stays,
    as the caller may have died with it. exit: what a failed process said last.
    """

    state: RunState
    placement: Placement | None = None
    reports: tuple[Report, ...] = ()
    speeds: tuple[Speed, ...] = ()
    costs: Costs | None = None
    exit: str = ""

    @property
    def news(self) -> bool:
        """Whether it says more than where the job is."""
        return bool(self.reports or self.speeds or self.costs) or self.state in (RunState.FINISHED, RunState.FAILED)


class Engine(ABC):
    """Something that runs training jobs.

    Every call but `report` raises `EngineError` for a job it cannot serve or when `timeout_s` is over; it may be repeated.
    keeps_memory: whether a suspended job keeps its memory, so that only the same GPUs can resume it; otherwise it is parked.
    """

    keeps_memory: bool = True

    @abstractmethod
    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes that are up."""

    @abstractmethod
    def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        """Run a job on these GPUs, from its checkpoint if it has one. A job that runs is left as it is."""

    @abstractmethod
    def suspend(self, job: str, timeout_s: float = 5.0) -> None:
        """Make a job's processes stand still, all of them, or park the job where memory is not kept."""

    @abstractmethod
    def resume(self, job: str, timeout_s: float = 5.0) -> None:
        """Let a suspended job's processes go on, on the GPUs that they have."""

    @abstractmethod
    def resize(self, job: str, placement: Placement | None, timeout_s: float = 5.0) -> None:
        """Stop a job at an iteration boundary and run it from its checkpoint on these GPUs; None: park it."""

    @abstractmethod
    def stop(self, job: str, timeout_s: float = 5.0) -> None:
        """End a job for good; its GPUs are free when this returns."""

    @abstractmethod
    def report(self) -> Mapping[str, Observed]:
        """Return every job that the engine knows, ended ones until they are stopped."""

    def close(self) -> None:  # noqa: B027  # most have nothing to let go of
        """Let go of the engine; jobs go on."""
