"""What the tracker writes down of studies, stages and trials; only `beamer.studies.tracker` changes it.

Times are Unix times, None until they come.
"""

from dataclasses import dataclass, field
from functools import cached_property

from pydantic import ConfigDict

from beamer.studies.model import EndReason, Process, Profile, Rung, StageStatus, StudyStatus, TrialStatus, Worker, trial_key


@dataclass
class AttemptRecord:
    """An attempt: where a trial runs or ran.

    seq: its number among all attempts of all trials, from 1, never reused. processes: by rank, of the workers that attached.
    by_host: as of `AttemptStarted`. is_begun: whether it is known at which step of the trial it began.
    """

    name: str
    seq: int
    workers: tuple[Worker, ...]
    profile: Profile
    started_s: float
    ended_s: float | None = None
    reason: EndReason | None = None
    processes: dict[int, Process] = field(default_factory=dict)
    by_host: bool = False
    is_begun: bool = False


@dataclass
class TargetRecord:
    """A step of a trial that is or was waited for. stage: that waits for it, None for a milestone of the trial alone."""

    step: int
    stage: str | None
    set_s: float
    reached_s: float | None = None

    @property
    def time_s(self) -> float | None:
        """Seconds from when it was set until it was reached."""
        return None if self.reached_s is None else self.reached_s - self.set_s


@dataclass
class MemberRecord:
    """A process that takes part in a study; its fields are those of `MemberJoined`."""

    name: str
    joined_s: float
    lease_s: float
    host: str = ""
    pid: int = 0


@dataclass
class TrialRecord:
    """A trial and how far it has come.

    seq: number of its registration among all trials. done: steps completed. loss: the last one reported. attempts: every one by
    name, the present or last one at the end. targets: every one, in the order in which they were set; unreached: those of them
    that are waited for. farthest: the largest of their steps, since the trial last went back to an earlier step.
    member: that began it.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", ser_json_inf_nan="strings")  # The latter setting is for losses.

    study: str
    name: str
    seq: int
    registered_s: float
    budget: int | None = None
    status: TrialStatus = TrialStatus.WAITING
    done: int = 0
    loss: float | None = None
    attempts: dict[str, AttemptRecord] = field(default_factory=dict)
    targets: list[TargetRecord] = field(default_factory=list)
    unreached: list[TargetRecord] = field(default_factory=list)
    farthest: int = 0
    ended_s: float | None = None
    member: str | None = None

    @cached_property
    def key(self) -> str:
        """The trial's key."""
        return trial_key(self.study, self.name)

    @property
    def attempt(self) -> AttemptRecord | None:
        """The present or last attempt."""
        return next(reversed(self.attempts.values()), None)

    @property
    def is_silent(self) -> bool:
        """Whether nothing was heard of it for too long."""
        return self.status is TrialStatus.SILENT

    @property
    def may_go_back(self) -> bool:
        """Whether its next report of progress may name an earlier step: the first one of an attempt that runs."""
        runs = self.status in (TrialStatus.RUNNING, TrialStatus.SILENT)
        return runs and self.attempt is not None and not self.attempt.is_begun

    @property
    def farthest_milestone(self) -> int:
        """The step that a new milestone lies beyond: where the trial may go back, only those of its present attempt count."""
        if not self.may_go_back:
            return self.farthest
        return max((target.step for target in self.unreached if target.stage is None and self.is_of_attempt(target)), default=0)

    def is_of_attempt(self, target: TargetRecord) -> bool:
        """Say whether a target was set since the present attempt started."""
        return self.attempt is not None and target.set_s >= self.attempt.started_s

    @property
    def target(self) -> TargetRecord | None:
        """What is waited for now: the last target set, reached or not."""
        return self.targets[-1] if self.targets else None


@dataclass
class StageRecord:
    """A stage. targets: the step that each of its trials is to reach, by the trial's name, in the order in which they joined.

    missing: those that have neither reached their target nor ended.
    """

    name: str
    registered_s: float
    status: StageStatus = StageStatus.OPEN
    sealed_s: float | None = None
    ended_s: float | None = None
    targets: dict[str, int] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)

    @property
    def sct_s(self) -> float | None:
        """Its stage completion time: seconds from its registration to its end."""
        return None if self.ended_s is None else self.ended_s - self.registered_s


@dataclass
class StudyRecord:
    """A study's run, with its stages and trials by name, in order of registration.

    barriers: whether its rungs are stages. farthest: the largest target that a trial of it was given. members: the processes
    that take part, by name. left: whether it has ended because the last of them left.
    """

    name: str
    run: str
    weight: float
    rungs: tuple[Rung, ...]
    barriers: bool
    registered_s: float
    status: StudyStatus = StudyStatus.ACTIVE
    ended_s: float | None = None
    farthest: int = 0
    stages: dict[str, StageRecord] = field(default_factory=dict)
    trials: dict[str, TrialRecord] = field(default_factory=dict)
    members: dict[str, MemberRecord] = field(default_factory=dict)
    left: bool = False

    def owner(self, trial: TrialRecord, member: str | None) -> str | None:
        """Return which member a trial is of that `member` registers: whoever began it, as long as that one takes part."""
        return trial.member if trial.member in self.members else member or trial.member

    def goes_on_without(self, member: str) -> bool:
        """Say whether anybody goes on with the study when a member leaves.

        That is another member; or whoever runs a trial that no member has begun, or one that is gone; or whoever has registered
        one and takes part without being a member, as clients of protocol version 1 do.
        """
        others = (trial for trial in self.trials.values() if trial.member != member and not trial.status.is_finished)
        runs = any(trial.status is TrialStatus.RUNNING or (trial.member is None and not trial.is_silent) for trial in others)
        return runs or not self.members.keys() <= {member}

    def begun_by(self, member: str) -> list[TrialRecord]:
        """Return the trials that a member began and that have not ended."""
        return [trial for trial in self.trials.values() if trial.member == member and not trial.status.is_finished]

    @property
    def later(self) -> tuple[Rung, ...]:
        """The declared rungs that are stages and have not been registered yet."""
        return tuple(rung for rung in self.rungs if rung.name not in self.stages) if self.barriers else ()

    @property
    def makespan_s(self) -> float | None:
        """Seconds from the start of its first attempt to the end of its last trial; None while a trial has not ended."""
        started = [next(iter(t.attempts.values())).started_s for t in self.trials.values() if t.attempts]
        ended = [trial.ended_s for trial in self.trials.values()]
        known = [at_s for at_s in ended if at_s is not None]
        return max(known) - min(started) if started and len(known) == len(ended) else None

    @property
    def search_s(self) -> float | None:
        """Seconds from its registration to its end as its tuner reports it."""
        return None if self.ended_s is None else self.ended_s - self.registered_s
