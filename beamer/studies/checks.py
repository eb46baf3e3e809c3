"""What an event would change, and whether it is legal: from what is known and the tables of `beamer.studies.transitions`."""

from beamer.errors import ConflictError, InputError, NotFoundError
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
from beamer.studies.model import (
    MAX_KEY_CHARACTERS,
    Process,
    StageStatus,
    StudyStatus,
    TrialStatus,
    by_rank,
    check_name,
    trial_key,
)
from beamer.studies.records import AttemptRecord, StudyRecord, TrialRecord
from beamer.studies.registration import (
    check_lease,
    check_process,
    check_profile,
    check_rungs,
    check_step,
    check_weight,
    check_workers,
)
from beamer.studies.registry import StudyRegistry, find
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


class Checks:
    """Check events against what is known, which is left as it is."""

    def __init__(self, known: StudyRegistry) -> None:
        self._known = known

    def check(self, event: Event) -> bool | None:
        """Say whether an event changes anything; None: it is none of studies. Raises as `Tracker.check`."""
        match event:
            case StudyRegistered():
                return self._check_study(event)
            case StudyEnded(study=study):
                return STUDY_TRANSITIONS[StudyInput.END][self._known.study(study).status] is not NoTransition.LATE
            case MemberJoined():
                return self._check_member(event)
            case MemberLeft(study=study, member=member):
                known = self._known.study(study)
                return member in known.members or bool(known.begun_by(member))
            case StageRegistered(study=study, stage=name):
                return self._check_stage(study, name)
            case StageSealed(study=study, stage=name):
                stage = self._known.stage(study, name)
                return STAGE_TRANSITIONS[StageInput.SEAL][stage.status] is not NoTransition.LATE
            case TrialRegistered():
                return self._check_trial(event)
            case TargetSet():
                return self._check_target(event)
            case TargetDropped(trial=key, stage=name):
                trial = self._known.trial(key)
                if name is not None:
                    self._known.stage(trial.study, name)
                waited = any(target.stage == name for target in trial.unreached)
                return self._moves(key, TrialInput.TARGET) and waited
            case AttemptStarted():
                return self._check_attempt(event)
            case AttemptEnded(trial=key, attempt=attempt, reason=reason):
                if reason not in ATTEMPT_ENDS:
                    raise InputError("reason", reason.value, "paused or lost")
                return self._is_present(self._known.trial(key), attempt) and self._moves(key, ATTEMPT_ENDS[reason])
            case WorkerAttached():
                return self._check_worker(event)
            case WorkerDetached():
                return self._check_detached(event)
            case Progressed():
                return self._check_progress(event)
            case TrialEnded(trial=key, status=status):
                if status not in ENDS:
                    raise InputError("status", status.value, "finished, killed or failed")
                return self._moves(key, ENDS[status])
            case FellSilent():
                return self._check_silence(event)
        return None

    def _check_study(self, event: StudyRegistered) -> bool:
        known = self._known.studies.get(event.study)
        check_name(event.study, "study")
        if len(trial_key(event.study, "t")) > MAX_KEY_CHARACTERS:
            raise InputError("study", event.study, "a shorter name, which leaves room for its trials'; / and % count three")
        check_name(event.run, "run")
        check_weight(event.weight)
        check_rungs(event.rungs)
        if known is None:
            return True
        if known.run != event.run:
            return all(past.run != event.run for past in self._known.past.get(event.study, ()))
        if known.left:
            return True
        if STUDY_TRANSITIONS[StudyInput.REGISTER][known.status] is NoTransition.REFUSED:
            raise ConflictError("run", event.run, f"another run of {event.study}: this one has ended")
        declared = (known.weight, known.rungs, known.barriers)
        return declared != (event.weight, event.rungs, event.barriers) or known.status is StudyStatus.SILENT

    def _check_stage(self, study: str, name: str) -> bool:
        record = self._known.study(study)
        if name not in record.stages:
            check_name(name, "stage")
            self._active(study, "stage", name)
            return True
        return record.stages[name].status.is_silent or record.status is StudyStatus.SILENT

    def _check_member(self, event: MemberJoined) -> bool:
        check_name(event.member, "member")
        check_lease(event.lease_s)
        study = self._known.study(event.study)
        if study.status is StudyStatus.ENDED and not study.left:
            raise ConflictError("run", study.run, f"another run of {event.study}: this one has ended")
        known = study.members.get(event.member)
        said = event.lease_s, event.host, event.pid
        return known is None or (known.lease_s, known.host, known.pid) != said or study.status is not StudyStatus.ACTIVE

    def _check_trial(self, event: TrialRegistered) -> bool:
        study = self._known.study(event.study)
        if event.budget is not None:
            check_step(event.budget, "budget", 1)
        known = study.trials.get(event.trial)
        if known is None:
            check_name(event.trial, "trial")
            if len(trial_key(event.study, event.trial)) > MAX_KEY_CHARACTERS:
                most = MAX_KEY_CHARACTERS - len(trial_key(event.study, ""))
                raise InputError(
                    "trial", event.trial, f"at most {most} characters, beside the study's name; / and % count three"
                )
            self._active(event.study, "trial", event.trial)
            return True
        budget, member = event.budget or known.budget, study.owner(known, event.member)
        changed = (budget, member) != (known.budget, known.member)
        return self._moves(known.key, TrialInput.REGISTER) and (changed or self._known.is_context_silent(known))

    def _check_target(self, event: TargetSet) -> bool:
        trial = self._known.trial(event.trial)
        check_step(event.step, "step", 1)
        moves = self._moves(event.trial, TrialInput.TARGET)
        if event.stage is None:
            return moves and (event.step > trial.farthest_milestone or self._known.is_context_silent(trial))
        stage = self._known.stage(trial.study, event.stage)
        if trial.name in stage.targets:
            farther = event.step > stage.targets[trial.name] or self._known.is_context_silent(trial)
            return moves and stage.status is not StageStatus.DONE and farther
        if not moves:
            return False
        if STAGE_TRANSITIONS[StageInput.JOIN][stage.status] is NoTransition.REFUSED:
            raise ConflictError("stage", stage.name, f"an open stage; it is {stage.status.value}, no further trial may join")
        return True

    def _check_attempt(self, event: AttemptStarted) -> bool:
        trial = self._known.trial(event.trial)
        check_name(event.attempt, "attempt")
        check_workers(event.workers)
        check_profile(event.profile)
        if event.step is not None:
            check_step(event.step, "step")
        known = trial.attempts.get(event.attempt)
        if known is not None and (known.workers, known.profile) != (by_rank(event.workers), event.profile):
            raise ConflictError("attempt", event.attempt, f"a name that no other attempt of {trial.key} has")
        if known is not None:
            present = self._is_present(trial, event.attempt) and not trial.status.is_finished
            return present and self._known.is_silent(trial)
        return self._moves(event.trial, TrialInput.START)

    def _check_progress(self, event: Progressed) -> bool:
        trial = self._known.trial(event.trial)
        check_step(event.step, "step")
        if not self._moves(event.trial, TrialInput.PROGRESS):
            return False
        if event.step < trial.done and not trial.may_go_back and trial.status is TrialStatus.RUNNING:
            expected = (
                f"at least {trial.done}, which its attempt has come to: a trial goes back to an earlier step by another one"
            )
            raise ConflictError("step", event.step, expected)
        differs = event.loss is not None and repr(event.loss) != repr(trial.loss)  # NaN differs from itself.
        newer = event.step > trial.done or (event.step == trial.done and differs)
        return newer or trial.may_go_back or self._known.is_silent(trial)

    def _check_worker(self, event: WorkerAttached) -> bool:
        trial = self._known.trial(event.trial)
        check_process(event.process)
        if trial.attempt is None:
            raise NotFoundError("attempt", event.trial, "a trial that runs: start an attempt of it first")
        present = self._present(trial, event.rank)
        if not self._moves(event.trial, TrialInput.ATTACH):
            return False
        known = present.processes.get(event.rank)
        if known is not None and _is_older(event.process, known):
            return False
        return trial.status is not TrialStatus.RUNNING or known != event.process

    def _check_detached(self, event: WorkerDetached) -> bool:
        known = self._present(self._known.trial(event.trial), event.rank).processes.get(event.rank)
        is_meant = known is not None and (known.start == event.start or 0 in (known.start, event.start))
        return self._moves(event.trial, TrialInput.DETACH) and is_meant

    def _check_silence(self, event: FellSilent) -> bool:
        study = self._known.study(event.study)
        if event.trial is not None:
            return self._moves(find(study.trials, "trial", event.trial).key, TrialInput.SILENCE)
        if event.stage is not None:
            stage = self._known.stage(event.study, event.stage)
            return STAGE_TRANSITIONS[StageInput.SILENCE][stage.status] is not NoTransition.LATE
        return STUDY_TRANSITIONS[StudyInput.SILENCE][study.status] is not NoTransition.LATE

    def _moves(self, key: str, what: TrialInput) -> bool:
        """Say whether an input takes effect in a trial's present status. Raises `ConflictError` where it is refused."""
        trial = self._known.trial(key)
        outcome = TRIAL_TRANSITIONS[what][trial.status]
        if outcome is NoTransition.REFUSED:
            remedy = (
                "start another, or another run of its study" if trial.status.is_finished else "start an attempt of it first"
            )
            raise ConflictError("trial", key, f"one that is not {trial.status.value}: {remedy}")
        return outcome is not NoTransition.LATE

    def _active(self, name: str, field: str, value: str) -> StudyRecord:
        study = self._known.study(name)
        if STUDY_TRANSITIONS[StudyInput.ADD][study.status] is NoTransition.REFUSED:
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
        find(trial.attempts, "attempt", attempt)
        return trial.attempt is not None and trial.attempt.name == attempt


def _is_older(process: Process, known: Process) -> bool:
    """Say whether a process of a rank started before the one that is known, on the same host."""
    return 0 < process.start < known.start and process.namespace == known.namespace
