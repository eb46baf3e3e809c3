"""What an answer says of a request that was carried out and will not do what its sender expects."""

from beamer.studies.events import StudyRegistered, TrialEnded
from beamer.studies.model import StudyStatus, TrialStatus
from beamer.studies.tracker import Tracker

_WITHOUT = frozenset((TrialStatus.WAITING, TrialStatus.PAUSED, TrialStatus.LOST))


def replaced_run(tracker: Tracker, event: StudyRegistered) -> str | None:
    """Say that a registration ends a run that processes take part in, None where it does not."""
    known = tracker.studies.get(event.study)
    if known is None or known.run == event.run or known.status is StudyStatus.ENDED or not known.members:
        return None
    who = "a process takes" if len(known.members) == 1 else f"{len(known.members)} processes take"
    rule = "processes of one search name the same run, by BEAMER_RUN or the argument `run`"
    return f"it replaces and ends run {known.run}, which {who} part in, or did so lately: {rule}"


def without_attempt(tracker: Tracker, trial: str) -> str | None:
    """Say that a trial that reports progress is not known to run, so that it is not ordered; None where it is."""
    known = tracker.trials.get(trial)
    if known is None or known.status not in _WITHOUT:
        return None
    status = "has not started" if known.status is TrialStatus.WAITING else f"is {known.status.value}"
    return f"trial {known.name} {status}, so that its traffic has no class: say where it runs by starting an attempt"


def never_ran(tracker: Tracker, event: TrialEnded) -> str | None:
    """Say that a trial has finished that never started, None where it has."""
    known = tracker.trials.get(event.trial)
    if event.status is not TrialStatus.FINISHED or known is None or known.status is not TrialStatus.WAITING:
        return None
    return f"trial {known.name} finishes, and has not started: its traffic never had a class, its times are not known"
