"""What is used of a trial's profile: what was declared, measured or predicted, and where each value comes from.

What is not declared is measured; until it is, it is predicted: from the trial's attempt before, else the median of its study's
other trials, else a constant. What is declared stands until it is contradicted by more than `CONTRADICTION`; from then on, for
the rest of the attempt, the measurement is used, however near to the declaration it comes again, so that nothing flaps. An
attempt that follows is believed only what the measurement of the one before does not contradict. A declaration of bytes is also
contradicted by many more bytes than it says without any reported progress, without which nothing could be measured.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from statistics import median

from beamer.network.events import Measured
from beamer.network.job import UNDECLARED_BYTES
from beamer.network.traffic_measurement import TOLERANCE, AttemptMeasurement
from beamer.studies.model import Profile, split_key
from beamer.studies.records import AttemptRecord

CONTRADICTION = 2.0  # A declaration is not used where it differs from the measurement by more than this factor.
CHANGE = 0.1  # A measurement must differ from the one before by this share to be used, so that events and new orders are few.
LEARNT_DIGITS = 3  # Undeclared bytes have so many digits: far finer than `CHANGE`, and alike for trials that are placed alike.
DECLARABLE = ("sync_bytes", "compute_s")  # fields of a profile that are measured
# The median of so many recent trials of a study is predicted for others, to bound a decision's time in searches of thousands.
RECENT_TRIALS = 64


class Source(StrEnum):
    """Where a value comes from."""

    DECLARED = "declared"
    MEASURED = "measured"
    PREDICTED = "predicted"


@dataclass(frozen=True)
class Sourced:
    """A value that is used, and where it comes from.

    error: relative difference between what is used, or was predicted, and what was measured last; None before that. overruled:
    whether something else was declared.
    """

    value: float
    source: Source
    error: float | None = None
    overruled: bool = False


@dataclass(frozen=True)
class ProfileEstimate:
    """What is used of a trial's profile."""

    sync_bytes: Sourced
    compute_s: Sourced


