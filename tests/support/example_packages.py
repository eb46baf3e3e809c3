"""Packages of examples/, installed as their users would."""

import subprocess
import sys
from pathlib import Path

from tests.support.checkout import ROOT

INSTALL = ("install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--no-compile")


def install(name: str, directory: Path) -> None:
    """Install the package in a folder of examples/ into a directory: a process that has it in its path finds all of it."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *INSTALL, "--target", directory]
    done = subprocess.run([*command, ROOT / "examples" / name], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
