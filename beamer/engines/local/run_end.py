"""What has become of a run, from what its supervisors report: pure, so that every case can be shown."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from beamer.engines.local.states import ORPHANED_S, PHASE_AFTER, Phase, RanksState
from beamer.engines.local.supervisor.messages import Status


@dataclass(frozen=True)
class RunStatuses:
    """The statuses of a run's supervisors, by node. number: of the run; others report one before it, and are left out."""

    number: int
    by_node: Mapping[str, Status]

    @property
    def of_run(self) -> dict[str, Status]:
        """Those that have launched the run."""
        return {node: status for node, status in self.by_node.items() if status.run.number == self.number}

    @property
    def is_live(self) -> bool:
        """Whether any of them has processes."""
        return any(status.run.state.is_live for status in self.by_node.values())

    @property
    def leader(self) -> Status | None:
        """The one that knows most about the progress of the run, None if none has launched it."""
        return max(self.of_run.values(), key=lambda status: status.run.progress.step, default=None)

    @property
    def is_orphaned(self) -> bool:
        """Whether ranks of a node died of the stop signal so long ago that others can reach no common boundary any more."""
        ended = (status for status in self.of_run.values() if not status.run.state.is_live)
        return any(status.run.died_stopping and status.ended_s > ORPHANED_S for status in ended)

    @property
    def is_port_taken(self) -> bool:
        """Whether the ranks could not meet, as another program has the port of rank 0."""
        return any(status.run.port_taken for status in self.of_run.values())

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the ranks of a node had no memory left on a GPU."""
        return any(status.run.out_of_memory for status in self.of_run.values())

    @property
    def ran_s(self) -> float:
        """How long the ranks have run."""
        return max((status.run.ran_s for status in self.of_run.values()), default=0.0)

    @property
    def quiet_s(self) -> float:
        """How long none of them has printed anything, on no node."""
        return min((status.run.quiet_s for status in self.of_run.values()), default=0.0)

    @property
    def refused(self) -> str:
        """The first line that was meant as progress and is none, or what was printed where no line was read on any node."""
        refused = next((status.run.refused for status in self.of_run.values() if status.run.refused), "")
        return refused or self.unread

    @property
    def unread(self) -> str:
        """What a run printed that has ended well, and of which no line was read on any node; "" where one was."""
        runs = [status.run for status in self.of_run.values()]
        return runs[0].unread if runs and all(run.unread for run in runs) else ""

    def notes(self, name: str) -> str:
        """Return a text of the run's status, of every node that has one."""
        found = {node: getattr(status.run, name) for node, status in self.of_run.items()}
        return "; ".join(f"{node}: {text}" for node, text in found.items() if text)

    @property
    def phases(self) -> set[Phase | None]:
        """What the run has come to, by node; ranks that lose others to a lost supervisor fail, too, which is no failure."""
        states = {status.run.state for status in self.of_run.values()}
        if RanksState.LOST in states:
            states -= {RanksState.FAILED}
        return {PHASE_AFTER[state] for state in states}

    def end(self, stopping: bool) -> tuple[Phase, str] | None:
        """Return the phase of a job whose run has ended by itself, on some node at least, and why; None if it has not.

        stopping: whether it was asked to stop, so that it continues as planned however it came to its end.
        """
        phases = self.phases
        if Phase.FAILED in phases and not (stopping and self.is_port_taken):
            return Phase.FAILED, self.notes("exit")
        if stopping and phases != {Phase.FINISHED}:
            return None
        if Phase.PARKED in phases:
            return Phase.PARKED, self.notes("note")
        if len(self.of_run) == len(self.by_node) and phases == {Phase.FINISHED}:
            if self.unread and any(status.run.progress.refused is not None for status in self.of_run.values()):
                return Phase.FAILED, "none of its reports could be read"  # The first unread report is in `refused`.
            if missing := _missing(self.of_run.values()):
                return (
                    Phase.FAILED,
                    f"it ended with exit code 0 and {missing:g} of its iterations missing, as far as it has reported",
                )
            return Phase.FINISHED, ""
        return None


def _missing(statuses: Iterable[Status]) -> float:
    """Return the iterations that are missing to the job's end, as whoever knows most about its progress has it."""
    farthest = max(status.run.progress.step for status in statuses)
    return max(status.run.missing for status in statuses if status.run.progress.step == farthest)
