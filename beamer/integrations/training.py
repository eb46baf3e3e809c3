"""A training process as a rank of a trial: what integrations of training libraries share, without importing any of them.

    names = choose_names(os.environ, "train", host, os.getpid())
    process = TrainingProcess(names, TrainingRank(0, 1, host), LoneRank())
    process.progress(10, loss)
    process.end(ProcessOutcome.FINISHED)

Rank 0 registers the trial and starts its attempt with the hosts of all ranks; each rank attaches itself. Where `beamer run` or
`beamer schedule` has launched the process, the trial is theirs: no other attempt is started beside it.

All of this happens in a thread. The training thread stores numbers; nothing here raises into it or makes it wait. Ranks tell
each other what they have to through an `RankExchange`, never by a collective: one that does not take part holds up nobody.
"""

import json
import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from beamer.client import Client, StudyHandle, TrialHandle
from beamer.client.forking import RUNNING
from beamer.client.urls import (
    LAUNCHER_VARIABLE,
    RUN_VARIABLE,
    STUDY_VARIABLE,
    TRIAL_VARIABLE,
    URL,
    URL_VARIABLE,
    CommandLauncher,
)
from beamer.integrations.process_end import ProcessOutcome, leave_end, watch_end
from beamer.run.present import find_place
from beamer.studies.model import MAX_STEPS, Worker, check_name

REPORT_S = 0.1
"""Seconds between two reports."""
POLL_S = 0.05
"""Seconds between two looks at what other ranks have said."""
HOSTS_S = 30.0
"""Seconds in which all ranks say where they run. A rank that has not by then does not take part."""
READ_AGAIN_S = 2.0
"""Seconds between two readings of the study at a controller that does not answer."""
ANSWER_S = 3.0
"""Seconds within which a controller answers: only the thread waits for it."""
LAST_PLACE_S = 1.0
"""Seconds that the end of a process waits for the trial to be registered, where it is not yet."""
LAST_JOIN_S = 0.5
"""Seconds that the end of a process waits for the thread, which may still wait for a controller that does not answer."""
_MAX_CHARACTERS = 63
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_RUN_ID, RESTARTS, _MAX_RESTARTS = "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"
_NO_IDS = {"", "none", "default"}
"""What torchrun names a run that nobody has named."""
_LOOPBACK = {"", "localhost", "127.0.0.1", "::1"}

_TELL_PROGRESS = (CommandLauncher.SCHEDULE, CommandLauncher.READING_RUN)

_log = logging.getLogger("beamer.integrations")


@dataclass(frozen=True)
class TrainingNames:
    """What a process takes part in.

    run: of the study; "": its present one, or else one that begins, by the name `new_run` where it is free. launcher: that has
    registered the trial, None where this process does. restarts_left: whether its launcher starts all ranks again where one
    fails.
    """

    study: str
    trial: str
    run: str = ""
    new_run: str | None = None
    launcher: CommandLauncher | None = None
    restarts_left: bool = False


@dataclass(frozen=True)
class TrainingRank:
    """A process of `size`. host: where it runs, as the controller's network names it."""

    rank: int
    size: int
    host: str


@dataclass(frozen=True)
class TrainingPlace:
    """Where a trial is, as rank 0 tells the others. run: "" where it is not known: the present one. attempt: of it."""

    study: str
    trial: str
    run: str
    attempt: str


class RankExchange(Protocol):
    """What ranks tell each other. Neither method waits for another rank."""

    def give(self, key: str, value: str) -> None:
        """Let all ranks know a value."""

    def take(self, key: str) -> str | None:
        """Return a value that a rank has given, None where none has yet."""


