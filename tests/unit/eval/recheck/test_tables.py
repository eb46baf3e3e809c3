"""Every committed table is what today's code makes, as far as its cells can be made again in a test."""

import os
import subprocess
import sys

import pytest

from eval.recheck.tables import RECHECKED

INPUTS = {
    "GPU_DATA": "--data",
    "POLLUX_CHECKOUT": "--pollux",
    "GAVEL_CHECKOUT": "--gavel",
}
"""Options of the command by the variable of the environment that has their value."""


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", RECHECKED)
def test_todays_code_makes_the_committed_figures(name: str) -> None:
    """The command chooses the instructions of NumPy, so that it runs in a process of its own."""
    given = [part for variable, option in INPUTS.items() if (value := os.environ.get(variable)) for part in (option, value)]
    command = [sys.executable, "-m", "eval", "recheck", "--tables", name, *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3500)
    if done.returncode == 2 and "expected also" in done.stderr:
        pytest.skip(f"set {', '.join(INPUTS)}: {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
