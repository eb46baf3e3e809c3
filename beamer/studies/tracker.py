"""The state machine of studies, trials and stages: what is registered, what runs and what ended, fed by events alone.

A legal event is journaled and applied; applying a journal's events in order to a new tracker with new ledgers gives an equal
one, so that this is also how a restarted process recovers. What is legal is decided in `beamer.studies.checks`, what it changes
in `beamer.studies.changes`, both from the tables of `beamer.studies.transitions`. The tracker knows studies, trials and stages;
what a level knows beyond that is its ledger's, which sees every event after the tracker.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

from beamer.errors import ConflictError, InputError
from beamer.studies.changes import Changes
from beamer.studies.checks import Checks
from beamer.studies.events import Decision, Event, MemberLeft, StageSealed, StudyEnded, StudyRegistered, TrialEnded
from beamer.studies.model import TrialStatus
from beamer.studies.records import StageRecord, StudyRecord, TrialRecord
from beamer.studies.registry import Retention, StudyRegistry
from beamer.studies.registry_state import KNOWN_UPCASTERS, known_state, restore_known
from beamer.studies.versions import Upcaster, Versioned

STUDIES, TIME = Versioned("studies", KNOWN_UPCASTERS), Versioned("now_s")
"""The parts of a snapshot that are the tracker's own: all that is known of studies, and the time of the latest event."""


