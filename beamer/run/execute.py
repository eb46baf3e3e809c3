"""One run of a command as a trial, from its options to its end.

The command starts as soon as it is known as whom. Whatever fails of Beamer before, meanwhile or later is said once and changes
nothing of the command.
"""

import logging
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from beamer.client import lease
from beamer.client.urls import (
    LAUNCHER_VARIABLE,
    RUN_VARIABLE,
    STUDY_VARIABLE,
    TRIAL_VARIABLE,
    URL,
    URL_VARIABLE,
    CommandLauncher,
)
from beamer.errors import InputError
from beamer.run.child import ChildCommand, NotStarted, block_signals, is_told_to_end
from beamer.run.options import RunOptions, read_plain
from beamer.run.present import default_trial, find_place
from beamer.run.reporter import Reporter, Warnings, say

if TYPE_CHECKING:
    from beamer.run.output import ReadOutput

_LAST_STANDARD = 2  # The number of the standard error.


def run_plain(arguments: Sequence[str]) -> None:
    """Run the command and end the process, or return where typer is to read the arguments."""
    options = read_plain(arguments)
    if options is not None:
        execute(options)


def execute(options: RunOptions) -> NoReturn:
    """Run the command, and end this process as it ends."""
    blocked = block_signals()
    _take_closed_numbers()
    log = logging.getLogger("beamer.client")
    log.addHandler(Warnings())
    log.propagate = False
    output = _output(options)
    chosen, run = _placed(options)
    held = lease.attach(chosen.study, chosen.trial, chosen.rank, run or None)
    try:
        child = ChildCommand(chosen.command, _environment(chosen, run), blocked, output.descriptors if output else {})
    except NotStarted as error:
        say(str(error))
        raise SystemExit(error.code) from error
    reporter = Reporter(chosen, run, url_of(options), child.pid, held)
    if output is None:
        ended = child.wait()
    else:
        output.start(reporter.progress)
        ended = child.wait(output.resize)
        output.finish(is_told_to_end)
    reporter.end(ended)
    ended.leave()


def _take_closed_numbers() -> None:
    """Have nothing of this process be the standard input or an output that was closed; for the command it stays closed."""
    while (number := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= _LAST_STANDARD:
        pass
    os.close(number)


def _output(options: RunOptions) -> "ReadOutput | None":
    """Return the command's outputs where they are read. Raises `InputError` for a pattern that is none."""
    if not options.progress:
        return None
    from beamer.run.output import ReadOutput  # A command whose output is not read starts without it.

    try:
        return ReadOutput(options.progress)
    except InputError as error:
        raise InputError("--progress", error.value, error.expected) from error
    except OSError as error:  # There may be no terminal to be had.
        say(f"no progress is read: {error}")
        return None


def _placed(options: RunOptions) -> tuple[RunOptions, str]:
    """Return the options with the trial's name and its hosts, and the run of the study, "" where that is not known."""
    run = options.run or os.environ.get(RUN_VARIABLE, "")
    if len(options.workers) > 1 and not run:
        raise InputError("--run", "", f"a name, the same for every launch of several; or {RUN_VARIABLE}")
    trial = options.trial or default_trial(options.command)
    if not run and not options.rank:
        with suppress(Exception):  # The reporter tries again, and says what is wrong.
            run, trial = find_place(url_of(options), options.study, trial, os.environ)
    if trial != options.trial:
        say(f"trial {trial} of study {options.study}")
    return replace(options, trial=trial, workers=options.workers or (socket.gethostname(),)), run


def _environment(options: RunOptions, run: str) -> dict[str, str]:
    """Return what the command finds, so that a program that uses the client takes part in the same trial."""
    own = {
        STUDY_VARIABLE: options.study,
        TRIAL_VARIABLE: options.trial,
        RUN_VARIABLE: run,
        URL_VARIABLE: url_of(options),
        LAUNCHER_VARIABLE: (CommandLauncher.READING_RUN if options.progress else CommandLauncher.RUN).value,
    }
    return {**os.environ, **{name: value for name, value in own.items() if value}}


def url_of(options: RunOptions) -> str:
    """Return the controllers' URLs, with commas."""
    return options.controller or os.environ.get(URL_VARIABLE) or URL
