"""Tells Beamer of a search by Optuna: one callback, and nothing else in the program changes.

    from beamer.integrations.optuna import BeamerCallback

    study.optimize(objective, n_trials=20, callbacks=[BeamerCallback(study)])

Optuna's trial 7 is the trial `trial-7` of the Beamer study with the name of Optuna's study. A step of Optuna is a step of
Beamer: a report at step 0 says that no step is complete, so that targets have the numbers that pruners use. The loss is the
reported value, its sign turned where the study maximizes.

From the callback's making on, a study is observed: in every `optimize`, and from `ask` to `tell`. The process takes part in the
search from its first trial until `LINGER_S` after the end of `optimize`, the end of the study object, or its own, whichever is
first. All processes of one study on one storage share a run, see `shared_run`, also those that come when others have left.

Nothing here raises into the user's program. What cannot be done is logged once, and left out.
"""

import atexit
import hashlib
import logging
import multiprocessing.util
import os
import socket
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from beamer.client import RUN_VARIABLE, Attachment, Client, StudyHandle, TrialHandle, lease
from beamer.integrations.optuna_pruners import Judged, counts_reports, next_milestone
from beamer.integrations.optuna_storage import observe, observer_of, shared_run, storage_of
from beamer.studies.model import escape_name

LINGER_S = 30.0  # Calls of `optimize` that follow one another are one search.
_MAX_NAME = 100  # characters of a study's name, which leave room for those of its trials
_EXIT_S = 1.0  # for the last requests of a process that ends

_log = logging.getLogger("beamer.integrations")
_searches: "weakref.WeakSet[_Search]" = weakref.WeakSet()
# Objects of one study in several threads are one member of it: by its name and run, how many take part.
_taking_part: dict[tuple[str, str], int] = {}
_counting = threading.RLock()  # A collection that comes within may end another search.
# Of a child of multiprocessing: clients of searches that it has left, which may have something to send yet; who closes them.
_of_child: set[Client] = set()
_finalizer: multiprocessing.util.Finalize | None = None
# A process has one trial at a time whose connections its agent is told to mark.
_attaching = threading.Lock()


class BeamerCallback:
    """Tell Beamer of a study's trials from now on: where they run, how far they are, when they are judged, how they end.

    study: of Optuna. url: of the controller, as in `Client`. host: where trials of this process run, as the controller's
    network names it; None: this machine, whose name or one of whose addresses has to be there, as
    attempts are refused otherwise. Make it before the study's first `ask`; several of one study are as good as one.
    """

    def __init__(self, study: Study, url: str | None = None, host: str | None = None) -> None:
        self._given = (study, url, host)
        try:
            _observe(study, url, host)
        except Exception as error:  # noqa: BLE001  The search goes on without Beamer.
            _log.warning("Beamer is not told of this search by Optuna %s: %r", optuna.__version__, error)

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """Do nothing: Optuna calls this after each trial, whose end was seen when it was written."""

    def __reduce__(self) -> Any:
        return type(self), self._given


@dataclass
class _Running:
    """A trial that runs in this process, or that is reported on from here.

    trial: as Optuna stored it when it started. step: the farthest that was reported, None before the first. thread: in which
    `optimize` runs it, None where it does not. is_adopted: whether another process began it, which is the one to end it.
    target: the last milestone. reports: how many there were.
    """

    handle: TrialHandle
    trial: FrozenTrial
    step: int | None
    thread: threading.Thread | None = None
    is_adopted: bool = False
    target: int = 0
    reports: int = 0
    attachment: Attachment | None = None