class Ledger(ABC):
    """What one level knows, fed by the tracker; events applied in order to a new ledger give an equal one.

    state_upcasters: one for each version of what `state` returns after the first.
    """

    state_upcasters: ClassVar[tuple[Upcaster, ...]] = ()

    @classmethod
    def part(cls) -> Versioned:
        """Return what its state is in a snapshot."""
        return Versioned(cls.__name__, cls.state_upcasters)

    @abstractmethod
    def check(self, event: Event, tracker: "Tracker") -> bool | None:
        """Say whether an event changes anything at this level; None: it does not concern it. Raises as `Tracker.check`."""

    @abstractmethod
    def apply(self, event: Event, tracker: "Tracker") -> None:
        """Take in an event that the tracker has taken in."""

    def entailed(self, event: Event, tracker: "Tracker") -> Iterable[Event]:
        """Return what happens to studies and trials because an event of this level does, before it; all of it is legal."""
        return ()

    def state(self) -> str:
        """Return all that is known as JSON."""
        raise NotImplementedError(f"{type(self).__name__} has no snapshots")

    def restore(self, state: str) -> None:
        """Know in a new ledger what `state` returned. Raises `ValueError` for anything else."""
        raise NotImplementedError(f"{type(self).__name__} has no snapshots")

    def begin_anew(self, study: str) -> None:  # noqa: B027  # Most ledgers know nothing by study.
        """Forget the trials of a study, all of which have ended, as another run of it begins."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # The ledger changes.


class Tracker:
    """Know every study, trial and stage; only `apply` changes it, records are for reading.

    ledgers: of the levels whose events it takes in. kept: how much of what is over. Two trackers are equal when all that they
    and their ledgers know is.
    Its time never goes back: what happens after a clock was set back happens at the latest time known.
    """

    def __init__(self, *ledgers: Ledger, kept: Retention = Retention()) -> None:  # noqa: B008  # The default is frozen.
        self.ledgers = ledgers
        self._known = StudyRegistry(kept)
        self._checks = Checks(self._known)
        self._changes = Changes(self._known)
        self._now_s = 0.0

    def state(self) -> dict[str, str]:
        """Return all that is known, as JSON by the stored names of the parts: the tracker's own, and each ledger's."""
        ledgers = {ledger.part().stored_name: ledger.state() for ledger in self.ledgers}
        return {STUDIES.stored_name: known_state(self._known), TIME.stored_name: repr(self._now_s), **ledgers}

    def restore(self, state: Mapping[str, str]) -> None:
        """Know in a new tracker with new ledgers what `state` returned. Raises `ValueError` for anything else."""
        parts = [ledger.part() for ledger in self.ledgers]
        if missing := {part.stored_name for part in (STUDIES, TIME, *parts)} - state.keys():
            raise ValueError(f"without {', '.join(sorted(missing))}")
        restore_known(self._known, state[STUDIES.stored_name])
        self._now_s = float(state[TIME.stored_name])
        for ledger, part in zip(self.ledgers, parts, strict=True):
            ledger.restore(state[part.stored_name])

    @property
    def studies(self) -> Mapping[str, StudyRecord]:
        """Every study's present run by name, in order of first registration."""
        return MappingProxyType(self._known.studies)

    @property
    def trials(self) -> Mapping[str, TrialRecord]:
        """Every trial of these by key, in order of registration, ended ones included."""
        return MappingProxyType(self._known.trials)

    @property
    def running(self) -> tuple[TrialRecord, ...]:
        """The trials that run, in the order in which their attempts started."""
        return self._known.running_in_order()

    @property
    def running_keys(self) -> AbstractSet[str]:
        """The keys of the trials that run."""
        return self._known.running.keys()

    @property
    def running_workers(self) -> int:
        """How many workers these have."""
        return self._known.running_workers

    @property
    def now_s(self) -> float:
        """The time of the latest event."""
        return self._now_s

    def past_runs(self, study: str) -> tuple[StudyRecord, ...]:
        """Return the earlier runs of a study, oldest first."""
        return tuple(self._known.past.get(study, ()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tracker) and self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]  # The tracker changes.

    def _facts(self) -> tuple[object, ...]:
        return self.ledgers, self._known, self._now_s

    def study(self, name: str) -> StudyRecord:
        """Return a study. Raises `NotFoundError`."""
        return self._known.study(name)

    def stage(self, study: str, name: str) -> StageRecord:
        """Return a stage. Raises `NotFoundError`."""
        return self._known.stage(study, name)

    def trial(self, key: str) -> TrialRecord:
        """Return a trial. Raises `NotFoundError`."""
        return self._known.trial(key)

    def check(self, event: Event) -> bool:
        """Say whether `event` changes anything: False for what is repeated or late, True if it must be journaled and applied.

        Raises `InputError` for a value that cannot be and for an event of a level that has no ledger here, `NotFoundError` for
        an unknown study, stage, trial or attempt, `ConflictError` for what `beamer.studies.transitions` refuses.
        """
        found = [self._checks.check(event), *(ledger.check(event, self) for ledger in self.ledgers)]
        if all(changes is None for changes in found):
            raise InputError("event", type(event).__name__, "an event of studies or of a level that is tracked here")
        return any(found)

    def apply(self, event: Event) -> tuple[Event, ...]:
        """Take in an event that `check` found legal; return what has happened with it, in order: it is the last."""
        self._now_s = max(self._now_s, event.at_s)
        event = replace(event, at_s=self._now_s)
        of_levels = [entailed for ledger in self.ledgers for entailed in ledger.entailed(event, self)]
        ended = self._ended_run(event)
        before = (*_ends(ended, event.at_s), *self._ends_of_member(event), *of_levels)
        for entailed in before:
            self._take(entailed)
        if ended is not None and isinstance(event, StudyRegistered):
            for ledger in self.ledgers:
                ledger.begin_anew(event.study)
        self._take(event)
        return (*before, event)

    def _take(self, event: Event) -> None:
        self._changes.apply(event)
        for ledger in self.ledgers:
            ledger.apply(event, self)

    def _ends_of_member(self, event: Event) -> Iterable[Event]:
        """Yield the ends of the trials that a member began that leaves, and that of its study where nobody goes on with it."""
        if not isinstance(event, MemberLeft) or event.lost:
            return
        study = self.studies[event.study]
        if study.goes_on_without(event.member):
            for trial in study.begun_by(event.member):
                yield TrialEnded(event.at_s, trial.key, TrialStatus.KILLED)
        else:
            yield from _ends(study, event.at_s)
            yield StudyEnded(event.at_s, event.study, left=True)

    def _ended_run(self, event: Event) -> StudyRecord | None:
        """Return the run of a study that an event ends, by another run or for good."""
        match event:
            case StudyRegistered(study=name, run=run) if name in self.studies and self.studies[name].run != run:
                return self.studies[name]
            case StudyEnded(study=name):
                return self.studies[name]
        return None


def is_new_decision(event: Decision, last: Decision | None) -> bool:
    """Say whether a decision is not a level's last one again. Raises `ConflictError` for a generation that was used before."""
    if last is None or event.generation > last.generation:
        return True
    # The event is taken in at the latest time known, if it came with an earlier one.
    if replace(event, at_s=last.at_s) == last:
        return False
    raise ConflictError("generation", event.generation, f"above {last.generation}, the latest decision's")


def _ends(study: StudyRecord | None, at_s: float) -> Iterable[Event]:
    """Yield the ends of the trials and the seals of the stages of a run that ends."""
    if study is None:
        return
    for trial in study.trials.values():
        if not trial.status.is_finished:
            yield TrialEnded(at_s, trial.key, TrialStatus.KILLED)
    for stage in study.stages.values():
        if stage.sealed_s is None:
            yield StageSealed(at_s, study.name, stage.name)
