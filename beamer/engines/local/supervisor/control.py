"""Asking a supervisor: by its socket where files are shared, by this module as a command elsewhere.

    python -m beamer.engines.local.supervisor.control DIR '{"kind": "status"}' [--timeout SECONDS] [--start KIND]

With `--start` a supervisor that is not there is started first. Prints the answer as a line of JSON.
"""

import argparse
import logging
import subprocess
import sys
import time
from pathlib import Path

from beamer.engines.local.supervisor import groups, messages, store
from beamer.engines.local.supervisor.messages import Refused, SupervisorAnswer, SupervisorRequest
from beamer.errors import InputError
from beamer.log_limit import DIFFERENCES_AGAIN_S, MAX_DIFFERENCES, VariedLogLimit
from beamer.protocol_version import FIRST_VERSION, PROTOCOL_VERSION

RETRY_S = 0.01

log = logging.getLogger("beamer.engines.local")
_unused = VariedLogLimit(MAX_DIFFERENCES, DIFFERENCES_AGAIN_S)  # Unused fields of newer supervisors' answers are logged.


class Unreachable(Exception):  # This exception stands for the absence of an answer.
    """No supervisor answers; the message says what was seen. absent: whether because there is none, not because it is slow."""

    def __init__(self, seen: str, absent: bool = False) -> None:
        super().__init__(seen)
        self.absent = absent


def ask(directory: Path, request: SupervisorRequest, timeout_s: float) -> SupervisorAnswer:
    """Return what the supervisor of a directory answers. Raises `Unreachable` where none does in time."""
    until = time.monotonic() + timeout_s
    answered = _ask(directory, request, timeout_s, PROTOCOL_VERSION)
    if isinstance(answered, Refused) and messages.is_unread(request, answered.reason):
        return _ask(directory, request, max(until - time.monotonic(), RETRY_S), FIRST_VERSION)
    return answered


def _ask(directory: Path, request: SupervisorRequest, timeout_s: float, version: int) -> SupervisorAnswer:
    try:
        with store.connect(directory, timeout_s) as client, client.makefile("rwb") as stream:
            stream.write(messages.encode(request, version).encode() + b"\n")
            stream.flush()
            line = stream.readline()
    except OSError as error:
        absent = isinstance(error, ConnectionError | FileNotFoundError)
        raise Unreachable(f"{type(error).__name__} at {directory}/control: {error}", absent) from error
    if not line:
        raise Unreachable(f"the supervisor of {directory} closed the connection", absent=True)
    return answer(line)


def answer(line: str | bytes) -> SupervisorAnswer:
    """Return the answer that a line holds. Raises `Unreachable` where it holds none."""
    try:
        received = messages.read_answer(line)
    except InputError as error:
        raise Unreachable(f"no answer: {error}") from error
    if received.unused and _unused.take("newer", received.unused):
        log.warning("a supervisor speaks version %d: %s is not used", received.version, ", ".join(received.unused))
    return received.message


def supervisor_command(directory: str, kind: str, python: str) -> list[str]:
    """Return the command that starts the supervisor of a directory."""
    return [python, "-m", "beamer.engines.local.supervisor", directory, "--group", kind]


def control_command(
    directory: str,
    request: SupervisorRequest,
    timeout_s: float,
    kind: str | None,
    python: str,
    version: int = PROTOCOL_VERSION,
) -> list[str]:
    """Return the command that asks the supervisor of a directory.

    kind: of the group of one that is started for it. version: that this module speaks where the command runs.
    """
    command = [
        python,
        "-m",
        "beamer.engines.local.supervisor.control",
        directory,
        messages.encode(request, version),
        "--timeout",
        str(timeout_s),
    ]
    return [*command, "--start", kind] if kind else command


def run(command: list[str], timeout_s: float) -> str:
    """Return what a command prints. Raises `Unreachable` if it fails or is late."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreachable(f"{' '.join(command[:4])} ...: {error}") from error
    if done.returncode:
        raise Unreachable(f"{' '.join(command[:4])} ... exited with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def ask_or_start(directory: Path, request: SupervisorRequest, timeout_s: float, start: list[str] | None) -> SupervisorAnswer:
    """Ask, and where nobody is there, or not any more, run the command `start` and ask again: requests may be repeated."""
    until = time.monotonic() + timeout_s
    try:
        return ask(directory, request, timeout_s)
    except Unreachable as error:
        if start is None or not error.absent:
            raise
    run(start, max(until - time.monotonic(), RETRY_S))
    while True:
        try:
            return ask(directory, request, max(until - time.monotonic(), RETRY_S))
        except Unreachable as error:
            if time.monotonic() > until or not error.absent:
                raise
            time.sleep(RETRY_S)  # Another process is starting the supervisor, too.


def main(arguments: list[str] | None = None) -> None:
    """Ask what the command line holds."""
    options = argparse.ArgumentParser(prog="python -m beamer.engines.local.supervisor.control", description=__doc__)
    options.add_argument("directory", type=Path)
    options.add_argument("request", help='JSON with "kind" and the fields of the request, see messages.py')
    options.add_argument("--timeout", type=float, default=5.0)
    options.add_argument("--start", choices=groups.KINDS, help="the group of a supervisor that is started if there is none")
    chosen = options.parse_args(arguments)
    start = supervisor_command(str(chosen.directory), chosen.start, sys.executable) if chosen.start else None
    try:
        received = messages.read_request(chosen.request)
        print(messages.encode(ask_or_start(chosen.directory, received.message, chosen.timeout, start), received.version))
    except (InputError, Unreachable) as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
