"""What the controller is told of the command, from a thread: neither its start nor its signals wait for that.

The client takes longer to import than the command takes to start.
"""

import logging
import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from beamer.errors import InputError
from beamer.run.child import Ended
from beamer.run.options import RunOptions
from beamer.run.present import free_place, read_study

if TYPE_CHECKING:
    from beamer.client import Client, StudyHandle, TrialHandle

READ_AGAIN_S = 2.0
"""Seconds between two readings of the study at a controller that does not answer."""
IMPORT_S = 5.0
"""Seconds for which the end of a command waits for the client to be imported, where it ends before that."""


def say(text: str) -> None:
    """Print a line on the standard error; where nobody reads it any more, nothing."""
    with suppress(OSError, ValueError):
        print(f"beamer run: {text}", file=sys.stderr, flush=True)


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

    run: of the study; "": it is read first. pid: the command's process id, for hosts without an agent; None: it is attached.
    """

    def __init__(self, options: RunOptions, run: str, url: str, pid: int | None) -> None:
        self._options = options
        self._run = run
        self._url = url
        self._pid = pid
        self._ends = threading.Event()
        self._last: tuple[int, float | None] = 0, None
        self._client: Client | None = None
        self._study: StudyHandle | None = None
        self._trial: TrialHandle | None = None
        self._thread = threading.Thread(target=self._begin, name="beamer-run", daemon=True)
        self._thread.start()

    def progress(self, step: int, loss: float | None) -> None:
        """Report how far the command is, unless it was there before: a library may draw a bar again."""
        if (step, loss) == self._last or step < self._last[0]:
            return
        self._last = step, loss
        if self._trial is not None:
            self._trial.progress(step, loss)

    def end(self, ended: Ended) -> None:
        """Report the end. Of several launches the first one's is the trial's; another one's leaves its worker alone."""
        self._ends.set()
        self._thread.join(IMPORT_S)
        if self._client is None or self._trial is None:
            return
        if self._options.rank:
            if ended.is_success:
                self._trial.detach(self._options.rank)
        elif ended.is_success:
            self._trial.finish()
        elif ended.was_stopped:
            self._trial.kill()
        else:
            self._trial.fail()
        if self._study is not None:
            self._study.leave()
        self._client.close_at_exit()

    def _begin(self) -> None:
        options = self._options
        try:
            from beamer.client import Client
            from beamer.studies.model import Worker

            client = Client(self._url)
            name = self._place()
        except InputError as error:
            say(f"the controller is not told of this run: {error}")
            return
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
        if self._pid is not None:
            trial.attach(options.rank, self._pid)
        self._client, self._trial = client, trial
        if self._last[0]:  # The command was here before the client was.
            trial.progress(*self._last)

    def _place(self) -> str | None:
        """Find the run of the study where it is not known; return the trial's name, None if the command ends before that."""
        has_failed = False
        while not self._run and not self._options.rank:
            try:
                study = read_study(self._url, self._options.study, os.environ)
                self._run, name = free_place(study, self._options.trial)
                return name
            except ConnectionError as error:
                if not has_failed:
                    say(f"the controller at {self._url} does not answer ({error}); the command runs without it")
                has_failed = True
                if self._ends.wait(READ_AGAIN_S):
                    return None
        return self._options.trial
