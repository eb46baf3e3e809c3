"""Runs the system's own tools; one that fails ends the run with the error that it printed."""

import subprocess
from collections.abc import Mapping, Sequence

from beamer.errors import EmulationError


def run(*command: str, enter: Sequence[str] = (), env: Mapping[str, str] | None = None) -> str:
    """Run a command and return what it prints; `enter` is the prefix of the namespace to run it in.

    Raises `EmulationError` with what it printed.
    """
    done = subprocess.run([*enter, *command], capture_output=True, text=True, env=env)
    if done.returncode:
        printed = " ".join((done.stderr or done.stdout).split())
        raise EmulationError(f"`{' '.join(command)}` ended with status {done.returncode}: {printed or 'it printed nothing'}")
    return done.stdout
