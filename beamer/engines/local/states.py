"""The states of a job on the local engine, per layer, and which of one layer means which of the next.

    RanksState   what its processes do on one node     the supervisor there
    Phase        how far the job has come              the engine's record
    RunState     what the scheduler is shown           `beamer.gpu.engine`

`PHASE_AFTER` leads from the first to the second, `beamer.engines.local.record.RUN_STATE` from there to the third. Only the
standard library is imported here.
"""

from collections.abc import Mapping
from enum import StrEnum

ORPHANED_S = 2.0
"""How long ranks that are to stop get once one has died of the stop signal: without it they reach no common boundary."""


class RanksState(StrEnum):
    """What the ranks of a job do on one node.

    IDLE: none has been launched. STOPPING: on their way to an iteration boundary. STOPPED: they have stopped there, or were
    killed on the way. FINISHED: all have exited with 0 by themselves. FAILED: one has not. LOST: their supervisor died, and
    they with it. FORGOTTEN: the job has left the node.
    """

    IDLE = "idle"
    RUNNING = "running"
    SUSPENDED = "suspended"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    LOST = "lost"
    FORGOTTEN = "forgotten"

    @property
    def is_live(self) -> bool:
        """Whether there are processes."""
        return self in (RanksState.RUNNING, RanksState.SUSPENDED, RanksState.STOPPING)

    @property
    def is_finished(self) -> bool:
        """Whether they have ended by themselves, well or not."""
        return self in (RanksState.FINISHED, RanksState.FAILED)


class MemoryPlace(StrEnum):
    """Where the memory is that a run's ranks have on the GPUs of a node.

    TO_HOST, TO_GPU: on its way, which ends in one of the other two.
    """

    GPU = "gpu"
    TO_HOST = "to host"
    HOST = "host"
    TO_GPU = "to gpu"


class Phase(StrEnum):
    """How far a job has come.

    LAUNCHING: its run is to be launched on its placement, all before it are gone. LAUNCHED: it has been. STOPPING: it is to
    stop at an iteration boundary, and then to run on `Record.next_placement`. KILLING: its run is to be killed, after which
    the job is in `Record.after_kill`. PARKED: its run is gone, its checkpoint remains.
    """

    LAUNCHING = "launching"
    LAUNCHED = "launched"
    STOPPING = "stopping"
    KILLING = "killing"
    PARKED = "parked"
    FINISHED = "finished"
    FAILED = "failed"

    @property
    def is_transient(self) -> bool:
        """Whether the engine has steps left to take before the job stays as it is."""
        return self in (Phase.LAUNCHING, Phase.STOPPING, Phase.KILLING)


PHASE_AFTER: Mapping[RanksState, Phase | None] = {
    RanksState.IDLE: None,
    RanksState.RUNNING: None,
    RanksState.SUSPENDED: None,
    RanksState.STOPPING: None,
    RanksState.STOPPED: Phase.PARKED,
    RanksState.FINISHED: Phase.FINISHED,
    RanksState.FAILED: Phase.FAILED,
    RanksState.LOST: Phase.PARKED,
    RanksState.FORGOTTEN: None,
}
"""What a launched job comes to by what its ranks do on a node; None: it stays launched."""
