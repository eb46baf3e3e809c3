"""The state machine of studies, trials and stages: what is registered, what runs and what ended, fed by events alone.

A legal event is journaled and applied; applying a journal's events in order to a new tracker with new ledgers gives an equal
one, so that this is also how a restarted process recovers. What is legal stands in `beamer.studies.transitions`. The tracker
knows studies, trials and stages; what a level knows beyond that is its ledger's, which sees every event after the tracker.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import TypeVar

from beamer.errors import ConflictError, InputError, NotFoundError
from beamer.studies.events import (
    AttemptEnded,
    AttemptStarted,
    Decision,
    Event,
    FellSilent,
    Progressed,
    StageRegistered,
    StageSealed,
    StudyEnded,
    StudyRegistered,
    TargetDropped,
    TargetSet,
    TrialEnded,
    TrialRegistered,
    WorkerAttached,
    WorkerDetached,
)
from beamer.studies.model import EndReason, StageStatus, StudyStatus, TrialStatus, Worker, check_name
from beamer.studies.records import AttemptRecord, StageRecord, StudyRecord, TargetRecord, TrialRecord
from beamer.studies.registration import check_process, check_profile, check_rungs, check_step, check_weight, check_workers
from beamer.studies.transitions import STAGE_TRANSITIONS, TRIAL_TRANSITIONS, NoTransition, StageInput, TrialInput

_Record = TypeVar("_Record")

_ENDS = {
    TrialStatus.FINISHED: TrialInput.FINISH,
    TrialStatus.KILLED: TrialInput.KILL,
    TrialStatus.FAILED: TrialInput.FAIL,
}
_ATTEMPT_ENDS = {EndReason.PAUSED: TrialInput.PAUSE, EndReason.LOST: TrialInput.LOSE}


class Ledger(ABC):
    """What one level knows, fed by the tracker; events applied in order to a new ledger give an equal one."""

    @abstractmethod
    def check(self, event: Event, tracker: "Tracker") -> bool | None:
        """Say whether an event changes anything at this level; None: it does not concern it. Raises as `Tracker.check`."""

    @abstractmethod
    def apply(self, event: Event, tracker: "Tracker") -> None:
        """Take in an event that the tracker has taken in."""

    def entailed(self, event: Event, tracker: "Tracker") -> Iterable[Event]:
        """Return what happens to studies and trials because an event of this level does, before it; all of it is legal."""
        return ()

    def begin_anew(self, study: str) -> None:  # noqa: B027  # most know nothing by study
        """Forget the trials of a study, all of which have ended, as another run of it begins."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes


