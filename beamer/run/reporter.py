"""What the controller is told of the command, from a thread: neither its start nor its signals wait for that.

The client takes longer to import than the command takes to start.
"""

import logging
import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from beamer.client import lease
from beamer.run.child import Ended
from beamer.run.options import RunOptions
from beamer.run.present import find_place
from beamer.studies.model import MAX_STEPS

if TYPE_CHECKING:
    from beamer.client import Client, StudyHandle, TrialHandle
    from beamer.client.lease import AgentLease

ANSWER_S = 3.0
"""Seconds within which a controller answers: nothing waits for it."""
READ_AGAIN_S = 2.0
"""Seconds between two readings of the study at a controller that does not answer."""
IMPORT_S = 5.0
"""Seconds for which the end of a command waits for the client to be imported, where it ends before that."""
LAST_READ_S = 1.0
"""Seconds for which the end of a command waits for a controller that has not answered before."""
LAST_REPORT_S = 3.0
"""Seconds for which the end of a command waits until a controller that answers is told of it."""


def say(text: str) -> None:
    """Print a line on the standard error, at once, as the command prints there too; where nobody reads it any more, nothing."""
    if sys.stderr is None:  # It was closed, and print would take the standard output instead.
        return
    with suppress(OSError, ValueError):
        sys.stderr.write(f"beamer run: {text}\n")
        sys.stderr.flush()


class Warnings(logging.Handler):
    """Prints the client's first warning alone: a controller that is away is named once, whatever follows from it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._has_warned = False

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning, if it is the first."""
        if not self._has_warned:
            self._has_warned = True
            say(record.getMessage())


class Reporter:
    """Reports a command that has started.

    run: of the study; "": it is read first. pid: the command's process id, for hosts without an agent. held: the lease by which
    its processes are found where there is an agent.
    """

    def __init__(self, options: RunOptions, run: str, url: str, pid: int, held: "AgentLease | None") -> None:
        self._options = options
        self._run = run
        self._url = url
        self._pid = pid
        self._held = held
        self._imported = threading.Event()
        self._ends = threading.Event()
        self._has_warned = False
        self._last: tuple[int, float | None] = 0, None
        self._client: Client | None = None
        self._study: StudyHandle | None = None
        self._trial: TrialHandle | None = None
        self._thread = threading.Thread(target=self._begin, name="beamer-run", daemon=True)
        self._thread.start()

    def progress(self, step: int, loss: float | None) -> None:
        """Report how far the command is, unless it was there before: a library may draw a bar again."""
        if (step, loss) == self._last or not self._last[0] <= step <= MAX_STEPS:
            return
        self._last = step, loss
        if self._trial is not None:
            self._trial.progress(step, loss)

    def end(self, ended: Ended) -> None:
        """Report the end. Of several launches the first one's is the trial's; another one's leaves its worker alone."""
        self._ends.set()
        self._imported.wait(IMPORT_S)
        self._thread.join(LAST_READ_S)
        if self._thread.is_alive():
            self._warn_away("no answer in time")
        self._report_end(ended)
        if self._held is not None:
            self._held.close()

    def _report_end(self, ended: Ended) -> None:
        if self._client is None or self._trial is None:
            return
        if self._options.rank:
            if ended.is_success:
                self._trial.detach(self._options.rank)
        elif ended.is_success:
            self._trial.finish()
        elif ended.is_killed:
            self._trial.kill()
        else:
            self._trial.fail()
        if self._study is not None:
            self._study.leave()
        self._client.close_at_exit(LAST_REPORT_S)

    def _begin(self) -> None:
        try:
            self._register()
        except Exception as error:  # noqa: BLE001  The command runs on whatever fails.
            say(f"the controller is not told of this run: {error}")
        finally:
            self._imported.set()

    def _register(self) -> None:
        from beamer.client import Client
        from beamer.studies.model import Worker

        options = self._options
        client = Client(self._url, ANSWER_S)
        self._imported.set()
        was_known = bool(self._run)
        name = options.trial if was_known or options.rank else self._place()
        if name is None:
            return
        if options.rank:
            trial = client.trial(options.study, name, self._run or None)
        else:
            study = self._study = client.study(options.study, run=self._run, barriers=False)
            trial = study.trial(name, budget=options.budget)
            for step in options.milestones:
                trial.milestone(step)
            trial.start([Worker(rank, host) for rank, host in enumerate(options.workers)])
        if self._held is not None and not was_known and self._run:
            # It was attached to the trial of that name, and may be another one's.
            self._held.close()
            self._held = lease.attach(options.study, name, options.rank, self._run)
        if self._held is None:
            trial.attach(options.rank, self._pid)
        self._client, self._trial = client, trial
        if self._last[0]:  # The command was here before the client was.
            trial.progress(*self._last)

    def _place(self) -> str | None:
        """Find the run of the study; return the trial's name there, None if the command ends before that."""
        while True:
            try:
                self._run, name = find_place(self._url, self._options.study, self._options.trial, os.environ, ANSWER_S)
            except ConnectionError as error:
                self._warn_away(str(error))
                if self._ends.wait(READ_AGAIN_S):
                    return None
            else:
                if name != self._options.trial:
                    say(f"trial {name} of study {self._options.study}")
                return name

    def _warn_away(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            say(f"the controller at {self._url} does not answer ({reason}); the command runs without it")
