"""A search of Ray Tune as Beamer's client is told of it: trials, attempts, progress, milestones, stages, ends.

Trials are Tune's. Does not import Ray.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from beamer.client import Client, StageHandle, StudyHandle, TrialHandle
from beamer.integrations.ray_tune.schedule import Barrier, Schedule
from beamer.integrations.ray_tune.values import loss_of, step_of, stop_step
from beamer.studies.model import Process

RUNNING, TERMINATED, ERROR = "RUNNING", "TERMINATED", "ERROR"
"""States of Tune's trials. In all others a trial waits."""
STOP, PAUSE, CONTINUE = "STOP", "PAUSE", "CONTINUE"
"""Decisions of Tune's schedulers."""


@dataclass
class _Known:
    """A trial that has not ended.

    step: the last that is complete. budget: the step at which the trial is stopped, None where none is known. milestone: the
    step that is waited for, None where none is. decision: the scheduler's on the latest result, None where it was not asked.
    runs: whether the controller was told that the trial runs. is_starting: whether an attempt has begun of which the controller
    is not told yet, as its hosts are not known.
    """

    trial: Any
    handle: TrialHandle
    step: int = 0
    budget: int | None = None
    milestone: int | None = None
    decision: str | None = None
    runs: bool = False
    is_starting: bool = False


@dataclass
class _Stage:
    """A stage that is not sealed.

    handle: the client's. members: the ids of the trials that it waits for.
    """

    handle: StageHandle
    members: set[str] = field(default_factory=set)