class Tracker:
    """Know every study, trial and stage; only `apply` changes it, records are for reading.

    ledgers: of the levels whose events it takes in. Two trackers are equal when all that they and their ledgers know is.
    Its time never goes back: what happens after a clock was set back happens at the latest time known.
    """

    def __init__(self, *ledgers: Ledger) -> None:
        self.ledgers = ledgers
        self._studies: dict[str, StudyRecord] = {}
        self._past: dict[str, list[StudyRecord]] = {}
        self._trials: dict[str, TrialRecord] = {}
        self._running: dict[str, TrialRecord] = {}
        self._attempts = 0
        self._registered = 0
        self._now_s = 0.0

    @property
    def studies(self) -> Mapping[str, StudyRecord]:
        """Every study's present run by name, in order of first registration."""
        return MappingProxyType(self._studies)

    @property
    def trials(self) -> Mapping[str, TrialRecord]:
        """Every trial of these by key, in order of registration, ended ones included."""
        return MappingProxyType(self._trials)

    @property
    def running(self) -> tuple[TrialRecord, ...]:
        """The trials that run, in the order in which their attempts started."""
        return tuple(sorted(self._running.values(), key=_attempt_number))

    @property
    def now_s(self) -> float:
        """The time of the latest event."""
        return self._now_s

    def past_runs(self, study: str) -> tuple[StudyRecord, ...]:
        """Return the earlier runs of a study, oldest first."""
        return tuple(self._past.get(study, ()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tracker) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def study(self, name: str) -> StudyRecord:
        """Return a study. Raises `NotFoundError`."""
        return _find(self._studies, "study", name)

    def stage(self, study: str, name: str) -> StageRecord:
        """Return a stage. Raises `NotFoundError`."""
        return _find(self.study(study).stages, "stage", name)

    def trial(self, key: str) -> TrialRecord:
        """Return a trial. Raises `NotFoundError`."""
        if key in self._trials:
            return self._trials[key]
        study, name = (*key.split("/", 1), "")[:2]
        return _find(self.study(study).trials, "trial", name)

    def check(self, event: Event) -> bool:
        """Say whether `event` changes anything: False for what is repeated or late, True if it must be journaled and applied.

        Raises `InputError` for a value that cannot be and for an event of a level that has no ledger here, `NotFoundError` for
        an unknown study, stage, trial or attempt, `ConflictError` for what `beamer.studies.transitions` refuses.
        """
        found = [self._check(event), *(ledger.check(event, self) for ledger in self.ledgers)]
        if all(changes is None for changes in found):
            raise InputError("event", type(event).__name__, "an event of studies or of a level that is tracked here")
        return any(found)

    def apply(self, event: Event) -> None:
        """Take in an event that `check` found legal."""
        self._now_s = max(self._now_s, event.at_s)
        event = replace(event, at_s=self._now_s)
        of_levels = [entailed for ledger in self.ledgers for entailed in ledger.entailed(event, self)]
        for entailed in (*self._entailed(event), *of_levels):
            self._take(entailed)
        self._take(event)

    def _take(self, event: Event) -> None:
        self._apply(event)
        for ledger in self.ledgers:
            ledger.apply(event, self)

    def _entailed(self, event: Event) -> Iterable[Event]:
        """Return what happens because an event does, before it: the ends of trials whose study ends or begins anew."""
        match event:
            case StudyRegistered(study=name, run=run) if name in self._studies and self._studies[name].run != run:
                ended = self._studies[name]
            case StudyEnded(study=name):
                ended = self._studies[name]
            case _:
                return
        for trial in ended.trials.values():
            if not trial.status.is_finished:
                yield TrialEnded(event.at_s, trial.key, TrialStatus.KILLED)
        for stage in ended.stages.values():
            if stage.sealed_s is None:
                yield StageSealed(event.at_s, name, stage.name)

    # What an event would change, by kind.

    def _check(self, event: Event) -> bool | None:
        match event:
            case StudyRegistered():
                return self._check_study(event)
            case StudyEnded(study=study):
                return self.study(study).status is not StudyStatus.ENDED
            case StageRegistered(study=study, stage=name):
                return self._check_stage(study, name)
            case StageSealed(study=study, stage=name):
                stage = self.stage(study, name)
                return STAGE_TRANSITIONS[StageInput.SEAL][stage.status] is not NoTransition.LATE
            case TrialRegistered():
                return self._check_trial(event)
            case TargetSet():
                return self._check_target(event)
            case TargetDropped(trial=key, stage=name):
                trial = self.trial(key)
                if name is not None:
                    self.stage(trial.study, name)
                waited = any(target.stage == name for target in trial.unreached)
                return self._moves(key, TrialInput.TARGET) and waited
            case AttemptStarted():
                return self._check_attempt(event)
            case AttemptEnded(trial=key, attempt=attempt, reason=reason):
                if reason not in _ATTEMPT_ENDS:
                    raise InputError("reason", reason.value, "paused or lost")
                return self._is_present(self.trial(key), attempt) and self._moves(key, _ATTEMPT_ENDS[reason])
            case WorkerAttached():
                return self._check_worker(event)
            case WorkerDetached(trial=key, rank=rank):
                present = self._present(self.trial(key), rank)
                return rank in present.processes and self._moves(key, TrialInput.DETACH)
            case Progressed(trial=key, step=step, loss=loss):
                trial = self.trial(key)
                check_step(step, "step")
                differs = loss is not None and repr(loss) != repr(trial.loss)  # NaN differs from itself
                newer = step > trial.done or (step == trial.done and differs)
                return self._moves(key, TrialInput.PROGRESS) and (newer or self._is_silent(trial))
            case TrialEnded(trial=key, status=status):
                if status not in _ENDS:
                    raise InputError("status", status.value, "finished, killed or failed")
                return self._moves(key, _ENDS[status])
            case FellSilent():
                return self._check_silence(event)
        return None

    def _check_study(self, event: StudyRegistered) -> bool:
        known = self._studies.get(event.study)
        check_name(event.study, "study")
        check_name(event.run, "run")
        check_weight(event.weight)
        check_rungs(event.rungs)
        if known is None:
            return True
        if known.run != event.run:
            return all(past.run != event.run for past in self._past.get(event.study, ()))
        if known.status is StudyStatus.ENDED:
            return False
        declared = (known.weight, known.rungs, known.barriers)
        return declared != (event.weight, event.rungs, event.barriers) or known.status is StudyStatus.SILENT

    def _check_stage(self, study: str, name: str) -> bool:
        record = self.study(study)
        if name not in record.stages:
            check_name(name, "stage")
            self._active(study, "stage", name)
            return True
        return record.stages[name].status is StageStatus.SILENT or record.status is StudyStatus.SILENT

    def _check_trial(self, event: TrialRegistered) -> bool:
        study = self.study(event.study)
        if event.budget is not None:
            check_step(event.budget, "budget", 1)
        known = study.trials.get(event.trial)
        if known is None:
            check_name(event.trial, "trial")
            self._active(event.study, "trial", event.trial)
            return True
        changed = event.budget is not None and event.budget != known.budget
        return self._moves(known.key, TrialInput.REGISTER) and (changed or self._is_overlooked(known))

    def _check_target(self, event: TargetSet) -> bool:
        trial = self.trial(event.trial)
        check_step(event.step, "step", 1)
        moves = self._moves(event.trial, TrialInput.TARGET)
        if event.stage is None:
            return moves and (event.step > trial.farthest or self._is_overlooked(trial))
        stage = self.stage(trial.study, event.stage)
        if trial.name in stage.targets:
            farther = event.step > stage.targets[trial.name] or self._is_overlooked(trial)
            return moves and stage.status is not StageStatus.DONE and farther
        if not moves:
            return False
        if STAGE_TRANSITIONS[StageInput.JOIN][stage.status] is NoTransition.REFUSED or stage.sealed_s is not None:
            raise ConflictError("stage", stage.name, f"an open stage; it is {stage.status.value}, no further trial may join")
        return True

    def _check_attempt(self, event: AttemptStarted) -> bool:
        trial = self.trial(event.trial)
        check_name(event.attempt, "attempt")
        check_workers(event.workers)
        check_profile(event.profile)
        if event.attempt in trial.attempts:
            return self._is_present(trial, event.attempt) and self._is_silent(trial)
        return self._moves(event.trial, TrialInput.START)

    def _check_worker(self, event: WorkerAttached) -> bool:
        trial = self.trial(event.trial)
        check_process(event.process)
        if trial.attempt is None:
            raise NotFoundError("attempt", event.trial, "a trial that runs: start an attempt of it first")
        present = self._present(trial, event.rank)
        if not self._moves(event.trial, TrialInput.ATTACH):
            return False
        return trial.status is not TrialStatus.RUNNING or present.processes.get(event.rank) != event.process

    def _check_silence(self, event: FellSilent) -> bool:
        study = self.study(event.study)
        if event.trial is not None:
            return self._moves(_find(study.trials, "trial", event.trial).key, TrialInput.SILENCE)
        if event.stage is not None:
            stage = self.stage(event.study, event.stage)
            return STAGE_TRANSITIONS[StageInput.SILENCE][stage.status] is not NoTransition.LATE
        return study.status is StudyStatus.ACTIVE

    def _moves(self, key: str, what: TrialInput) -> bool:
        """Say whether an input takes effect in a trial's present status. Raises `ConflictError` where it is refused."""
        trial = self.trial(key)
        outcome = TRIAL_TRANSITIONS[what][trial.status]
        if outcome is NoTransition.REFUSED:
            remedy = (
                "start another, or another run of its study" if trial.status.is_finished else "start an attempt of it first"
            )
            raise ConflictError("trial", key, f"one that is not {trial.status.value}: {remedy}")
        return outcome is not NoTransition.LATE

    def _active(self, name: str, field: str, value: str) -> StudyRecord:
        study = self.study(name)
        if study.status is StudyStatus.ENDED:
            raise ConflictError(field, value, f"a study that has not ended; {name} has: register another run of it")
        return study

    def _present(self, trial: TrialRecord, rank: int) -> AttemptRecord:
        """Return the present or last attempt, in which a rank has to be. Raises `NotFoundError`."""
        if trial.attempt is None:
            raise NotFoundError("attempt", trial.key, "a trial that runs")
        ranks = [worker.rank for worker in trial.attempt.workers]
        if rank not in ranks:
            raise NotFoundError("rank", rank, f"a rank of {trial.key}: {', '.join(map(str, ranks))}")
        return trial.attempt

    def _is_present(self, trial: TrialRecord, attempt: str) -> bool:
        """Say whether an attempt is the present or last one. Raises `NotFoundError` for one that is not known at all."""
        _find(trial.attempts, "attempt", attempt)
        return trial.attempt is not None and trial.attempt.name == attempt

    def _is_silent(self, trial: TrialRecord) -> bool:
        """Say whether a trial, its study, or a stage that waits for it is silent, so that it matters to hear of it."""
        return trial.status is TrialStatus.SILENT or self._is_overlooked(trial)

    def _is_overlooked(self, trial: TrialRecord) -> bool:
        """Say whether a trial's study, or a stage that waits for it, is silent, so that it matters to hear of these."""
        silent = self._studies[trial.study].status is StudyStatus.SILENT
        return silent or any(stage.status is StageStatus.SILENT for stage in self._waiting_for(trial))

    def _waiting_for(self, trial: TrialRecord) -> list[StageRecord]:
        stages = self._studies[trial.study].stages
        return [stages[target.stage] for target in trial.unreached if target.stage is not None]

    # Taking in what is legal, by kind.

    def _apply(self, event: Event) -> None:
        match event:
            case StudyRegistered():
                self._register(event)
            case StudyEnded(study=study):
                self._studies[study].status = StudyStatus.ENDED
                self._studies[study].ended_s = event.at_s
            case StageRegistered(study=study, stage=name):
                self._hear(study)
                stages = self._studies[study].stages
                if name in stages:
                    self._move_stage(study, stages[name], StageInput.REGISTER)
                else:
                    stages[name] = StageRecord(name, event.at_s)
            case StageSealed(study=study, stage=name):
                self._hear(study)
                stage = self._studies[study].stages[name]
                stage.sealed_s = event.at_s
                self._move_stage(study, stage, StageInput.SEAL)
                self._end_if_over(stage, event.at_s)
            case TrialRegistered(study=study, trial=name, budget=budget):
                trial = self._register_trial(study, name, event.at_s)
                trial.budget = budget or trial.budget
            case TargetSet():
                self._set_target(event)
            case TargetDropped(trial=key, stage=name):
                self._drop(self._trials[key], name, event.at_s)
            case AttemptStarted():
                self._start(event)
            case AttemptEnded(trial=key, reason=reason):
                self._end_attempt(self._trials[key], reason, event.at_s)
                self._move(key, _ATTEMPT_ENDS[reason])
            case WorkerAttached(trial=key, rank=rank, process=process):
                self._move(key, TrialInput.ATTACH)
                self._reopen(key).processes[rank] = process
            case WorkerDetached(trial=key, rank=rank):
                self._reopen(key).processes.pop(rank, None)
            case Progressed(trial=key, step=step, loss=loss):
                self._progress(self._trials[key], step, loss, event.at_s)
            case TrialEnded(trial=key, status=status):
                self._end(self._trials[key], status, event.at_s)
            case FellSilent():
                self._silence(event)

    def _register(self, event: StudyRegistered) -> None:
        known = self._studies.get(event.study)
        if known is not None and known.run == event.run:
            known.weight, known.rungs, known.barriers = event.weight, event.rungs, event.barriers
            self._hear(event.study)
            return
        if known is not None:
            self._past.setdefault(event.study, []).append(known)
            known.status = StudyStatus.ENDED
            known.ended_s = known.ended_s or event.at_s
            for trial in known.trials.values():
                del self._trials[trial.key]
            for ledger in self.ledgers:
                ledger.begin_anew(event.study)
        self._studies[event.study] = StudyRecord(
            event.study, event.run, event.weight, event.rungs, event.barriers, event.at_s
        )  # fmt: skip

    def _register_trial(self, study: str, name: str, at_s: float) -> TrialRecord:
        trials = self._studies[study].trials
        if name in trials:
            self._move(trials[name].key, TrialInput.REGISTER)
        else:
            self._hear(study)
            self._registered += 1
            trials[name] = TrialRecord(study, name, self._registered, at_s)
            self._trials[trials[name].key] = trials[name]
        return trials[name]

    def _set_target(self, event: TargetSet) -> None:
        trial = self._trials[event.trial]
        reached_s = event.at_s if trial.done >= event.step else None
        stage = None if event.stage is None else self._studies[trial.study].stages[event.stage]
        known = trial.farthest if stage is None else stage.targets.get(trial.name, 0)
        if event.step > known:
            target = TargetRecord(event.step, event.stage, event.at_s, reached_s)
            trial.targets.append(target)
            trial.farthest = max(trial.farthest, event.step)
            if reached_s is None:
                trial.unreached.append(target)
        if stage is not None and event.step > known:
            if trial.name not in stage.targets:
                self._move_stage(trial.study, stage, StageInput.JOIN)
            stage.targets[trial.name] = event.step
            if reached_s is None:
                stage.missing.add(trial.name)
        self._move(event.trial, TrialInput.TARGET)

    def _drop(self, trial: TrialRecord, stage: str | None, at_s: float) -> None:
        self._move(trial.key, TrialInput.TARGET)
        trial.unreached = [target for target in trial.unreached if target.stage != stage]
        if stage is not None:
            record = self._studies[trial.study].stages[stage]
            record.missing.discard(trial.name)
            self._end_if_over(record, at_s)

    def _start(self, event: AttemptStarted) -> None:
        trial = self._trials[event.trial]
        if trial.attempt is None or trial.attempt.name != event.attempt:
            self._end_attempt(trial, EndReason.MOVED, event.at_s)
            self._attempts += 1
            workers = by_rank(event.workers)
            trial.attempts[event.attempt] = AttemptRecord(
                event.attempt, self._attempts, workers, event.profile, event.at_s
            )  # fmt: skip
        self._move(event.trial, TrialInput.START)

    def _progress(self, trial: TrialRecord, step: int, loss: float | None, at_s: float) -> None:
        trial.done = max(trial.done, step)
        trial.loss = trial.loss if loss is None else loss
        self._move(trial.key, TrialInput.PROGRESS)
        reached = [target for target in trial.unreached if trial.done >= target.step]
        trial.unreached = [target for target in trial.unreached if trial.done < target.step]
        for target in reached:
            target.reached_s = at_s
            self._arrive(trial, target.stage, at_s)

    def _end(self, trial: TrialRecord, status: TrialStatus, at_s: float) -> None:
        self._hear(trial.study)
        self._end_attempt(trial, EndReason.ENDED, at_s)
        self._move(trial.key, _ENDS[status])
        trial.ended_s = at_s
        for stage in self._waiting_for(trial):
            self._arrive(trial, stage.name, at_s)
        trial.unreached.clear()

    def _arrive(self, trial: TrialRecord, stage: str | None, at_s: float) -> None:
        if stage is not None:
            record = self._studies[trial.study].stages[stage]
            if trial.status.is_finished or trial.done >= record.targets[trial.name]:
                record.missing.discard(trial.name)
                self._end_if_over(record, at_s)

    def _silence(self, event: FellSilent) -> None:
        study = self._studies[event.study]
        if event.trial is not None:
            trial = study.trials[event.trial]
            self._end_attempt(trial, EndReason.SILENT, event.at_s)
            self._give(trial, _status(TRIAL_TRANSITIONS[TrialInput.SILENCE][trial.status]))
        elif event.stage is not None:
            stage = study.stages[event.stage]
            stage.status = _status(STAGE_TRANSITIONS[StageInput.SILENCE][stage.status])
        else:
            study.status = StudyStatus.SILENT

    def _move(self, key: str, what: TrialInput) -> None:
        """Give a trial the status that an input leads to, and take note that it, its stages and its study were heard of."""
        trial = self._trials[key]
        outcome = TRIAL_TRANSITIONS[what][trial.status]
        if isinstance(outcome, TrialStatus):
            self._give(trial, outcome)
            if outcome is TrialStatus.RUNNING:
                self._reopen(key)
        self._hear(trial.study)
        for stage in self._waiting_for(trial):
            self._move_stage(trial.study, stage, StageInput.HEAR)

    def _give(self, trial: TrialRecord, status: TrialStatus) -> None:
        trial.status = status
        if status is TrialStatus.RUNNING:
            self._running[trial.key] = trial
        else:
            self._running.pop(trial.key, None)

    def _move_stage(self, study: str, stage: StageRecord, what: StageInput) -> None:
        outcome = STAGE_TRANSITIONS[what][stage.status]
        if isinstance(outcome, StageStatus):
            was_sealed = outcome is StageStatus.OPEN and stage.sealed_s is not None
            stage.status = StageStatus.SEALED if was_sealed else outcome
        self._hear(study)

    def _hear(self, study: str) -> None:
        if self._studies[study].status is StudyStatus.SILENT:
            self._studies[study].status = StudyStatus.ACTIVE

    def _reopen(self, key: str) -> AttemptRecord:
        """Return a trial's present attempt, which goes on if it was taken for over."""
        attempt = self._trials[key].attempt
        assert attempt is not None
        attempt.ended_s = attempt.reason = None
        return attempt

    @staticmethod
    def _end_attempt(trial: TrialRecord, reason: EndReason, at_s: float) -> None:
        """End a trial's present attempt. Its processes are forgotten: they are this trial's no more."""
        attempt = trial.attempt
        if attempt is not None and (attempt.ended_s is None or attempt.reason is EndReason.SILENT):
            attempt.ended_s = attempt.ended_s or at_s
            attempt.reason = reason
            if reason is not EndReason.SILENT:
                attempt.processes.clear()

    def _end_if_over(self, stage: StageRecord, at_s: float) -> None:
        outcome = STAGE_TRANSITIONS[StageInput.COMPLETE][stage.status]
        if not stage.missing and isinstance(outcome, StageStatus):
            stage.status = outcome
            stage.ended_s = at_s


def is_new_decision(event: Decision, last: Decision | None) -> bool:
    """Say whether a decision is not a level's last one again. Raises `ConflictError` for a generation that was used before."""
    if last is None or event.generation > last.generation:
        return True
    if replace(event, at_s=last.at_s) == last:  # taken in at the latest time known, if it came with an earlier one
        return False
    raise ConflictError("generation", event.generation, f"above {last.generation}, the latest decision's")


def _attempt_number(trial: TrialRecord) -> int:
    assert trial.attempt is not None
    return trial.attempt.seq


def by_rank(workers: Iterable[Worker]) -> tuple[Worker, ...]:
    """Return workers in order of their ranks."""
    return tuple(sorted(workers, key=lambda worker: worker.rank))


Status = TypeVar("Status", TrialStatus, StageStatus)


def _status(outcome: Status | NoTransition) -> Status:
    assert not isinstance(outcome, NoTransition)
    return outcome


def _find(known: Mapping[str, _Record], field_name: str, name: str) -> _Record:
    if name not in known:
        raise _unknown(field_name, name, known)
    return known[name]


def _unknown(field_name: str, name: str, known: Iterable[str]) -> NotFoundError:
    """Name the nearest one only: a search registers thousands."""
    close = get_close_matches(name, known, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return NotFoundError(field_name, name, f"a registered {field_name}{hint}")
