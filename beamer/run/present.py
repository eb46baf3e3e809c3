"""Which run of a study a command takes part in, and the name that is free for its trial there.

Where no run is named, the command joins the study's present one, and begins one where there is none or it has ended. So the
commands of one search may be started independently of each other, and one that is run again after all have ended begins anew.
A name whose trial has ended in the run is taken: `NAME.2` is next. That is decided by one reading, which is given up after
`PATIENCE_S`: the command then starts without knowing its run, and the reading is repeated. No run is begun without it, as that
would end the one that is present.
"""

import os
import re
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from beamer.errors import InputError
from beamer.studies.model import StudyStatus, TrialStatus

PATIENCE_S = 0.25
"""Seconds that the command waits for the controller, which answers within milliseconds on a machine that is not overloaded."""
MAX_CHARACTERS = 63
"""Of a name that is made here, whose end says which process it is."""
_NOT_FOUND = 404
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


def default_trial(command: Sequence[str]) -> str:
    """Return a readable name for a command's trial that no other process of the host has now."""
    module = next((after for before, after in pairwise(command) if before == "-m"), "")
    script = next((word for word in command if word.endswith(".py")), "")
    program = PurePath(script).stem or module or PurePath(command[0]).name
    own = f"-{socket.gethostname().partition('.')[0]}-{os.getpid()}"
    shown = _NOT_IN_NAMES.sub("-", program + own).lstrip("._-") or "command"
    return shown[-MAX_CHARACTERS:].lstrip("._-")


def new_run() -> str:
    """Return a name for a run that no other one has."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:8]}"


def free_place(study: Mapping[str, Any] | None, trial: str) -> tuple[str, str]:
    """Return the run to take part in and the trial's name there. study: as the controller shows it, None: it knows none."""
    if study is None or study["status"] == StudyStatus.ENDED:
        return new_run(), trial
    ended = {one["name"] for one in study["trials"] if TrialStatus(one["status"]).is_finished}
    name, number = trial, 1
    while name in ended:
        number += 1
        name = f"{trial}.{number}"
    return str(study["run"]), name


def read_study(urls: str, study: str, environment: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Return a study as the controller shows it, None if it knows none.

    Raises `ConnectionError` where no answer comes in time or none that can be read, `InputError` as the client does.
    """
    from beamer.client.controllers import Controllers
    from beamer.client.credentials import CA_VARIABLE, authorization, check_exposure
    from beamer.client.transport import Transport
    from beamer.client.urls import controller_urls

    listed = controller_urls(urls)
    headers = authorization(None, environment)
    if headers:
        check_exposure(listed, environment)
    authority = environment.get(CA_VARIABLE) or None
    patience_s = PATIENCE_S / len(listed)
    controllers = Controllers(listed, lambda one, known: Transport(one, patience_s, headers, authority, known))
    try:
        for _ in listed:
            try:
                answer = controllers.request("GET", f"/v1/studies/{quote(study, safe='')}")
            except ConnectionError:
                continue
            if answer.status_code == _NOT_FOUND:
                return None
            if answer.is_success:
                found: Mapping[str, Any] = answer.json()
                return found
        raise ConnectionError("no controller answers")
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise ConnectionError(str(error)) from error
    finally:
        controllers.close()
