"""What Optuna's storage is told of a study's trials, seen as it happens; and the run that all processes of a study share.

Optuna calls a callback when a trial has ended, and nobody when one starts or reports a value. All of that passes through the
study's storage, also where ranks of a distributed trial report by themselves. So the study is given a view of its storage: an
object of a subclass that shares the storage's attributes and tells an observer what was written.

    study._storage ---> view (class Observed<kind>) --same __dict__--> storage of the user
                          | create_new_trial, set_trial_state_values, set_trial_intermediate_value
                          v
                       observer

A study sets an attribute of a thread-local object where `optimize` begins in a thread, and where a call of it ends. That object
is replaced by one of a subclass, too.

A view passes each `isinstance` that the storage passes, has its heartbeats and methods of its own, and is copied and pickled as
the storage itself. Other studies on the same storage are not observed.
"""

import hashlib
import os
import socket
from functools import cache
from typing import Any, Protocol

from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.trial import FrozenTrial, TrialState

_RUN_DIGITS = 12  # Two of a million runs with the same name are called alike with a probability of 2 in 1000.
_STORAGE, _LOCAL, _WITHIN = "_storage", "_thread_local", "in_optimize_loop"
_SLOTS = ("_beamer_observer", "_beamer_storage")


class TrialObserver(Protocol):
    """What is told of trials, by their ids in the storage; may not raise."""

    def started(self, trial_id: int) -> None:
        """Take note that a trial runs in this process from now on."""

    def reported(self, trial_id: int, step: int, value: float) -> None:
        """Take note of an intermediate value."""

    def ended(self, trial_id: int, state: TrialState) -> None:
        """Take note of a trial's end."""

    def optimizing(self, is_within: bool) -> None:
        """Take note that `optimize` works in this thread from now on, or that a call of it ends here."""


def observe(study: Any, observer: TrialObserver) -> None:
    """Tell `observer` what a study writes to its storage from now on, instead of who was told before.

    Raises `AttributeError` or `TypeError` where the study does not keep its storage as Optuna 4 and 5 do.
    """
    storage = storage_of(study)
    kind: Any = type(storage)
    view = object.__new__(_class_of(kind))
    view.__dict__ = storage.__dict__
    view._beamer_observer = observer
    view._beamer_storage = storage
    local = getattr(study, _LOCAL)
    was_within: bool = getattr(local, _WITHIN)
    watched = _watched(getattr(local, "_beamer_kind", type(local)), observer)()
    setattr(study, _LOCAL, watched)
    if was_within:
        setattr(watched, _WITHIN, True)
    setattr(study, _STORAGE, view)


def storage_of(study: Any) -> Any:
    """Return the storage of a study, not a view of it. Raises as `observe`."""
    storage = getattr(study, _STORAGE)
    if not isinstance(storage, BaseStorage):
        raise TypeError(f"{_STORAGE} of a study is of type {type(storage).__name__}, which is no storage")
    return getattr(storage, "_beamer_storage", storage)


def observer_of(study: Any) -> Any:
    """Return who is told what a study writes to its storage, None for nobody."""
    return getattr(getattr(study, _STORAGE, None), "_beamer_observer", None)


class _View:
    """The methods of a view, which come before those of the storage's class."""

    __slots__ = ()
    _beamer_observer: TrialObserver
    _beamer_storage: Any

    def create_new_trial(self, study_id: int, template_trial: "FrozenTrial | None" = None) -> int:
        trial_id: int = super().create_new_trial(study_id, template_trial)  # type: ignore[misc]
        if template_trial is None or template_trial.state == TrialState.RUNNING:  # Others wait, or have ended elsewhere.
            self._beamer_observer.started(trial_id)
        return trial_id

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Any = None) -> bool:
        changed: bool = super().set_trial_state_values(trial_id, state, values)  # type: ignore[misc]
        if changed and state == TrialState.RUNNING:
            self._beamer_observer.started(trial_id)
        elif changed and state.is_finished():
            self._beamer_observer.ended(trial_id, state)
        return changed

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        super().set_trial_intermediate_value(trial_id, step, intermediate_value)  # type: ignore[misc]
        self._beamer_observer.reported(trial_id, step, intermediate_value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _as_it_is, (self._beamer_storage,)


def _as_it_is(storage: BaseStorage) -> BaseStorage:
    return storage


@cache
def _class_of(kind: Any) -> Any:
    """Return the class of views of storages of a kind."""
    return type(kind)(f"Observed{kind.__name__}", (_View, kind), {"__slots__": _SLOTS, "__module__": __name__})


def _watched(kind: Any, observer: TrialObserver) -> Any:
    """Return a class of thread-local objects that tells when `optimize` begins and ends."""

    def set_attribute(local: Any, name: str, value: Any) -> None:
        kind.__setattr__(local, name, value)
        if name == _WITHIN:
            observer.optimizing(bool(value))

    return type(kind)(f"Watched{kind.__name__}", (kind,), {"__setattr__": set_attribute, "_beamer_kind": kind})


def shared_run(storage: Any, study_id: int) -> str:
    """Return the run of a study that has trials: all of its processes agree on it, and no other study has it.

    It is made of what no process changes any more once a trial runs: the study's name and id, and the first trial's id and
    start. Trials that wait start in the order of their numbers, so that the first one has started when any has. Nothing is
    written to the storage: it has no way to write what is not there yet, but by making trials and studies.
    """
    first = storage.get_trial(storage.get_trial_id_from_study_id_trial_number(study_id, 0))
    began = first.datetime_start
    # Whole seconds are what every database keeps. A journal has times of this machine's zone, of which others have another.
    start = began and (int(began.timestamp()) if isinstance(storage, JournalStorage) else began.isoformat(timespec="seconds"))
    known: tuple[Any, ...] = (storage.get_study_name_from_id(study_id), study_id, first._trial_id, start)
    if isinstance(storage, InMemoryStorage):  # Its ids begin anew in each process.
        known += (socket.gethostname(), os.getpid(), began)
    return f"optuna-{hashlib.sha256(repr(known).encode()).hexdigest()[:_RUN_DIGITS]}"
