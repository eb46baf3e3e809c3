"""Which members of studies are gone: processes that take part in a search, of which nothing was heard for their lease.

A member says how long its lease is and renews it by joining again; a report on a trial that it began counts as much. What a
member that is gone began, and nobody else looks after, is left out of account until somebody speaks of it again. Nothing of it
is ended: the process may have been cut off.

Pure: times come in as arguments, events go out. When a member was heard of is not journaled: a restart counts as news of all.
"""

from collections.abc import Iterator

from beamer.studies.events import AttemptStarted, Event, FellSilent, MemberJoined, MemberLeft, Progressed
from beamer.studies.model import StudyStatus, TrialStatus
from beamer.studies.records import StudyRecord
from beamer.studies.tracker import Tracker


class Members:
    """Know when each member was last heard of. now: the time of the start, at which all were."""

    def __init__(self, now: float) -> None:
        self._started_s = now
        self._heard_s: dict[tuple[str, str], float] = {}
        self._reported_s: dict[str, float] = {}  # when something was last heard of each trial
        self.next_s: float | None = None

    def hear(self, event: Event, now: float) -> None:
        """Take in that somebody has said this, whether or not it changes anything."""
        if isinstance(event, MemberJoined):
            self._heard_s[event.study, event.member] = now
        elif isinstance(event, Progressed | AttemptStarted):
            self._reported_s[event.trial] = now

    def heard_s(self, study: str, member: str) -> float:
        """Return when a member was last heard of, a Unix time."""
        return self._heard_s.get((study, member), self._started_s)

    def due(self, tracker: Tracker, now: float, held: frozenset[str]) -> list[Event]:
        """Return what follows from members that are gone; `next_s` is when to ask again, None for never.

        held: keys of trials with a worker that holds a lease: their workers' hosts tell how they are.
        """
        self.next_s = None
        present = {(study.name, member) for study in tracker.studies.values() for member in study.members}
        self._heard_s = {name: at_s for name, at_s in self._heard_s.items() if name in present}
        self._reported_s = {key: at_s for key, at_s in self._reported_s.items() if key in tracker.running_keys}
        return [event for study in tracker.studies.values() for event in self._of_study(study, now, held)]

    def _of_study(self, study: StudyRecord, now: float, held: frozenset[str]) -> Iterator[Event]:
        if not study.members:
            return
        left, silent = set(study.members), set[str]()
        for member in study.members.values():
            running = [trial for trial in study.begun_by(member.name) if trial.status is TrialStatus.RUNNING]
            heard_s = max([self.heard_s(study.name, member.name), *(self._reported_s.get(trial.key, 0.0) for trial in running)])
            due_s = heard_s + member.lease_s
            if due_s > now:
                self.next_s = due_s if self.next_s is None else min(self.next_s, due_s)
                continue
            left.discard(member.name)
            yield MemberLeft(now, study.name, member.name, lost=True)
            for trial in running:
                if trial.key not in held:
                    silent.add(trial.name)
                    yield FellSilent(now, study.name, trial=trial.name)
        runs = any(trial.status is TrialStatus.RUNNING and trial.name not in silent for trial in study.trials.values())
        if not left and not runs and study.status is StudyStatus.ACTIVE:
            yield FellSilent(now, study.name)
