"""What changes by events that are legal, by kind; what becomes of a status is read from `beamer.studies.transitions`."""

from typing import TypeVar

from beamer.studies.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    FellSilent,
    MemberJoined,
    MemberLeft,
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
from beamer.studies.model import EndReason, Process, StageStatus, StudyStatus, TrialStatus, Worker, by_rank
from beamer.studies.records import AttemptRecord, MemberRecord, StageRecord, StudyRecord, TargetRecord, TrialRecord
from beamer.studies.registry import StudyRegistry
from beamer.studies.transitions import (
    ATTEMPT_ENDS,
    ENDS,
    STAGE_TRANSITIONS,
    STUDY_TRANSITIONS,
    TRIAL_TRANSITIONS,
    NoTransition,
    StageInput,
    StudyInput,
    TrialInput,
)


class Changes:
    """Take events into what is known."""

    def __init__(self, known: StudyRegistry) -> None:
        self._known = known

    def apply(self, event: Event) -> None:
        """Take in an event that is legal and changes something."""
        match event:
            case StudyRegistered():
                self._register(event)
            case StudyEnded(study=study, left=left):
                self._move_study(self._known.studies[study], StudyInput.END)
                self._known.studies[study].ended_s = event.at_s
                self._known.studies[study].left = left
                self._known.studies[study].members.clear()
            case MemberJoined(study=study, member=member):
                record = self._known.studies[study]
                self._go_on(record)
                self._hear(study)
                joined_s = record.members[member].joined_s if member in record.members else event.at_s
                record.members[member] = MemberRecord(member, joined_s, event.lease_s, event.host, event.pid)
            case MemberLeft(study=study, member=member):
                self._known.studies[study].members.pop(member, None)
            case StageRegistered(study=study, stage=name):
                self._hear(study)
                stages = self._known.studies[study].stages
                if name in stages:
                    self._move_stage(study, stages[name], StageInput.REGISTER)
                else:
                    stages[name] = StageRecord(name, event.at_s)
            case StageSealed(study=study, stage=name):
                self._hear(study)
                stage = self._known.studies[study].stages[name]
                if stage.sealed_s is None:
                    stage.sealed_s = event.at_s
                self._move_stage(study, stage, StageInput.SEAL)
                self._end_if_over(stage, event.at_s)
            case TrialRegistered(study=study, trial=name, budget=budget, member=member):
                trial = self._register_trial(study, name, event.at_s)
                trial.budget = budget or trial.budget
                trial.member = self._known.studies[study].owner(trial, member)
            case TargetSet():
                self._set_target(event)
            case TargetDropped(trial=key, stage=name):
                self._drop(self._known.trials[key], name, event.at_s)
            case AttemptStarted():
                self._start(event)
            case AttemptEnded(trial=key, reason=reason):
                self._end_attempt(self._known.trials[key], reason, event.at_s)
                self._move(key, ATTEMPT_ENDS[reason])
            case WorkerAttached(trial=key, rank=rank, process=process):
                self._move(key, TrialInput.ATTACH)
                self._continue_attempt(key).processes[rank] = process
            case WorkerDetached(trial=key, rank=rank):
                self._continue_attempt(key).processes.pop(rank, None)
            case Progressed(trial=key, step=step, loss=loss):
                self._progress(self._known.trials[key], step, loss, event.at_s)
            case TrialEnded(trial=key, status=status):
                self._end(self._known.trials[key], status, event.at_s)
            case FellSilent():
                self._silence(event)

    def _register(self, event: StudyRegistered) -> None:
        known = self._known.studies.get(event.study)
        if known is not None and known.run == event.run:
            known.weight, known.rungs, known.barriers = event.weight, event.rungs, event.barriers
            self._go_on(known)
            self._hear(event.study)
            return
        if known is not None:
            past = self._known.past.setdefault(event.study, [])
            past.append(known)
            if self._known.kept.past_runs is not None:
                del past[: -self._known.kept.past_runs]
            self._move_study(known, StudyInput.END)
            known.ended_s = known.ended_s or event.at_s
            known.members.clear()
            for trial in known.trials.values():
                del self._known.trials[trial.key]
        self._known.studies[event.study] = StudyRecord(
            event.study, event.run, event.weight, event.rungs, event.barriers, event.at_s
        )  # fmt: skip

    @staticmethod
    def _go_on(study: StudyRecord) -> None:
        """Let a run go on that ended because its last member left."""
        if study.left:
            study.status, study.ended_s, study.left = StudyStatus.ACTIVE, None, False

    def _register_trial(self, study: str, name: str, at_s: float) -> TrialRecord:
        trials = self._known.studies[study].trials
        if name in trials:
            self._move(trials[name].key, TrialInput.REGISTER)
        else:
            self._hear(study)
            self._known.registered += 1
            trials[name] = TrialRecord(study, name, self._known.registered, at_s)
            self._known.trials[trials[name].key] = trials[name]
        return trials[name]

    def _set_target(self, event: TargetSet) -> None:
        trial = self._known.trials[event.trial]
        # Before the first report of an attempt that may go back it is not known where the trial is.
        reached_s = event.at_s if trial.done >= event.step and not trial.may_go_back else None
        stage = None if event.stage is None else self._known.studies[trial.study].stages[event.stage]
        known = trial.farthest_milestone if stage is None else stage.targets.get(trial.name, 0)
        if event.step > known:
            target = TargetRecord(event.step, event.stage, event.at_s, reached_s)
            trial.targets.append(target)
            trial.farthest = max(trial.farthest, event.step)
            study = self._known.studies[trial.study]
            study.farthest = max(study.farthest, event.step)
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
            record = self._known.studies[trial.study].stages[stage]
            record.missing.discard(trial.name)
            self._end_if_over(record, at_s)

    def _start(self, event: AttemptStarted) -> None:
        trial, before = self._known.trials[event.trial], self._known.trials[event.trial].attempt
        if before is not None and before.name == event.attempt and trial.status is not TrialStatus.SILENT:
            self._hear_all(trial)  # The event is a repeat: what was paused or lost meanwhile stays so.
            return
        if before is None or before.name != event.attempt:
            workers = by_rank(event.workers)
            staying = _staying(before, workers)
            self._end_attempt(trial, EndReason.MOVED, event.at_s)
            self._known.attempts += 1
            trial.attempts[event.attempt] = AttemptRecord(
                event.attempt,
                self._known.attempts,
                workers,
                event.profile,
                event.at_s,
                processes=staying,
                by_host=event.by_host,
                is_begun=event.step is not None or not event.may_go_back,
            )
            if event.step is not None and event.step < trial.done:
                self._go_back(trial, event.step)
            elif event.step is not None:
                self._reach(trial, event.step, event.at_s)
            if self._known.kept.attempts is not None and len(trial.attempts) > max(self._known.kept.attempts, 2):
                del trial.attempts[list(trial.attempts)[1]]
        self._move(event.trial, TrialInput.START)

    def _progress(self, trial: TrialRecord, step: int, loss: float | None, at_s: float) -> None:
        if trial.may_go_back and step < trial.done:
            self._go_back(trial, step)
        if trial.may_go_back and trial.attempt is not None:
            trial.attempt.is_begun = True
        trial.loss = trial.loss if loss is None else loss
        self._move(trial.key, TrialInput.PROGRESS)
        self._reach(trial, step, at_s)

    @staticmethod
    def _go_back(trial: TrialRecord, step: int) -> None:
        """Let a trial go on from an earlier step, as one that copies another, or starts from an older checkpoint.

        What it has reached stays reached: its search has judged it by that. Stages still wait for it. Milestones that were set
        before this attempt are not waited for any more, as the search says anew which one comes next.
        """
        trial.done, trial.loss = step, None
        trial.unreached = [target for target in trial.unreached if target.stage is not None or trial.is_of_attempt(target)]
        trial.farthest = max([step, *(target.step for target in trial.unreached)])

    def _reach(self, trial: TrialRecord, step: int, at_s: float) -> None:
        trial.done = max(trial.done, step)
        reached = [target for target in trial.unreached if trial.done >= target.step]
        trial.unreached = [target for target in trial.unreached if trial.done < target.step]
        for target in reached:
            target.reached_s = at_s
            self._arrive(trial, target.stage, at_s)

    def _end(self, trial: TrialRecord, status: TrialStatus, at_s: float) -> None:
        self._hear(trial.study)
        self._end_attempt(trial, EndReason.ENDED, at_s)
        self._move(trial.key, ENDS[status])
        trial.ended_s = at_s
        for stage in self._known.waiting_for(trial):
            self._arrive(trial, stage.name, at_s)
        trial.unreached.clear()

    def _arrive(self, trial: TrialRecord, stage: str | None, at_s: float) -> None:
        if stage is not None:
            record = self._known.studies[trial.study].stages[stage]
            if trial.status.is_finished or trial.done >= record.targets[trial.name]:
                record.missing.discard(trial.name)
                self._end_if_over(record, at_s)

    def _silence(self, event: FellSilent) -> None:
        study = self._known.studies[event.study]
        if event.trial is not None:
            trial = study.trials[event.trial]
            self._end_attempt(trial, EndReason.SILENT, event.at_s)
            self._set_status(trial, _status(TRIAL_TRANSITIONS[TrialInput.SILENCE][trial.status]))
        elif event.stage is not None:
            stage = study.stages[event.stage]
            stage.status = _status(STAGE_TRANSITIONS[StageInput.SILENCE][stage.status])
        else:
            self._move_study(study, StudyInput.SILENCE)

    def _move(self, key: str, what: TrialInput) -> None:
        """Give a trial the status that an input leads to, and take note that it, its stages and its study were heard of."""
        trial = self._known.trials[key]
        outcome = TRIAL_TRANSITIONS[what][trial.status]
        if isinstance(outcome, TrialStatus):
            self._set_status(trial, outcome)
            if outcome is TrialStatus.RUNNING:
                self._continue_attempt(key)
        self._hear_all(trial)

    def _hear_all(self, trial: TrialRecord) -> None:
        """Take note that a trial's study, and the stages that wait for it, were heard of."""
        self._hear(trial.study)
        for stage in self._known.waiting_for(trial):
            self._move_stage(trial.study, stage, StageInput.HEAR)

    def _set_status(self, trial: TrialRecord, status: TrialStatus) -> None:
        trial.status = status
        self._known.set_running(trial, status is TrialStatus.RUNNING)

    def _move_stage(self, study: str, stage: StageRecord, what: StageInput) -> None:
        outcome = STAGE_TRANSITIONS[what][stage.status]
        if isinstance(outcome, StageStatus):
            stage.status = outcome
        self._hear(study)

    def _hear(self, study: str) -> None:
        self._move_study(self._known.studies[study], StudyInput.HEAR)

    @staticmethod
    def _move_study(study: StudyRecord, what: StudyInput) -> None:
        outcome = STUDY_TRANSITIONS[what][study.status]
        if isinstance(outcome, StudyStatus):
            study.status = outcome

    def _continue_attempt(self, key: str) -> AttemptRecord:
        """Return a trial's present attempt, which goes on if it was taken for over."""
        attempt = self._known.trials[key].attempt
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


def _staying(attempt: AttemptRecord | None, workers: tuple[Worker, ...]) -> dict[int, Process]:
    """Return the processes of a running attempt whose ranks stay on their hosts: others may take their places there."""
    if attempt is None or attempt.ended_s is not None:
        return {}
    places = {(worker.rank, worker.host) for worker in workers}
    before = {worker.rank: worker.host for worker in attempt.workers}
    return {rank: process for rank, process in attempt.processes.items() if (rank, before[rank]) in places}


Status = TypeVar("Status", TrialStatus, StageStatus)


def _status(outcome: Status | NoTransition) -> Status:
    assert not isinstance(outcome, NoTransition)
    return outcome