class ReportedSearch:
    """Tell a client of a search.

    study: the search's name. metric, mode: of its results. stopper: of the Tuner. schedule: of its scheduler. hosts: from the
    address and name of a node to the host that it is in the controller's network.
    """

    def __init__(
        self,
        client: Client,
        study: str,
        schedule: Schedule,
        metric: str | None,
        mode: str | None,
        stopper: Any,
        hosts: Callable[[tuple[str, str]], str],
    ) -> None:
        self._schedule = schedule
        self._metric, self._mode, self._stopper, self._hosts = metric, mode, stopper, hosts
        self._known: dict[str, _Known] = {}
        self._seen: set[str] = set()  # all trials, those that have ended included
        self._stages: dict[str, _Stage] = {}
        self._state: object = None
        self._study: StudyHandle = client.study(study, rungs=schedule.rungs() or None, barriers=schedule.has_barriers)

    def add_new(self, trials: Sequence[Any]) -> None:
        """Register the trials that are new; Tune adds them at the end, and moves to there what it tries again."""
        missing = len(trials) - len(self._seen)
        found: list[Any] = []
        for trial in reversed(trials):
            if len(found) >= missing:
                break
            if trial.trial_id not in self._seen:
                found.append(trial)
        for trial in reversed(found):
            self._add(trial)

    def _add(self, trial: Any) -> _Known | None:
        if trial.trial_id in self._seen:
            return self._known.get(trial.trial_id)
        self._seen.add(trial.trial_id)
        if trial.status in (TERMINATED, ERROR):  # A restored experiment has trials that ended before.
            return None
        ends = [step for step in (stop_step(trial, self._stopper), self._schedule.max_step) if step is not None]
        budget = min(ends, default=None)
        known = _Known(trial, self._study.trial(trial.trial_id, budget=budget), budget=budget)
        self._known[trial.trial_id] = known
        return known

    def begin(self, trial: Any, step: int | None) -> None:
        """Note that a trial begins an attempt at a step, None where that is not known; where it runs is told by `start`."""
        if known := self._add(trial):
            known.is_starting, known.runs, known.decision, known.milestone = True, False, None, None
            known.step = known.step if step is None else step

    def is_starting(self, trial: Any) -> bool:
        """Return whether a trial has begun an attempt, and where is to be told."""
        known = self._known.get(trial.trial_id)
        return known is not None and known.is_starting

    def start(self, trial: Any, nodes: Sequence[tuple[str, str]], process: Process | None) -> None:
        """Report where a trial that has begun an attempt runs: the nodes of its workers, and the process of rank 0."""
        known = self._known.get(trial.trial_id)
        if known is None:
            return
        if known.is_starting:
            known.is_starting, known.runs = False, True
            known.handle.start([self._hosts(node) for node in nodes], step=known.step)
            self._set_milestone(known)
        if known.runs and process is not None:
            known.handle.attach(0, process)

    def report(self, trial: Any, result: Mapping[str, Any], decision: str | None) -> None:
        """Report a result. decision: of the scheduler, None where it was not asked."""
        known = self._known.get(trial.trial_id)
        if known is None:
            return
        known.decision = decision
        if (step := step_of(result)) is not None:
            known.step = step
            known.handle.progress(step, loss_of(result, self._metric, self._mode))
        if decision in (CONTINUE, None) and not result.get("done"):
            self._set_milestone(known)

    def _set_milestone(self, known: _Known) -> None:
        if known.milestone is not None and known.step < known.milestone:
            return
        ahead = self._schedule.next_step(known.trial, known.step)
        if ahead is not None and known.budget is not None:
            ahead = min(ahead, known.budget)
        known.milestone = ahead if ahead is not None and ahead > known.step else None
        if known.milestone is not None and known.runs:
            known.handle.milestone(known.milestone)

    def end(self, trial: Any, has_failed: bool = False) -> None:
        """Report the end of a trial: finished, or killed if its scheduler or its search ended it before it was complete."""
        known = self._known.pop(trial.trial_id, None)
        if known is None:
            return
        if has_failed:
            known.handle.fail()
        elif self._was_stopped(known) and not self._is_complete(known):
            known.handle.kill()
        else:
            known.handle.finish()

    def _was_stopped(self, known: _Known) -> bool:
        return known.decision in (STOP, PAUSE) or known.trial.status != RUNNING

    def _is_complete(self, known: _Known) -> bool:
        return (known.budget is not None and known.step >= known.budget) or self._schedule.is_complete(known.trial, known.step)

    def pause(self, trial: Any) -> None:
        """Report that a trial does not run for now."""
        known = self._known.get(trial.trial_id)
        if known is not None and (known.runs or known.is_starting):
            if known.runs:
                known.handle.pause()
            known.runs = known.is_starting = False

    def compare(self) -> None:
        """Report what Tune has no callback for: trials that were paused, stopped by the search, or failed at their start."""
        for known in tuple(self._known.values()):
            status = known.trial.status
            if status == ERROR:
                self.end(known.trial, has_failed=True)
            elif status == TERMINATED:
                self.end(known.trial)
            elif known.runs and status != RUNNING:
                self.pause(known.trial)

    def update_stages(self, is_search_over: bool) -> None:
        """Bring the stages up to date. is_search_over: whether there will be no further trials."""
        if not self._schedule.has_barriers:
            return
        state = is_search_over, self._schedule.state()
        if state == self._state:
            return
        self._state = state
        barriers = {barrier.name: barrier for barrier in self._schedule.barriers(is_search_over)}
        for name, barrier in barriers.items():
            self._join(barrier)
            if barrier.is_closed:
                self._seal(name)
        for name in self._stages.keys() - barriers.keys():
            self._seal(name)

    def _join(self, barrier: Barrier) -> None:
        for trial in barrier.trials:
            known = self._known.get(trial.trial_id)
            if known is None:
                continue
            step = barrier.step if known.budget is None else min(barrier.step, known.budget)
            stage = self._stages.get(barrier.name)
            if step <= known.step or (stage and trial.trial_id in stage.members):
                continue
            if stage is None:
                stage = self._stages[barrier.name] = _Stage(self._study.stage(barrier.name))
            stage.members.add(trial.trial_id)
            stage.handle.add(known.handle, step)

    def _seal(self, name: str) -> None:
        if stage := self._stages.pop(name, None):
            stage.handle.seal()

    def close(self) -> None:
        """Report the end of the search: what Tune leaves unfinished is killed."""
        self.compare()
        for known in tuple(self._known.values()):
            known.handle.kill()
        self._known.clear()
        for name in tuple(self._stages):
            self._seal(name)
        self._study.leave()