class _Search:
    """A study as this process takes part in it: an observer of its storage."""

    def __init__(self, study: Study, url: str | None, host: str | None) -> None:
        self._study = weakref.ref(study)
        self._storage = storage_of(study)
        self._study_id = study._study_id
        self._sign = -1.0 if study.directions[0] == StudyDirection.MAXIMIZE else 1.0
        self._name = study_name(study.study_name)
        self._client = Client(url)
        self._host = host or socket.gethostname()
        self._handle: StudyHandle | None = None
        self._running: dict[int, _Running] = {}
        # Trials that are complete, whichever process ran them, and the last step of the longest.
        self._measured: set[int] = set()
        self._longest: int | None = None
        self._optimizing: set[threading.Thread] = set()
        self._made_by = threading.get_ident()
        self._leaving: threading.Timer | None = None
        self._changing = threading.RLock()  # Garbage collection may end a search anywhere.
        self._warned: set[str] = set()

    def is_of(self, study: Study) -> bool:
        """Return whether this is the search of a study."""
        return self._study() is study

    def optimizing(self, is_within: bool) -> None:
        """Take note that this thread is within `optimize` from now on, or that its own call of it ends."""
        with self._changing:
            here = threading.current_thread()
            self._optimizing = {thread for thread in self._optimizing if thread.is_alive() and thread is not here}
            if is_within:
                self._optimizing.add(here)
                return
            try:
                self._end_left_trials()
            except Exception:  # noqa: BLE001
                self._warn("the end of a call of optimize is not told")

    def _end_left_trials(self) -> None:
        """End what `optimize` has left running, as `SystemExit` does; where nothing runs any more, leave after a while."""
        for trial_id, running in list(self._running.items()):
            if running.thread is not None and running.thread not in self._optimizing:
                self._end(trial_id, TrialHandle.kill)
        if not self._optimizing and not self._begun_here() and self._handle is not None:
            self._stay()
            leaving = self._leaving = threading.Timer(LINGER_S, lambda: self._leave_after(leaving))
            leaving.daemon = True
            leaving.start()

    def _leave_after(self, timer: threading.Timer) -> None:
        """Leave the search as a timer runs out, unless somebody came back while it waited for this."""
        with self._changing:
            if timer is self._leaving:
                self.end()

    def end(self) -> None:
        """Leave the search; what this process began and has not ended is killed."""
        with self._changing:
            self._stay()
            handle, self._handle = self._handle, None
            if handle is None:
                return
            try:
                for trial_id in self._begun_here():
                    self._end(trial_id, TrialHandle.kill)
                self._running.clear()
                if _count(handle, -1) == 0:
                    handle.leave()
                else:
                    handle.disconnect()
                if _finalizer is not None:
                    _of_child.add(self._client)
            except Exception:  # noqa: BLE001  This may be called where the interpreter would show a traceback.
                self._warn("the search's end is not told")

    def _join(self) -> StudyHandle:
        """Return the search, of which this process is a part from now on."""
        with self._changing:
            self._stay()
            if self._handle is None:
                run = os.environ.get(RUN_VARIABLE) or shared_run(self._storage, self._study_id)
                self._handle = self._client.study(self._name, run, barriers=False)
                _searches.add(self)
                # What is registered last is called first: while the client and its membership are as they were.
                atexit.unregister(_leave_at_exit)
                atexit.register(_leave_at_exit)
                _count(self._handle, 1)
                if multiprocessing.parent_process() is not None:
                    _close_with_child()
            return self._handle

    def forget(self) -> None:
        """Leave what a forked child inherits of this search to the parent; a trial that the child starts is its own."""
        self._handle, self._leaving = None, None
        self._running, self._optimizing = {}, set()
        self._changing = threading.RLock()

    def _measure(self, trial: int, step: int | None) -> None:
        """Take note of the last step of a trial that is complete, by its number."""
        self._measured.add(trial)
        if step is not None:
            self._longest = step if self._longest is None else max(step, self._longest)

    def _stay(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    def started(self, trial_id: int) -> None:
        """Register a trial, say where it runs, and attach this process where that is the one trial's alone."""
        try:
            trial = self._storage.get_trial(trial_id)
            handle = self._join().trial(_trial_name(trial))
            running = self._running[trial_id] = _Running(handle, trial, trial.last_step)
            handle.start([self._host])
            for complete in self._storage.get_all_trials(self._study_id, deepcopy=False, states=(TrialState.COMPLETE,)):
                if complete.number not in self._measured:
                    self._measure(complete.number, complete.last_step)
            self._set_target(running)
            here = threading.current_thread()
            if here in self._optimizing:
                running.thread = here
            if self._has_process(running):
                try:
                    running.attachment = handle.attach(0)
                finally:
                    if running.attachment is None:
                        _attaching.release()
        except Exception:  # noqa: BLE001
            self._warn("a trial's start is not told")

    def reported(self, trial_id: int, step: int, value: float) -> None:
        """Report progress; a trial that is reported on after it was judged goes on, to where it is judged next."""
        try:
            running = self._running.get(trial_id) or self._adopt(trial_id, step)
            running.reports += 1
            study, loss = self._study(), self._sign * value
            if study is not None and counts_reports(study.pruner):
                running.handle.progress(running.reports, loss)
            elif running.step is None or step > running.step:
                running.handle.progress(step, loss)
                self._set_target(running, step)
                running.step = step
        except Exception:  # noqa: BLE001
            self._warn("progress is not told")

    def ended(self, trial_id: int, state: TrialState) -> None:
        """Report a trial's end, also of one that another process began and Optuna found dead."""
        try:
            if trial_id not in self._running:
                self._adopt(trial_id)
            if state == TrialState.COMPLETE:
                self._measure(self._running[trial_id].trial.number, self._running[trial_id].step)
            self._end(trial_id, _ENDS[state])
        except Exception:  # noqa: BLE001
            self._warn("a trial's end is not told")

    def _end(self, trial_id: int, how: Any) -> None:
        running = self._running.pop(trial_id)
        try:
            if running.attachment is not None:
                try:
                    running.attachment.__exit__(None, None, None)
                finally:
                    _attaching.release()
        finally:
            how(running.handle)

    def _adopt(self, trial_id: int, reported: int | None = None) -> _Running:
        """Return a trial that another process has registered. reported: the step that was stored just now."""
        trial = self._storage.get_trial(trial_id)
        handle = self._client.trial(self._name, _trial_name(trial), self._join().run)
        before = max((step for step in trial.intermediate_values if step != reported), default=None)
        running = self._running[trial_id] = _Running(handle, trial, before, is_adopted=True)
        return running

    def _begun_here(self) -> list[int]:
        """Return the trials that run and that this process began."""
        return [trial_id for trial_id, running in list(self._running.items()) if not running.is_adopted]

    def _set_target(self, running: _Running, reached: int = 0) -> None:
        """Set the step at which a trial is judged after its last report, unless it has reached that or is over by then."""
        study = self._study()
        if study is None:
            return
        try:
            step = next_milestone(study.pruner, Judged(study, running.trial, running.step))
        except Exception:  # noqa: BLE001
            self._warn(f"{type(study.pruner).__name__} is not what it was in Optuna 4 and 5: trials have no milestones")
            return
        within = self._longest is None or (step or 0) <= self._longest
        if step is not None and within and step > max(running.target, reached):
            running.target = step
            running.handle.milestone(step)

    def _has_process(self, running: _Running) -> bool:
        """Return whether a trial that starts now has this process for itself, and an agent to attach it to.

        Jobs of `optimize(n_jobs=...)` are threads of their own. After `ask`, a trial may run anywhere.
        """
        if running.thread is None or running.thread.ident != self._made_by:
            return False
        return os.path.exists(os.environ.get(lease.AGENT_VARIABLE) or lease.AGENT_PATH) and _attaching.acquire(blocking=False)

    def _warn(self, what: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            _log.warning("Optuna %s: %s", optuna.__version__, what, exc_info=True)


_ENDS = {
    TrialState.COMPLETE: TrialHandle.finish,
    TrialState.PRUNED: TrialHandle.kill,
    TrialState.FAIL: TrialHandle.fail,
}


def _observe(study: Study, url: str | None, host: str | None) -> None:
    """Let a search see what becomes of a study, one for each."""
    known = observer_of(study)
    if not isinstance(known, _Search) or not known.is_of(study):
        search = _Search(study, url, host)
        observe(study, search)
        weakref.finalize(study, search.end).atexit = False  # Beamer's client may be closed by then: see `_leave_at_exit`.


def _trial_name(trial: FrozenTrial) -> str:
    return f"trial-{trial.number}"


def study_name(name: str) -> str:
    """Return the Beamer study's name by that of Optuna's: the same, or one near it that the controller takes.

    For workers that attach themselves: `Client().trial(study_name(study.study_name), "trial-7")`.
    """
    if name.isprintable() and name.strip() == name and len(escape_name(name)) <= _MAX_NAME:
        return name
    plain = "".join(one if one.isprintable() and one not in "/%" else "_" for one in name.strip())
    return f"{plain[: _MAX_NAME // 2]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _count(handle: StudyHandle, change: int) -> int:
    """Return how many take part in a run from now on."""
    key = handle.name, handle.run
    with _counting:
        left = _taking_part.get(key, 0) + change
        if left > 0:
            _taking_part[key] = left
        else:
            _taking_part.pop(key, None)
    return left


def _close_with_child() -> None:
    """Have all clients closed at the end of this child of multiprocessing, which ends by `os._exit`."""
    global _finalizer
    for client in list(_of_child):
        _of_child.discard(client)  # It comes first, as another thread may add the client again.
        if not client.flush(0.0):
            _of_child.add(client)
    if _finalizer is None:
        _finalizer = multiprocessing.util.Finalize(None, _close_child, exitpriority=0)


def _close_child() -> None:
    _leave_at_exit()
    for client in _of_child | {search._client for search in list(_searches)}:
        client.close(_EXIT_S)


def _leave_at_exit() -> None:
    for search in list(_searches):
        search.end()


def _forget_in_child() -> None:
    global _attaching, _counting, _finalizer
    _attaching, _counting = threading.Lock(), threading.RLock()
    _taking_part.clear()
    _of_child.clear()
    _finalizer = None
    for search in list(_searches):
        search.forget()


os.register_at_fork(after_in_child=_forget_in_child)
