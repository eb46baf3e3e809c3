"""What the tracker knows as JSON, and back: a snapshot of it stands for all the events that led there."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from beamer.studies.model import TrialStatus
from beamer.studies.records import StudyRecord, TrialRecord
from beamer.studies.registry import StudyRegistry


def _without_members(state: Any) -> Any:
    """Return version 2: studies have members, and attempts began where their trials were."""
    runs = [*state["studies"].values(), *(run for past in state["past"].values() for run in past)]
    for run in runs:
        run["members"], run["left"] = {}, False
    for trial in (trial for run in runs for trial in run["trials"].values()):
        trial["member"] = None
        for attempt in trial["attempts"].values():
            attempt["is_begun"] = True
    return state


KNOWN_UPCASTERS = (_without_members,)
"""One for each version of what `known_state` returns after the first."""


@dataclass(frozen=True)
class _State:
    """See `StudyRegistry`: its other fields follow from these."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    studies: dict[str, StudyRecord]
    past: dict[str, list[StudyRecord]]
    attempts: int
    registered: int


_ADAPTER = TypeAdapter(_State)


def known_state(known: StudyRegistry) -> str:
    """Return all that is known as JSON."""
    return _ADAPTER.dump_json(_State(known.studies, known.past, known.attempts, known.registered)).decode()


def restore_known(known: StudyRegistry, state: str) -> None:
    """Let `known`, which is empty, know what `known_state` returned. Raises `ValueError` for anything else."""
    read = _ADAPTER.validate_json(state)
    known.studies, known.past = read.studies, read.past
    known.attempts, known.registered = read.attempts, read.registered
    for trial in _trials(read):
        # A target that was not reached is one of the trial's targets, not another one that equals it.
        trial.unreached = [next(target for target in trial.targets if target == waited) for waited in trial.unreached]
    present = (trial for study in read.studies.values() for trial in study.trials.values())
    for trial in sorted(present, key=lambda trial: trial.seq):
        known.trials[trial.key] = trial
        known.set_running(trial, trial.status is TrialStatus.RUNNING)


def _trials(state: _State) -> Iterator[TrialRecord]:
    for study in (*state.studies.values(), *(run for runs in state.past.values() for run in runs)):
        yield from study.trials.values()