class LoneRank:
    """The exchange of a rank that is the only one."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}

    def give(self, key: str, value: str) -> None:
        """Keep a value."""
        self._given[key] = value

    def take(self, key: str) -> str | None:
        """Return what was given."""
        return self._given.get(key)


def plain_name(text: str) -> str:
    """Return a text as a name of 1 to 63 plain characters, its end kept."""
    return _NOT_IN_NAMES.sub("-", text)[-_MAX_CHARACTERS:].lstrip("._-") or "training"


def choose_names(
    environment: Mapping[str, str],
    script: str,
    host: str,
    pid: int,
    study: str | None = None,
    trial: str | None = None,
    run: str | None = None,
) -> TrainingNames:
    """Return what a process takes part in: as its launcher says, or else the arguments, the environment, torchrun's run id.

    script: the program's name, that of a study without another one. host, pid: of rank 0, for a trial that has no run id.
    Raises `InputError` for a name that none may have.
    """
    launcher = CommandLauncher(environment[LAUNCHER_VARIABLE]) if environment.get(LAUNCHER_VARIABLE) else None
    told = {name: environment.get(name, "") for name in (STUDY_VARIABLE, TRIAL_VARIABLE, RUN_VARIABLE)}
    if launcher is not None and told[STUDY_VARIABLE] and told[TRIAL_VARIABLE]:
        return TrainingNames(told[STUDY_VARIABLE], told[TRIAL_VARIABLE], told[RUN_VARIABLE], launcher=launcher)
    given = environment.get(_RUN_ID, "")
    if _UUID.fullmatch(given):  # torchrun has drawn it.
        launch = plain_name(f"{script}-{given[:8]}")
    elif given.lower() not in _NO_IDS:
        launch = plain_name(given)
    else:
        master, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
        place = f"{host if master in _LOOPBACK else master}-{port or pid}"
        launch = plain_name(f"{script}-{place}")
    names = TrainingNames(
        study or told[STUDY_VARIABLE] or plain_name(script),
        trial or told[TRIAL_VARIABLE] or launch,
        run or told[RUN_VARIABLE],
        launch,
        restarts_left=_number(environment, RESTARTS) < _number(environment, _MAX_RESTARTS),
    )
    check_name(names.study, "study")
    check_name(names.trial, "trial")
    if names.run:
        check_name(names.run, "run")
    return names


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else 0


class TrainingProcess:
    """This process's part in a trial, until it ends.

    url: of the controller, as of `Client`. step: of the trial at which this process begins; its steps count from there.
    counted: returns how many steps it has made, as far as the integration sees them. Raises `InputError` as `Client` does.
    """

    def __init__(
        self,
        names: TrainingNames,
        rank: TrainingRank,
        exchange: RankExchange,
        url: str | None = None,
        step: int = 0,
        counted: Callable[[], int] = lambda: 0,
    ) -> None:
        self._names, self._rank, self._exchange = names, rank, exchange
        self._url = url or os.environ.get(URL_VARIABLE) or URL
        self._first, self._counted = step, counted
        self._told: int | None = None
        self._loss: Any = None
        self._reported: tuple[int, Any] = step, None
        self._client = Client(url, ANSWER_S)
        self._study: StudyHandle | None = None
        self._trial: TrialHandle | None = None
        self._place: TrainingPlace | None = None
        self._is_over = False
        self._has_warned = False
        self._pid = os.getpid()
        self._ends, self._placed, self._closed = threading.Event(), threading.Event(), threading.Event()
        self._registering = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="beamer-training", daemon=True)
        self._thread.start()
        watch_end(self.end, self._step)

    @property
    def place(self) -> TrainingPlace | None:
        """Where the trial is, None as long as that is not known."""
        return self._place

    def progress(self, step: int | None = None, loss: Any = None) -> None:
        """Report how many steps of the trial are complete; ranks other than 0 report nothing.

        step: since the trial's beginning; None: as counted. Once given, it takes the place of what is counted. loss: at that
        step; a tensor is read later, by the thread.
        """
        if loss is not None:
            self._loss = loss.detach() if hasattr(loss, "detach") else loss
        if step is not None:
            self._told = step

    def end(self, outcome: ProcessOutcome) -> None:
        """Report how this process ends, once. Where the trial is not registered yet, that is waited for, briefly."""
        if self._is_over or os.getpid() != self._pid:
            return
        self._is_over = True
        leave_end(self.end)
        self._ends.set()
        is_told = self._rank.rank == 0 or outcome is not ProcessOutcome.FINISHED
        self._placed.wait(LAST_PLACE_S if is_told else 0.0)
        with self._registering:
            self._closed.set()
        # A thread that is in C++ while the interpreter ends is ended there by force, which aborts the process.
        self._thread.join(LAST_JOIN_S)
        with suppress(Exception):
            self._report()
            self._report_end(outcome)

    def _step(self) -> int:
        return self._first + self._counted() if self._told is None else self._told

    def _run(self) -> None:
        with RUNNING.inside():
            try:
                self._begin()
            except Exception:  # noqa: BLE001  Training goes on.
                _log.warning("Beamer is not told of rank %d of %s", self._rank.rank, self._names.trial, exc_info=True)
                return
            finally:
                self._placed.set()
            while not self._wait(REPORT_S):
                try:
                    self._report()
                except Exception:  # noqa: BLE001
                    self._warn("progress is not told", exc_info=True)

    def _begin(self) -> None:
        names, rank = self._names, self._rank
        if names.launcher is CommandLauncher.SCHEDULE and not names.run:  # No controller takes part in that search.
            return
        if names.launcher is not None:
            self._place = TrainingPlace(names.study, names.trial, names.run, "")
            self._trial = self._client.trial(names.study, names.trial, names.run or None)
            if names.launcher is CommandLauncher.SCHEDULE:  # The processes of `beamer run` are found by its own lease.
                self._trial.attach(rank.rank)
            return
        if rank.rank == 0:
            self._register()
        else:
            self._exchange.give(_host_key(rank.rank), rank.host)
            self._follow()
        if self._trial is not None:
            self._trial.attach(rank.rank)

    def _register(self) -> None:
        """Register the trial, and start its attempt where all ranks run."""
        names = self._names
        hosts = self._hosts()
        found = (names.run, names.trial) if names.run else self._find()
        if found is None:
            return
        run, name = found
        workers = [Worker(rank, host) for rank, host in hosts.items()]
        with self._registering:
            if self._closed.is_set():  # Nobody would report the trial's end.
                return
            # A process that is started again takes the place of the one before, whose trial it goes on with.
            study = self._study = self._client.study(names.study, run=run, barriers=False, member=name)
            trial = study.trial(name)
            self._place = TrainingPlace(names.study, name, run, trial.start(workers, attempt=uuid.uuid4().hex))
            self._trial = trial
        with suppress(Exception):  # The store ends with the process that serves it.
            self._exchange.give("place", json.dumps(asdict(self._place)))
        _log.info("Beamer knows this training as trial %s of study %s, run %s", name, names.study, run)

    def _find(self) -> tuple[str, str] | None:
        """Return the run of the study and the trial's name there, None where the process ends before that is known."""
        names = self._names
        while True:
            try:
                return find_place(self._url, names.study, names.trial, os.environ, ANSWER_S, names.new_run)
            except ConnectionError as error:
                self._warn(f"the controller at {self._url} does not answer ({error}); training continues without it")
                if self._wait(READ_AGAIN_S):
                    return None

    def _hosts(self) -> dict[int, str]:
        """Return where ranks run, once all have said that, or those that have in time."""
        hosts = {0: self._rank.host}
        until = time.monotonic() + HOSTS_S
        while missing := [rank for rank in range(self._rank.size) if rank not in hosts]:
            said = {rank: self._taken(_host_key(rank)) for rank in missing}
            hosts |= {rank: host for rank, host in said.items() if host is not None}
            if len(hosts) < self._rank.size and (self._ends.is_set() or time.monotonic() > until or self._wait(POLL_S)):
                break
        if missing := [rank for rank in range(self._rank.size) if rank not in hosts]:
            self._warn(f"ranks {missing} of {self._rank.size} do not say where they run: have each of them attach, too")
        return dict(sorted(hosts.items()))

    def _follow(self) -> None:
        """Wait until rank 0 has said where the trial is, or this process ends."""
        while (said := self._taken("place")) is None:
            with RUNNING.outside():
                if self._closed.wait(POLL_S):
                    return
        self._place = TrainingPlace(**json.loads(said))
        self._trial = self._client.trial(self._place.study, self._place.trial, self._place.run or None)

    def _taken(self, key: str) -> str | None:
        with RUNNING.outside():
            return self._exchange.take(key)

    def _report(self) -> None:
        if self._trial is None or self._rank.rank != 0 or self._names.launcher in _TELL_PROGRESS:
            return
        now = self._step(), self._loss
        if now[0] == self._reported[0] and now[1] is self._reported[1]:
            return
        if 0 <= now[0] <= MAX_STEPS:
            self._trial.progress(now[0], now[1] if now[1] is not self._reported[1] else None)
        self._reported = now

    def _report_end(self, outcome: ProcessOutcome) -> None:
        trial, place = self._trial, self._place
        if trial is None or place is None or self._names.launcher is not None:
            return
        if outcome is ProcessOutcome.FINISHED:
            if self._rank.rank != 0:
                trial.detach(self._rank.rank)
                return
            trial.finish()
        elif outcome is ProcessOutcome.KILLED:
            trial.kill()
        elif self._names.restarts_left:
            trial.lose(place.attempt)
            return
        else:
            trial.fail()
        if self._study is not None:
            self._study.leave()

    def _wait(self, pause_s: float) -> bool:
        """Wait; return whether the process ends."""
        with RUNNING.outside():
            return self._ends.wait(pause_s)

    def _warn(self, what: str, exc_info: bool = False) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("Beamer: %s", what, exc_info=exc_info)

    def __repr__(self) -> str:
        return f"<TrainingProcess rank {self._rank.rank} of {self._names.study}/{self._names.trial}>"


def _host_key(rank: int) -> str:
    return f"host/{rank}"
