"""When each study, stage and trial was last heard of, and which have been silent for too long.

Pure: times come in as arguments, events go out. It is not journaled: a restart counts as news
of everything.
"""

from collections.abc import Iterator

from beamer.studies.events import (
    Event,
    FellSilent,
    MemberJoined,
    StageRegistered,
    StageSealed,
    StudyEnded,
    StudyRegistered,
    TargetDropped,
    TargetSet,
    TrialEnded,
    TrialRegistered,
)
from beamer.studies.model import StageStatus, StudyStatus, split_key, trial_key
from beamer.studies.records import StageRecord, StudyRecord
from beamer.studies.tracker import Tracker

_Name = tuple[str, ...]
"""A study's; its name, "stage" and a stage's; its name, "trial" and a trial's."""


class Silence:
    """Find studies, stages and trials of which nothing was heard for `limit_s` seconds; 0: never.

    now: the time of the start, at which everything was heard of.
    """

    def __init__(self, limit_s: float, now: float) -> None:
        self._limit_s = limit_s
        self._started_s = now
        self._heard_s: dict[_Name, float] = {}
        self.next_s: float | None = None

    def hear(self, event: Event, now: float) -> None:
        """Take in that somebody has said this, whether or not it changes anything."""
        if self._limit_s:
            self._heard_s.update(dict.fromkeys(_named(event), now))

    def take_in(self, event: Event, tracker: Tracker) -> None:
        """Take in an event that the tracker has applied: who has ended is not listened to any more."""
        match event:
            case TrialEnded(trial=key):
                study, trial = split_key(key)
                self._heard_s.pop((study, "trial", trial), None)
            case StudyRegistered(study=study) | StudyEnded(study=study):
                self._heard_s = {name: s for name, s in self._heard_s.items() if name[0] != study or _goes_on(name, tracker)}

    def due(self, tracker: Tracker, now: float, held: frozenset[str]) -> list[FellSilent]:
        """Return what has fallen silent; `next_s` is when to ask again, None for never.

        held: keys of trials with a worker that holds a lease, which tells as much.
        """
        self.next_s = None
        if not self._limit_s:
            return []
        self.next_s = now + self._limit_s
        silent = {
            trial.key: FellSilent(now, trial.study, trial=trial.name)
            for trial in tracker.running
            if trial.key not in held and self._is_silent(now, (trial.study, "trial", trial.name))
        }
        running = {trial.key for trial in tracker.running} - silent.keys()
        studies = {split_key(key)[0] for key in running}
        events = list(silent.values())
        for study in tracker.studies.values():
            if study.status is not StudyStatus.ENDED:
                events += self._of_study(study, running, study.name in studies, now)
        return events

    def _of_study(self, study: StudyRecord, running: set[str], runs: bool, now: float) -> Iterator[FellSilent]:
        for stage in study.stages.values():
            is_waited_for = stage.status in (StageStatus.OPEN, StageStatus.SEALED)
            if is_waited_for and not _runs(study, stage, running):
                names = [(study.name, "trial", trial) for trial in stage.missing]
                if self._is_silent(now, (study.name, "stage", stage.name), *names):
                    yield FellSilent(now, study.name, stage=stage.name)
        if study.status is StudyStatus.ACTIVE and not runs and self._is_silent(now, (study.name,)):
            yield FellSilent(now, study.name)

    def _is_silent(self, now: float, *names: _Name) -> bool:
        due_s = max(self._heard_s.get(name, self._started_s) for name in names) + self._limit_s
        if due_s > now and self.next_s is not None:
            self.next_s = min(self.next_s, due_s)
        return due_s <= now


def _goes_on(name: _Name, tracker: Tracker) -> bool:
    """Say whether what a name stands for is known and has not ended."""
    study = tracker.studies[name[0]]
    match name:
        case (_, "trial", trial):
            return trial in study.trials and not study.trials[trial].status.is_finished
        case (_, "stage", stage):
            return stage in study.stages and study.stages[stage].status is not StageStatus.DONE
    return study.status is not StudyStatus.ENDED


def _runs(study: StudyRecord, stage: StageRecord, running: set[str]) -> bool:
    return any(trial_key(study.name, trial) in running for trial in stage.missing)


def _named(event: Event) -> list[_Name]:
    """Return what an event names, and the study of that."""
    match event:
        case StudyRegistered(study=study) | StudyEnded(study=study) | MemberJoined(study=study):
            return [(study,)]
        case StageRegistered(study=study, stage=stage) | StageSealed(study=study, stage=stage):
            return [(study,), (study, "stage", stage)]
        case TrialRegistered(study=study, trial=trial):
            return [(study,), (study, "trial", trial)]
        case TargetSet(trial=key, stage=stage) | TargetDropped(trial=key, stage=stage):
            study, trial = split_key(key)
            named: list[_Name] = [(study,), (study, "trial", trial)]
            return named if stage is None else [*named, (study, "stage", stage)]
        case FellSilent():
            return []
    of_trial: str | None = getattr(event, "trial", None)  # Any other event may be about a trial, at whichever level.
    if of_trial is None:
        return []
    study, trial = split_key(of_trial)
    return [(study,), (study, "trial", trial)]
