"""Command lines, run within the test's own process: what a process of its own would print, and end with.

Starting Python and importing what a command needs takes longer than most commands. That a command starts as a process at all is
asserted once per program in `tests/unit/test_cli.py`.
"""

import io
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from subprocess import CompletedProcess
from unittest.mock import patch


def run_here(main: Callable[[], None], *arguments: str, env: Mapping[str, str] | None = None) -> CompletedProcess[str]:
    """Run a command line in this process; return its exit code and what it printed.

    main: ends the process as a command line does, or returns. env: the whole environment, this process's by default.
    """
    out, err = io.StringIO(), io.StringIO()
    environment = dict(os.environ if env is None else env)
    with (
        patch.object(sys, "argv", ["program", *arguments]),
        patch.dict(os.environ, environment, clear=True),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
            if isinstance(ended.code, str):
                print(ended.code, file=sys.stderr)  # as Python itself does
    return CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
