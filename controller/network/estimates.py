"""What the controller learns of trials: counters and progress in, measurements into the journal, figures out."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from beamer.errors import PlatformError
from beamer.network.estimates import Sourced
from beamer.network.events import Measured
from beamer.network.ledger import NetworkLedger
from beamer.network.protocol import Counters
from beamer.network.trial_measurements import TrialMeasurements
from beamer.studies.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    FellSilent,
    Progressed,
    StudyEnded,
    StudyRegistered,
    TrialEnded,
)
from beamer.studies.model import trial_key
from beamer.studies.records import TrialRecord
from beamer.studies.tracker import Tracker
from controller.limited_log import LimitedLog


class Estimates:
    """Measures the trials that run.

    record: takes in an event, journaled; it is given those that `take_in` and `count` lead to. clock: Unix time in seconds.
    """

    def __init__(
        self, ledger: NetworkLedger, tracker: Tracker, record: Callable[[Event], bool], clock: Callable[[], float]
    ) -> None:
        self._ledger = ledger
        self._tracker = tracker
        self._record = record
        self._clock = clock
        self._meters = TrialMeasurements(ledger, tracker)
        self._limited = LimitedLog()
        self._logged: dict[str, frozenset[str]] = {}  # overruled fields by trial
        for key, _ in ledger.profiles.overruled:
            self._logged[key] = ledger.profiles.overruled_of(key)

    def take_in(self, event: Event) -> None:
        """Take in an event that was recorded."""
        match event:
            case AttemptStarted(trial=key) | Measured(trial=key):
                self._log_overruled(key)
            case Progressed(trial=key):
                self._record_all(self._meters.progressed(key, event.at_s))
            case TrialEnded(trial=key):
                self._logged.pop(key, None)
                self._meters.forget(key)
            case AttemptEnded(trial=key):
                self._meters.forget(key)
            case FellSilent(study=study, trial=name) if name is not None:
                self._meters.forget(trial_key(study, name))
            case StudyRegistered() | StudyEnded():
                self._logged = {key: names for key, names in self._logged.items() if self._ledger.profiles.overruled_of(key)}
                self._meters.prune()

    def count(self, agent: str, counters: Counters) -> None:
        """Take in an agent's counters. They are of now, as reports of progress are: hosts' clocks may differ."""
        self._record_all(self._meters.counted(agent, counters.workers, self._clock()))

    def figures(self, trial: TrialRecord) -> dict[str, Any] | None:
        """Return what is used of a trial and where it comes from; None for one of which nothing is kept.

        Nothing is of one that has not run, of a past run, and of one that ended unmeasured or before many others of its study.
        """
        attempt = trial.attempt
        if attempt is None or self._tracker.trials.get(trial.key) is not trial:
            return None
        if trial.status.is_finished and self._ledger.profiles.of_trial(trial.key) is None:
            return None
        used = self._ledger.profiles.of(trial.key, attempt, self._meters.measurement(trial.key))
        left = self._ledger.remaining(self._tracker.study(trial.study), trial)
        return {
            "sync_bytes": {**asdict(used.sync_bytes), "declared": attempt.profile.sync_bytes},
            "compute_s": {**asdict(used.compute_s), "declared": attempt.profile.compute_s},
            "remaining_steps": {**asdict(left), "declared": _declared(left)},
        }

    def _record_all(self, events: Iterable[Measured]) -> None:
        for event in events:
            try:
                self._record(event)
            except PlatformError as error:
                # What was measured is not lost: it is as new at the next reading.
                self._limited.error("the journal takes no measurement", None, trial=event.trial, reason=str(error))

    def _log_overruled(self, key: str) -> None:
        """Log each field of a declaration once that is not believed any more."""
        overruled, logged = self._ledger.profiles.overruled_of(key), self._logged.pop(key, frozenset())
        attempt, measured = self._tracker.trial(key).attempt, self._ledger.profiles.of_trial(key)
        for name in sorted(overruled - logged):
            self._limited.warning(
                "a declaration is overruled by what was measured",
                None,
                (key, name),
                trial=key,
                field=name,
                declared=getattr(attempt and attempt.profile, name),
                measured=getattr(measured, name),
            )
        if overruled:
            self._logged[key] = overruled


def _declared(left: Sourced) -> float | None:
    return left.value if left.source == "declared" else None