@dataclass
class ProfileEstimates:
    """What was measured of trials, by study and trial, the latest measured last; changed by events only.

    overruled: (trial, field) of declarations that were contradicted in the present attempt, or by the one before.
    ended: the last `RECENT_TRIALS` measured trials of each study that have ended; of those before nothing is kept.
    """

    measured: dict[str, dict[str, Measured]] = field(default_factory=dict)
    overruled: set[tuple[str, str]] = field(default_factory=set)
    ended: dict[str, deque[str]] = field(default_factory=dict)

    def measure(self, event: Measured, declared: Profile) -> None:
        """Take in a measurement of a trial's present attempt."""
        of_study = self.measured.setdefault(split_key(event.trial)[0], {})
        of_study.pop(event.trial, None)
        of_study[event.trial] = event
        self.overruled.update((event.trial, name) for name in contradicted(declared, event))

    def start(self, trial: str, attempt: AttemptRecord) -> None:
        """Take in that an attempt of a trial has started, or goes on after a silence."""
        before = self.of_trial(trial)
        if before is not None and before.attempt != attempt.name:
            self.overruled.difference_update((trial, name) for name in DECLARABLE)
            self.overruled.update((trial, name) for name in contradicted(attempt.profile, before))

    def end(self, trial: str) -> None:
        """Take in that a trial has ended: only others' predictions need what was measured of it."""
        study = split_key(trial)[0]
        if self.of_trial(trial) is None:
            return
        ended = self.ended.setdefault(study, deque())
        ended.append(trial)
        if len(ended) > RECENT_TRIALS:
            oldest = ended.popleft()
            del self.measured[study][oldest]
            self.overruled.difference_update((oldest, name) for name in DECLARABLE)

    def begin_anew(self, study: str) -> None:
        """Forget a study's trials."""
        self.measured.pop(study, None)
        self.ended.pop(study, None)
        self.overruled = {(trial, name) for trial, name in self.overruled if split_key(trial)[0] != study}

    def overruled_of(self, trial: str) -> frozenset[str]:
        """Return the fields of a trial's declaration that were contradicted."""
        return frozenset(name for name in DECLARABLE if (trial, name) in self.overruled) if self.overruled else frozenset()

    def of_trial(self, trial: str) -> Measured | None:
        """Return the last measurement of any attempt of a trial that is used."""
        return self.measured.get(split_key(trial)[0], {}).get(trial)

    def knows_of(self, study: str | None) -> bool:
        """Say whether anything that was measured of a trial of a study is used."""
        return bool(study is not None and self.measured.get(study))

    def is_new(self, event: Measured) -> bool:
        """Say whether a measurement is an attempt's first, or differs from the one that is used by more than `CHANGE`."""
        last = self.of_trial(event.trial)
        if last is None or last.attempt != event.attempt:
            return True
        return _differs(event.sync_bytes, last.sync_bytes, last.sync_bytes or 0.0) or _differs(
            event.compute_s, last.compute_s, last.iteration_s or 0.0
        )

    def profile(self, trial: str, attempt: AttemptRecord) -> Profile:
        """Return the profile of an attempt of a trial with what is used in place of what was declared."""
        declared = attempt.profile
        stands = declared.sync_bytes is not None and declared.compute_s is not None
        if stands and not self.overruled_of(trial):
            return declared
        used = self.of(trial, attempt)
        return replace(declared, sync_bytes=round(used.sync_bytes.value), compute_s=used.compute_s.value)

    def of(self, trial: str, attempt: AttemptRecord, latest: AttemptMeasurement | None = None) -> ProfileEstimate:
        """Return what is used of an attempt of a trial. latest: its measurement now, which errors are relative to."""
        last = self.of_trial(trial)
        others = list(islice(reversed(self.measured.get(split_key(trial)[0], {}).values()), RECENT_TRIALS))
        now = latest or (last if last is not None and last.attempt == attempt.name else None)

        def used(name: str, otherwise: float) -> Sourced:
            declared: float | None = getattr(attempt.profile, name)
            found: float | None = None if last is None else getattr(last, name)
            overruled = (trial, name) in self.overruled
            if declared is not None and not overruled:
                value, source = float(declared), Source.DECLARED
            elif last is not None and found is not None:
                value, source = found, Source.MEASURED if last.attempt == attempt.name else Source.PREDICTED
            else:
                value, source = _median((getattr(other, name) for other in others), otherwise), Source.PREDICTED
            if name == "sync_bytes" and source is not Source.DECLARED:
                value = float(f"{value:.{LEARNT_DIGITS}g}")
            actual: float | None = None if now is None else getattr(now, name)
            return Sourced(value, source, relative_error(value, actual), overruled)

        return ProfileEstimate(used("sync_bytes", UNDECLARED_BYTES), used("compute_s", 0.0))


def contradicted(declared: Profile, measured: Measured) -> tuple[str, ...]:
    """Return the fields of a declaration that a measurement contradicts by more than a factor of `CONTRADICTION`.

    Seconds of computing are measured as an upper bound: only more than that is contradicted, and by more than the bytes may be
    off, which are taken off the iteration's time.
    """
    if measured.iteration_s is None or measured.compute_s is None:
        return () if declared.sync_bytes is None else ("sync_bytes",)
    found: list[str] = []
    if declared.sync_bytes is not None and measured.sync_bytes is not None:
        larger, smaller = max(declared.sync_bytes, measured.sync_bytes), min(declared.sync_bytes, measured.sync_bytes)
        if larger > CONTRADICTION * smaller:
            found.append("sync_bytes")
    if declared.compute_s is not None:
        most_s = measured.compute_s + TOLERANCE * measured.iteration_s
        if declared.compute_s > CONTRADICTION * most_s:
            found.append("compute_s")
    return tuple(found)


def relative_error(value: float, actual: float | None) -> float | None:
    """Return a value's difference to what it turned out to be, relative to the latter; None where that is not known."""
    if actual is None or (actual == 0 and value != 0):
        return None
    return abs(value - actual) / actual if actual else 0.0


def _differs(value: float | None, before: float | None, scale: float) -> bool:
    if value is None or before is None:
        return value is not before
    return abs(value - before) > CHANGE * scale


def _median(values: Iterable[float | None], otherwise: float) -> float:
    known = [value for value in values if value is not None]
    return median(known) if known else float(otherwise)
