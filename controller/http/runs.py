"""Which run of a study is meant, where a process of an earlier one may still speak."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from beamer.errors import ConflictError, NotFoundError
from beamer.studies.events import StudyRegistered
from beamer.studies.model import StudyStatus
from beamer.studies.records import StudyRecord
from beamer.studies.tracker import Tracker


def check_run(tracker: Tracker, study: str, run: str | None) -> None:
    """Check that a run is a study's present one; None is.

    Raises `ConflictError` for one that another has replaced, `NotFoundError` for one that is not known, or not yet.
    """
    if run is not None and find_run(tracker, study, run).run != tracker.study(study).run:
        raise ConflictError("run", run, f"{tracker.study(study).run}, the present run of {study}, which has replaced it")


def check_goes_on(tracker: Tracker, study: str, run: str | None) -> None:
    """Check that a request that names no run does not mean one that is over: a process may be ahead of its study's next run.

    Raises `NotFoundError`, upon which a client tries again for a while.
    """
    known = tracker.study(study)
    if run is None and known.status is StudyStatus.ENDED:
        raise NotFoundError("run", study, f"a run that goes on: {known.run}, the last one of {study}, has ended")


def find_run(tracker: Tracker, study: str, run: str | None) -> StudyRecord:
    """Return a run of a study, present (None, too) or past. Raises `NotFoundError`."""
    present = tracker.study(study)
    if run in (None, present.run):
        return present
    for past in tracker.past_runs(study):
        if past.run == run:
            return past
    raise NotFoundError("run", run, f"a registered run of {study}; the present one is {present.run}")


def study_event(tracker: Tracker, event: StudyRegistered, run: str | None, given: Mapping[str, Any]) -> StudyRegistered:
    """Return the registration of a study's run with what is given of it, and the rest as it is.

    event: names the study, with the defaults of a new run. run: None for the present one. given: weight, rungs and barriers, as
    far as they are. Raises `ConflictError` for a run that another has replaced.
    """
    known = tracker.studies.get(event.study)
    if known is None:
        return replace(event, run=run or event.run, **given)
    if any(past.run == run for past in tracker.past_runs(event.study)):
        check_run(tracker, event.study, run)
    if run not in (None, known.run):
        return replace(event, run=run, **given)
    return replace(event, run=known.run, **{"weight": known.weight, "rungs": known.rungs, "barriers": known.barriers, **given})
