"""Runs of `beamer emulate`, as a user would start them, for the studies that are of them."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RunDocument = Mapping[str, Any]
"""A run's figures, as `--json` has them."""


def emulated_run(scenario: Path, *options: str) -> RunDocument:
    """Emulate a scenario once and return its figures. Raises `CalledProcessError`."""
    with tempfile.TemporaryDirectory() as directory:
        figures = Path(directory) / "figures.json"
        command = [sys.executable, "-m", "beamer.cli", "emulate", str(scenario), *options, "--json", str(figures)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (run,) = json.loads(figures.read_text())["runs"]
    found: RunDocument = run
    return found
