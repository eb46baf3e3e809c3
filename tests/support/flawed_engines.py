"""A simulated cluster some of whose jobs fail, hang or lie: what schedulers and searches are shown in tests.

A job that fails goes back to its last report when it is started again. One that hangs runs and reports nothing, not even that
it has begun; how long it is silent is observed as `Observed.quiet_s`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from beamer.engines.simulated import SimulatedCluster, SimulatedJob
from beamer.gpu.engine import Observed, Placement, RunState
from beamer.gpu.model import Node, Report

REASON = "n: rank 0 was killed by SIGKILL"


@dataclass(frozen=True)
class Flaw:
    """What is wrong with a job.

    fails_after: iterations after whose report it fails, once each. always: whether it fails there every time. hangs: whether it
    never reports. lies: a report that it makes instead of its first. lies_last: one instead of its last. mute: whether it runs
    to its end without a report.
    """

    fails_after: tuple[float, ...] = ()
    always: bool = False
    hangs: bool = False
    lies: Report | None = None
    lies_last: Report | None = None
    mute: bool = False


SOUND = Flaw()


class FlawedCluster(SimulatedCluster):
    """A simulated cluster. flaws: of jobs, by key; the others are sound. failed: how often each has failed."""

    def __init__(
        self,
        nodes: Sequence[Node],
        jobs: Mapping[str, SimulatedJob],
        target: Callable[[str], int] | None = None,
        flaws: Mapping[str, Flaw] | None = None,
    ) -> None:
        super().__init__(nodes, jobs, target)
        self.flaws = flaws or {}
        self.failed: dict[str, int] = {}
        self._left = {key: list(flaw.fails_after) for key, flaw in self.flaws.items()}
        self._lied: set[str] = set()
        self._quiet_s: dict[str, float] = {}
        self._since_s: dict[str, float] = {}

    def report(self) -> Mapping[str, Observed]:
        """Return what each job does; a liar's first report is its lie, one that hangs has none and says how long."""
        found = dict(super().report())
        for key, one in found.items():
            flaw = self.flaws.get(key, SOUND)
            if flaw.hangs:
                found[key] = replace(one, reports=(), quiet_s=self._quiet(key), ran_s=self._quiet(key))
            elif flaw.mute:
                found[key] = replace(one, reports=())
            elif flaw.lies_last and one.reports and one.state is RunState.FINISHED:
                found[key] = replace(one, reports=(*one.reports[:-1], flaw.lies_last))
            elif flaw.lies and one.reports and key not in self._lied:
                self._lied.add(key)
                found[key] = replace(one, reports=(flaw.lies, *one.reports[1:]))
        return found

    def next_s(self) -> float:
        """Return when something happens next, which may be that a job has been silent for another second."""
        later = min(
            (self.now + 1.0 for key in self._since_s if self._runs[key].state is RunState.RUNNING), default=super().next_s()
        )
        return min(super().next_s(), later)

    def stop(self, job: str, timeout_s: float = 5.0) -> None:
        """End a job; a failed one continues from its last report when it is started again, one that hangs is silent anew."""
        run = self._runs.get(job)
        if run is not None and run.state is RunState.FAILED:
            run.iteration = run.reported
            self._checkpoints[job] = run
        self._quiet_s.pop(job, None)
        self._since_s.pop(job, None)
        super().stop(job, timeout_s)

    def _quiet(self, key: str) -> float:
        since_s = self._since_s.get(key)
        return self._quiet_s.get(key, 0.0) + (0.0 if since_s is None else self.now - since_s)

    def _run_on(self, key: str, placement: Placement, cost_s: float, is_launch: bool = True) -> None:
        super()._run_on(key, placement, cost_s, is_launch)
        if self.flaws.get(key, SOUND).hangs:
            self._since_s[key] = self.now

    def _schedule(self, key: str) -> None:
        if not self.flaws.get(key, SOUND).hangs:
            super()._schedule(key)

    def _leave(self, key: str, state: RunState) -> None:
        super()._leave(key, state)
        if key in self._since_s:
            self._quiet_s[key] = self._quiet(key)
            del self._since_s[key]

    def _reach_report(self, key: str) -> None:
        super()._reach_report(key)
        run, flaw = self._runs[key], self.flaws.get(key, SOUND)
        due = [after for after in self._left.get(key, ()) if run.reported >= after]
        if due and run.state is RunState.RUNNING:
            self.failed[key] = self.failed.get(key, 0) + 1
            if not flaw.always:
                self._left[key].remove(due[0])
            run.placement = None
            self._leave(key, RunState.FAILED)
            self._observed[key] = replace(self._observed[key], exit=REASON)
