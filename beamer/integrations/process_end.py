"""How this process ends, told to whoever asked, without a signal's handler.

An exception that nobody catches is seen by `sys.excepthook`, and `sys.exit` by a wrapper of it; what is told otherwise is the
end of the interpreter. Not seen are `raise SystemExit(3)`, which looks like a normal end, and ends without the interpreter's:
by a signal, by `os._exit`, by an abort in C++. An agent notices those by the lease.

No handler of SIGTERM is installed. Python runs handlers between its own instructions alone: a process that waits in C++ for a
collective would not end by the signal any more.
"""

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Any, NoReturn

from beamer.client.stops import is_stop


class ProcessOutcome(Enum):
    """How a process ends. FINISHED: normally. KILLED: by an interruption, or by what stops a trial. FAILED: otherwise."""

    FINISHED = "finished"
    KILLED = "killed"
    FAILED = "failed"


def outcome_of(error: BaseException) -> ProcessOutcome:
    """Return what an exception that ends a process makes of its trial."""
    if isinstance(error, SystemExit):
        return _outcome_of_code(error.code)
    return ProcessOutcome.KILLED if is_stop(error) else ProcessOutcome.FAILED


class _ProcessEnd:
    """Watches this process's end once for all who ask."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._tell: list[Callable[[ProcessOutcome], None]] = []
        self._exit: tuple[ProcessOutcome, list[int]] | None = None
        self._marks: list[Callable[[], int]] = []
        self._chained = sys.excepthook, sys.exit
        sys.excepthook = self._uncaught
        sys.exit = self._exiting
        atexit.register(self._at_exit)

    def watch(self, tell: Callable[[ProcessOutcome], None], mark: Callable[[], int]) -> None:
        """Have the end told. mark: a number that differs once the process has gone on."""
        self._tell.append(tell)
        self._marks.append(mark)

    def leave(self, tell: Callable[[ProcessOutcome], None]) -> None:
        """Tell no more."""
        with suppress(ValueError):
            at = self._tell.index(tell)
            del self._tell[at], self._marks[at]

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        try:
            self._end(outcome_of(error))
        except KeyboardInterrupt:  # It was pending while a collective failed, as its peer was interrupted, too.
            self._end(ProcessOutcome.KILLED)
        return self._chained[0](kind, error, trace)

    def _exiting(self, code: Any = None, /) -> NoReturn:
        self._exit = _outcome_of_code(code), [mark() for mark in self._marks]
        self._chained[1](code)

    def _at_exit(self) -> None:
        outcome = ProcessOutcome.FINISHED
        if self._exit is not None and self._exit[1] == [mark() for mark in self._marks]:
            outcome = self._exit[0]
        self._end(outcome)

    def _end(self, outcome: ProcessOutcome) -> None:
        if os.getpid() != self._pid:  # A forked child is none of the trial's ranks.
            return
        for tell in [*self._tell]:
            with suppress(Exception):
                tell(outcome)


def _outcome_of_code(code: Any) -> ProcessOutcome:
    return ProcessOutcome.FINISHED if code is None or code == 0 else ProcessOutcome.FAILED


_process_end: _ProcessEnd | None = None


def watch_end(tell: Callable[[ProcessOutcome], None], mark: Callable[[], int]) -> None:
    """Have this process's end told, perhaps more than once: the first time counts.

    mark: a number that differs once the process has gone on, as after a `sys.exit` that was caught.
    """
    global _process_end
    if _process_end is None or _process_end._pid != os.getpid():
        _process_end = _ProcessEnd()
    _process_end.watch(tell, mark)


def leave_end(tell: Callable[[ProcessOutcome], None]) -> None:
    """Have the end told no more."""
    if _process_end is not None:
        _process_end.leave(tell)
