"""Programs that an experiment starts and waits for, and that end in their own way when it is interrupted.

`subprocess.run` kills its program then. A killed `beamer emulate` leaves its namespaces, a killed `beamer schedule` its trials.
"""

from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess, Popen

PATIENCE_S = 60.0
"""Seconds that a program has to end after SIGTERM; then it is killed."""


def completed(
    command: Sequence[str], cwd: Path | None = None, timeout_s: float | None = None, shows_errors: bool = False
) -> CompletedProcess[str]:
    """Run a command, its output left out, and return how it ended, with what it wrote to its standard error.

    timeout_s: seconds after which it is told to end. shows_errors: what it writes there is shown as it comes, and not returned.
    Raises `subprocess.TimeoutExpired` after `timeout_s`.
    """
    with Popen(command, cwd=cwd, stdin=DEVNULL, stdout=DEVNULL, stderr=None if shows_errors else PIPE, text=True) as program:
        try:
            _, errors = program.communicate(timeout=timeout_s)
        except BaseException:
            program.terminate()
            try:
                program.communicate(timeout=PATIENCE_S)
            finally:
                program.kill()
            raise
    return CompletedProcess(command, program.returncode, "", errors or "")
