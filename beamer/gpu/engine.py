"""The seam of engines: what the GPU scheduler asks of whatever runs the training processes.

An engine makes no decisions: it starts, suspends, resumes, resizes and stops jobs as it is asked to, and reports what it
observes. Calls are idempotent: asked for what holds already, an engine does nothing. None blocks for longer than its time-out;
what takes longer (a job on its way to an iteration boundary) is accepted, continues, and shows in `report`.

What a call does depends on the state that the job is in:

             unknown    PREPARING, PREPARED  RUNNING       STOPPING      SUSPENDED              PARKED      FINISHED, FAILED
    prepare  PREPARING  prepared there       -             -             -                      PREPARING   -
    start    runs       runs there           -             runs there    runs there (see below) runs there  -
    suspend  error      -                    SUSPENDED     waits         -                      -           -
    resume   error      RUNNING              -             -             RUNNING                error       -
    resize   error      runs there           runs there    runs there    runs there, restarted  runs there  -
    (None)   error      PARKED               PARKED        PARKED        PARKED                 -           -
    stop     -          forgotten            forgotten     forgotten     forgotten              forgotten   forgotten
    (time)   -          PREPARED, or PARKED  -             -             PARKED (see below)     -           -

"-": nothing; "error": `EngineError`; "waits": for the job's next state, and does what it does there; "runs there": the job
runs on the placement of the call, from its checkpoint if it has one, at once if it is RUNNING there already.
A program takes seconds until it computes: it imports its packages, and a GPU that is granted to it meanwhile stands idle. An
engine that prepares (`Engine.prepares`) starts a job's processes ahead, while others have the GPUs of their placement. They are
held before they use these: at their first line of output, or when they open a GPU's device. A job that is started where it was
prepared is let go; anywhere else it is launched anew, and nothing is lost. The engine may park it, as others need its memory.
Other engines do nothing upon `prepare`.
A suspended job that is started runs on that placement afterwards, too: resumed if the placement is the one that it has,
otherwise from its checkpoint. Where an engine can move its memory to these GPUs, it is resumed there, upon `resize` as well.
An engine that does not keep memory (`Engine.keeps_memory`) parks a job that is suspended and lets `resume` run one that is
PARKED, or STOPPING to be, on the GPUs that it had last.
A job of several processes does not bear to be suspended for ever: in a collective they wait for each other with a time-out,
which runs on. An engine that keeps memory therefore parks a suspended job before that (`LaunchSpec.collective_timeout_s` of the
local one), without being asked: it is STOPPING, on the GPUs that hold its memory, until it has come to an iteration boundary,
then PARKED. From then on its `Costs.resume_s` is what a restart takes.
A job that has finished and was stopped can be started again, to run farther: it continues from the checkpoint that it wrote at
its end, and ends where its description says now.
A stopped job is forgotten, and its GPUs are free, when `stop` returns. An engine that cannot end processes between two
iterations (`Engine.stops_at_once`) forgets the job all the same, and its GPUs are free at its next iteration boundary: a job
that is started on them meanwhile is RUNNING and waits for them. `beamer.testing.engines` checks all of this.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from beamer.errors import EngineError, InputError, nearest
from beamer.gpu.devices import Devices
from beamer.gpu.model import Costs, Node, Report, Speed
from beamer.studies.model import Process


class RunState(StrEnum):
    """What a job's processes do.

    A job that is not known to the engine has no state. STOPPING: on its way to an iteration boundary, to leave its GPUs.
    PREPARING: its processes start ahead, on the processors alone. PREPARED: they are held before they use a GPU.
    SUSPENDED: its processes are frozen and keep their memory. PARKED: they are gone, its checkpoint remains.
    FINISHED, FAILED: they have ended by themselves, at their target or not; the job is left as it is until it is stopped.
    """

    PREPARING = "preparing"
    PREPARED = "prepared"
    RUNNING = "running"
    STOPPING = "stopping"
    SUSPENDED = "suspended"
    PARKED = "parked"
    FINISHED = "finished"
    FAILED = "failed"

    @property
    def is_finished(self) -> bool:
        """Whether the job has ended, well or not."""
        return self in (RunState.FINISHED, RunState.FAILED)

    @property
    def is_computing(self) -> bool:
        """Whether its processes use their GPUs."""
        return self in (RunState.RUNNING, RunState.STOPPING)

    @property
    def is_ahead(self) -> bool:
        """Whether its processes were started ahead, and have not been let go."""
        return self in (RunState.PREPARING, RunState.PREPARED)

    @property
    def has_processes(self) -> bool:
        """Whether it has processes, frozen ones included."""
        return self.is_computing or self.is_ahead or self is RunState.SUSPENDED


@dataclass(frozen=True)
class Placement:
    """The GPUs that a job runs on. servers: nodes of its parameter servers, a name for each. batch_size: 0: as requested."""

    devices: Devices
    servers: tuple[str, ...] = ()
    batch_size: int = 0


@dataclass(frozen=True)
class Observed:
    """What an engine observes of a job."""

    state: RunState
    """What its processes do."""
    placement: Placement | None = None
    """The GPUs that its processes hold, compute on, have memory on or were prepared for; None where they are gone."""
    reports: tuple[Report, ...] = ()
    """Reports since the last call of `Engine.report`, each delivered once.

    Of a job that has ended, the last report is repeated until the job is stopped, as the caller may have died with it.
    """
    speeds: tuple[Speed, ...] = ()
    """Speeds since the last call of `Engine.report`, each delivered once."""
    costs: Costs | None = None
    """What changes of its GPUs took since the last call of `Engine.report`; None: nothing new."""
    exit: str = ""
    """Why it failed, with what its processes printed last; of others, what was lost or does not respond."""
    target: int = 0
    """The iteration, from the job's beginning, after which its processes end by themselves; 0: not known."""
    launch: int = 0
    """Which of its launches this is about, counted from 1; 0: they are not counted."""
    ran_s: float = 0.0
    """Seconds for which its processes have run since it was started, suspended and parked time left out; 0: not known."""
    quiet_s: float = 0.0
    """Seconds for which none of them has printed anything, suspended and parked time left out; 0: not known."""
    refused: str = ""
    """The first line that they printed as a report and that is none, with what was expected."""
    processes: Mapping[str, Process] | None = None
    """By node, the process whose descendants are the job's ranks there; None: not known."""


