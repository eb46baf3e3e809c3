"""Which run of a study a command takes part in, and the name that is free for its trial there.

Where no run is named, the command joins the study's present one, and begins one where there is none or it has ended. So the
commands of one search may be started independently of each other, and one that is run again after all have ended begins anew.
A new run's name follows from what was read. Commands that are started together read the same, name the same run, and join it: a
run of another name would end theirs. A name whose trial has ended in the run is taken: `NAME.2` is next.

The study is read before the command starts, which is given up after `PATIENCE_S`: the command then starts without knowing its
run, and the reading is repeated. No run is begun without it, as that would end the one that is present.
"""

import os
import re
import socket
import time
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from beamer.client.request import Address
from beamer.errors import InputError
from beamer.studies.model import MAX_NAME_CHARACTERS, StudyStatus, TrialStatus

if TYPE_CHECKING:
    from beamer.client.controllers import Controllers

PATIENCE_S = 0.25
"""Seconds that the command waits for the controller, which answers within milliseconds on a machine that is not overloaded."""
FIRST_RUN = "run"
"""The first run of a study that is begun here; `run.2` is next."""
MAX_CHARACTERS = 63
"""Of a name that is made here, whose end says which process it is."""
_NOT_FOUND = 404
_NUMBERED = re.compile(r"(.+)\.([0-9]{1,9})", re.DOTALL)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


def default_trial(command: Sequence[str]) -> str:
    """Return a readable name for a command's trial that no other process of the host has now."""
    module = next((after for before, after in pairwise(command) if before == "-m"), "")
    script = next((word for word in command if word.endswith(".py")), "")
    program = PurePath(script).stem or module or PurePath(command[0]).name
    own = f"-{socket.gethostname().partition('.')[0]}-{os.getpid()}"
    shown = _NOT_IN_NAMES.sub("-", program + own).lstrip("._-") or "command"
    return shown[-MAX_CHARACTERS:].lstrip("._-")


def next_run(run: str, past: Container[str]) -> str:
    """Return the name of the run after one that has ended, the same for all who know the same runs. past: those before."""
    numbered = _NUMBERED.fullmatch(run)
    stem, number = (numbered[1], int(numbered[2])) if numbered else (run, 1)
    while True:
        number += 1
        end = f".{number}"
        name = stem[: MAX_NAME_CHARACTERS - len(end)] + end
        if name not in past:
            return name


def free_name(trial: str, is_taken: Callable[[str], bool]) -> str:
    """Return `trial`, or the first of `trial.2`, `trial.3`, ... that is not taken, by few questions: those before it are."""
    taken, free = 0, 1  # Numbers of names; the doubling has found none that is free until it ends.
    while is_taken(_numbered(trial, free)):
        taken, free = free, 2 * free
    while free - taken > 1:
        middle = (taken + free) // 2
        taken, free = (middle, free) if is_taken(_numbered(trial, middle)) else (taken, middle)
    return _numbered(trial, free)


def _numbered(trial: str, number: int) -> str:
    return trial if number == 1 else f"{trial}.{number}"


def find_place(
    urls: str,
    study: str,
    trial: str,
    environment: Mapping[str, str],
    patience_s: float = PATIENCE_S,
    new_run: str | None = None,
) -> tuple[str, str]:
    """Return the run of a study to take part in, as the controller shows it, and the trial's name there.

    patience_s: for all answers, of which there are few. new_run: the name of a run that begins here, where no other has had it;
    None: as above. Raises `ConnectionError` where answers do not come in time or cannot be read, `InputError` as the client
    does.
    """
    from beamer.client.controllers import Controllers
    from beamer.client.credentials import controller_access
    from beamer.client.transport import Transport

    access = controller_access(urls, environment)
    answer_s = patience_s / len(access.urls)  # Each has its share of the time, so that of two controllers one may be away.
    controllers = Controllers(access.urls, lambda one, known: Transport(one, answer_s, access.headers, access.ca, known))
    deadline = time.monotonic() + patience_s
    try:
        found = _read(controllers, f"{Address(study).path()}?trials=none", len(access.urls), deadline)
        if found is None:
            return new_run or FIRST_RUN, trial
        run = str(found["run"])
        if found["status"] == StudyStatus.ENDED:
            past = (*found["past_runs"], run)
            return (new_run if new_run and new_run not in past else next_run(new_run or run, past)), trial

        def is_taken(name: str) -> bool:
            known = _read(controllers, Address(study, run, trial=name).path(), len(access.urls), deadline)
            return known is not None and TrialStatus(known["status"]).is_finished

        return run, free_name(trial, is_taken)
    except InputError:
        raise
    except (ValueError, LookupError, TypeError) as error:
        raise ConnectionError(f"its answer cannot be read: {error}") from error
    finally:
        controllers.close()


def _read(controllers: "Controllers", path: str, tries: int, deadline: float) -> Mapping[str, Any] | None:
    """Return what the controller that leads answers, None where it knows of no such thing. Raises `ConnectionError`."""
    for _ in range(tries):
        if time.monotonic() > deadline:
            break
        try:
            answer = controllers.request("GET", path)
        except ConnectionError:
            continue
        if answer.status_code == _NOT_FOUND:
            return None
        if answer.is_success:
            found: Mapping[str, Any] = answer.json()
            return found
    raise ConnectionError("no controller answers")
