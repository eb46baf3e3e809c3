"""Whether the program of a search is there: one that is missing fails the search once, not each of its configurations."""

import os
import re
import shutil
from collections.abc import Mapping
from errno import EACCES, ENOENT, ENOEXEC, ENOTDIR
from pathlib import Path

from beamer.engines.local import LaunchSpec
from beamer.errors import InputError
from beamer.schedule.file import Search

_LACKING = (ENOENT, EACCES, ENOEXEC, ENOTDIR)
"""What the system answers where there is no such program, or none that can be run; another attempt would change nothing."""
_NOT_STARTED = re.compile(rf"cannot be started: \[Errno ({'|'.join(map(str, _LACKING))})\]")


def check_programs(search: Search, environ: Mapping[str, str]) -> None:
    """Check that the programs of a search's jobs are on this machine.

    environ: of this process, which jobs inherit. Raises `InputError` naming the program and the key that is to be corrected.
    """
    checked: set[tuple[str, str, str]] = set()
    for job in (*search.jobs.values(), *search.extremes):
        for spec in job.launches.values():
            path = dict(spec.env).get("PATH", environ.get("PATH", os.defpath))
            asked = spec.command[0], spec.cwd, path
            if asked not in checked:
                checked.add(asked)
                _check_program(spec, path, search.python)


def _check_program(spec: LaunchSpec, path: str, python: str) -> None:
    program = spec.command[0]
    field = "job.python" if python and program == python else "job.command"
    if not Path(spec.cwd).is_dir():
        raise InputError("job.cwd", spec.cwd, "a directory that exists")
    where = str(Path(spec.cwd) / program) if "/" in program else program
    if shutil.which(where, path=path) is None:
        place = "a file that can be executed" if "/" in program else f"a program on PATH, {path}"
        raise InputError(field, program, place)


def missing_program(reason: str) -> bool:
    """Say whether a run has failed as its program is missing on its node. reason: of the failure."""
    return _NOT_STARTED.search(reason) is not None
