"""Which members of studies are gone: processes that take part in a search, of which nothing was heard for their lease.

A member says how long its lease is and renews it by joining again; a report on a trial that it began counts as much. What a
member that is gone began, and nobody else looks after, is left out of account until somebody speaks of it again. Nothing of it
is ended: the process may have been cut off.

Pure: times come in as arguments, events go out. When a member was heard of is not journaled: a restart counts as news of all.
"""

from collections.abc import Iterable, Iterator

from beamer.studies.events import AttemptStarted, Event, FellSilent, MemberJoined, MemberLeft, Progressed
from beamer.studies.model import StudyStatus, TrialStatus
from beamer.studies.records import StudyRecord, TrialRecord
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
        present = {member.name: self.heard_s(study.name, member.name) + member.lease_s for member in study.members.values()}
        if all(due_s > now for due_s in present.values()):
            self._ask_again(present.values())
            return
        running = _running_by_member(study)
        for name, due_s in present.items():
            reported_s = max((self._reported_s.get(trial.key, 0.0) for trial in running.get(name, ())), default=0.0)
            present[name] = max(due_s, reported_s + study.members[name].lease_s)
        gone = [name for name, due_s in present.items() if due_s <= now]
        self._ask_again(due_s for due_s in present.values() if due_s > now)
        silent = [trial for name in gone for trial in running.get(name, ()) if trial.key not in held]
        yield from (MemberLeft(now, study.name, name, lost=True) for name in gone)
        yield from (FellSilent(now, study.name, trial=trial.name) for trial in silent)
        goes_on = len(gone) < len(present) or sum(map(len, running.values())) > len(silent)
        if gone and not goes_on and study.status is StudyStatus.ACTIVE:
            yield FellSilent(now, study.name)

    def _ask_again(self, due_s: Iterable[float]) -> None:
        soonest = min(due_s, default=None)
        if soonest is not None:
            self.next_s = soonest if self.next_s is None else min(self.next_s, soonest)


def _running_by_member(study: StudyRecord) -> dict[str | None, list[TrialRecord]]:
    """Return the trials of a study that run, by the member that began them."""
    found: dict[str | None, list[TrialRecord]] = {}
    for trial in study.trials.values():
        if trial.status is TrialStatus.RUNNING:
            found.setdefault(trial.member, []).append(trial)
    return found
