"""What the tracker knows: studies, trials and stages by name, and the questions that are asked of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from beamer.errors import NotFoundError, hint
from beamer.studies.model import StudyStatus, TrialStatus, unescape_name
from beamer.studies.records import AttemptRecord, StageRecord, StudyRecord, TrialRecord

_Record = TypeVar("_Record")


@dataclass(frozen=True)
class Retention:
    """How much is kept of what is over; None: everything, as simulations do.

    past_runs: of a study, the latest. attempts: of a trial: the first one, with which its makespan begins, and the latest.
    """

    past_runs: int | None = None
    attempts: int | None = None


class StudyRegistry:
    """Every study's runs, with what belongs to them; only `beamer.studies.changes` changes it.

    studies: the present runs by name. past: the earlier ones, oldest first. trials: of the present runs, by key. running: of
    these, those that run; running_workers: how many workers they have. attempts, registered: how many attempts and trials
    there have been in all.
    """

    def __init__(self, kept: Retention = Retention()) -> None:
        self.kept = kept
        self.studies: dict[str, StudyRecord] = {}
        self.past: dict[str, list[StudyRecord]] = {}
        self.trials: dict[str, TrialRecord] = {}
        self.running: dict[str, TrialRecord] = {}
        self._attempts: dict[str, AttemptRecord] = {}  # attempts of the trials that run
        self.running_workers = 0
        self._in_order: tuple[TrialRecord, ...] | None = ()
        self._is_sorted = True
        self.attempts = 0
        self.registered = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StudyRegistry) and self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]  # The registry changes.

    def _facts(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def set_running(self, trial: TrialRecord, runs: bool) -> None:
        """Take note that a trial runs, perhaps in another attempt than before, or does not."""
        before, present = self._attempts.get(trial.key), trial.attempt if runs else None
        if before is present:
            return
        self._in_order = None
        if before is not None:
            del self.running[trial.key], self._attempts[trial.key]
            self.running_workers -= len(before.workers)
        if present is not None:
            last = next(reversed(self.running.values()), None)
            self._is_sorted = self._is_sorted and (last is None or _attempt_number(last) < present.seq)
            self.running[trial.key], self._attempts[trial.key] = trial, present
            self.running_workers += len(present.workers)

    def running_in_order(self) -> tuple[TrialRecord, ...]:
        """Return the trials that run, in the order in which their attempts started."""
        if self._in_order is None:
            if not self._is_sorted:  # An attempt goes on that was taken for over.
                self.running = {trial.key: trial for trial in sorted(self.running.values(), key=_attempt_number)}
                self._is_sorted = True
            self._in_order = tuple(self.running.values())
        return self._in_order

    def study(self, name: str) -> StudyRecord:
        """Return a study. Raises `NotFoundError`."""
        return find(self.studies, "study", name)

    def stage(self, study: str, name: str) -> StageRecord:
        """Return a stage. Raises `NotFoundError`."""
        return find(self.study(study).stages, "stage", name)

    def trial(self, key: str) -> TrialRecord:
        """Return a trial. Raises `NotFoundError`."""
        if key in self.trials:
            return self.trials[key]
        study, name = (*map(unescape_name, key.split("/", 1)), "")[:2]
        return find(self.study(study).trials, "trial", name)

    def waiting_for(self, trial: TrialRecord) -> list[StageRecord]:
        """Return the stages that wait for a trial."""
        stages = self.studies[trial.study].stages
        return [stages[target.stage] for target in trial.unreached if target.stage is not None]

    def is_silent(self, trial: TrialRecord) -> bool:
        """Say whether a trial, its study, or a stage that waits for it is silent, so that it matters to hear of it."""
        return trial.status is TrialStatus.SILENT or self.is_context_silent(trial)

    def is_context_silent(self, trial: TrialRecord) -> bool:
        """Say whether a trial's study, or a stage that waits for it, is silent, so that it matters to hear of these."""
        silent = self.studies[trial.study].status is StudyStatus.SILENT
        return silent or any(stage.status.is_silent for stage in self.waiting_for(trial))


def _attempt_number(trial: TrialRecord) -> int:
    assert trial.attempt is not None
    return trial.attempt.seq


def find(known: Mapping[str, _Record], field_name: str, name: str) -> _Record:
    """Return what is known under a name. Raises `NotFoundError`, which names the nearest one."""
    if name not in known:
        raise NotFoundError(field_name, name, f"a registered {field_name}{hint(name, known)}")
    return known[name]
