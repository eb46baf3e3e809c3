"""What the engine knows of a job, kept in a file so that the next engine knows it, too."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from beamer.engines.local.spec import LaunchSpec
from beamer.engines.local.states import Phase
from beamer.engines.local.supervisor import codec
from beamer.engines.local.supervisor.progress import Progress
from beamer.engines.local.supervisor.store import read_json, write_json
from beamer.gpu.engine import Placement, RunState

RUN_STATE: Mapping[Phase, RunState] = {
    Phase.LAUNCHING: RunState.RUNNING,
    Phase.LAUNCHED: RunState.RUNNING,
    Phase.STOPPING: RunState.STOPPING,
    Phase.KILLING: RunState.STOPPING,
    Phase.PARKED: RunState.PARKED,
    Phase.FINISHED: RunState.FINISHED,
    Phase.FAILED: RunState.FAILED,
}
"""What the scheduler is shown of a job in a phase; a launched one whose ranks are frozen on all nodes is SUSPENDED."""


@dataclass(frozen=True)
class Record:
    """A job. It is written before anything is done, so that the next engine finds and ends what was begun.

    run: counts launches. placement: of the run, or of the last one. nodes: that may have a supervisor. unlaunched: those of
    them that no launch has been sent to, so that nothing of the job runs there. next_placement: where to run after
    `Phase.STOPPING`, None: nowhere. after_kill: the phase after `Phase.KILLING`. port: of rank 0. gap_s: how long
    the job has computed nothing before its launch. note: what was lost, or why it failed. taken_ports: launches in a row whose
    port another program had. ran_s, quiet_s: as in `RunStatus`, of the runs before this one. held: whether the run was started
    ahead and has not been let go. crowded: launches that had no GPU memory left beside suspended jobs; after the first one
    these make room before it is launched. moved_from: where the run's memory, which is on the host, came from, until it has
    been brought back onto the GPUs of `placement`; None: it came from these.
    """

    job: str
    spec: LaunchSpec
    placement: Placement
    nodes: tuple[str, ...]
    phase: Phase = Phase.LAUNCHING
    run: int = 1
    next_placement: Placement | None = None
    after_kill: Phase = Phase.PARKED
    port: int = 0
    gap_s: float = 0.0
    note: str = ""
    progress: Progress = field(default=Progress())
    unlaunched: tuple[str, ...] = ()
    taken_ports: int = 0
    ran_s: float = 0.0
    quiet_s: float = 0.0
    held: bool = False
    crowded: int = 0
    moved_from: Placement | None = None

    @property
    def ranks(self) -> dict[str, list[int]]:
        """The ranks of the run by node, in order."""
        found: dict[str, list[int]] = {}
        for rank, (node, _) in enumerate(self.placement.devices):
            found.setdefault(node, []).append(rank)
        return found

    def save(self, path: Path) -> None:
        """Write the record."""
        write_json(path, self, durable=True)


def load(path: Path) -> Record | None:
    """Return the record of a file, None if it does not exist. Raises `InputError` for another content."""
    values = read_json(path)
    if values is None:
        return None
    return codec.decode(Record, values, str(path))


@dataclass(frozen=True)
class LastRun:
    """What is left of a job that was forgotten. run: of its last run. progress: that it had made.

    One that is started again under the same name continues the count, so that a late launch of the forgotten job is refused,
    and goes on from the checkpoint that it wrote last.
    """

    run: int = 0
    progress: Progress = field(default=Progress())

    def save(self, directory: Path) -> None:
        """Write it into the job's directory."""
        write_json(directory / "last", self, durable=True)


def last_run(directory: Path) -> LastRun:
    """Return what is left of the job that was forgotten in a directory. Raises `InputError` for another content."""
    path = directory / "last"
    return codec.decode(LastRun, read_json(path) or {}, str(path))