def check_placement(call: str, placement: Placement, nodes: Mapping[str, Node]) -> None:
    """Check that a job can be placed there. call: job and call, for messages. nodes: those that the engine has, by name.

    Raises `InputError` for a placement that is none anywhere: without a GPU, with one twice, with a negative index;
    `EngineError` for nodes or GPUs that the engine does not have, or not any more: they may come back.
    """
    devices = placement.devices
    if not devices or len(set(devices)) != len(devices) or any(index < 0 for _, index in devices):
        raise InputError(f"{call}: devices", devices, "at least one GPU, none twice, indices from 0")
    for name, index in devices:
        if name not in nodes:
            raise EngineError(f"{call}: there is no node {name!r}, expected {nearest(name, nodes)}")
        if index >= nodes[name].gpus:
            raise EngineError(f"{call}: there is no GPU {index} on {name}, expected 0 to {nodes[name].gpus - 1}")


class Engine(ABC):
    """Something that runs training jobs.

    Every call but `report` raises `EngineError` for a job that it cannot serve or when `timeout_s` is over; it may be repeated.
    `start` and `resize` check placements as `check_placement` does, before anything is changed.
    keeps_memory: whether a suspended job keeps its memory, and is resumed from there; otherwise it is parked.
    stops_at_once: whether the GPUs of a stopped job are free when `stop` returns; otherwise at its next iteration boundary.
    prepares: whether jobs can be started ahead of their turn on GPUs.
    """

    keeps_memory: bool = True
    stops_at_once: bool = True
    prepares: bool = False

    @abstractmethod
    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes that are up."""

    @abstractmethod
    def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        """Run a job on these GPUs, from its checkpoint if it has one. One that runs, wherever, or has ended is left as it is.

        A suspended one runs on these GPUs, too: resumed if they are its own or its memory can be moved there, otherwise from
        its checkpoint.
        Raises `EngineError` for a job that the engine has no description of.
        """

    def prepare(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:  # noqa: B027  # Most engines cannot.
        """Start a job's processes ahead, to be held before they use these GPUs; nothing where the engine does not prepare.

        One that has processes that were not started ahead, or has ended, is left as it is.
        """

    def may_prepare(self, placement: Placement) -> bool:
        """Return whether processors and memory there are free enough for one more job to be started ahead."""
        return False

    @abstractmethod
    def suspend(self, job: str, timeout_s: float = 5.0) -> None:
        """Freeze all of a running job's processes, or park the job where memory is not kept."""

    @abstractmethod
    def resume(self, job: str, timeout_s: float = 5.0) -> None:
        """Let a suspended job's processes continue on the GPUs that they have; where memory is not kept, start it there again.

        Raises `EngineError` for a parked job where memory is kept: it has none to continue from.
        """

    @abstractmethod
    def resize(self, job: str, placement: Placement | None, timeout_s: float = 5.0) -> None:
        """Stop a job at an iteration boundary and run it from its checkpoint on these GPUs; None: park it.

        A running job that has these GPUs already is left as it is, as is one that has ended.
        """

    @abstractmethod
    def stop(self, job: str, timeout_s: float = 5.0) -> None:
        """End a job for good and forget it; its GPUs are free when `stops_at_once` says. An unknown job is no error."""

    @abstractmethod
    def report(self) -> Mapping[str, Observed]:
        """Return every job that the engine knows, ended ones until they are stopped."""

    def close(self) -> None:  # noqa: B027  # Most engines have nothing to release.
        """Release what the engine itself holds; jobs continue."""
