"""Runs of `beamer emulate`, as a user would start them, for the studies that are of them."""

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval.orderly_end import completed

RunDocument = Mapping[str, Any]
"""A run's figures, as `--json` has them."""


def emulated_figures(scenario: Path | None, *options: str) -> list[RunDocument]:
    """Emulate a scenario, the shipped one if None, and return the figures of its runs. Raises `CalledProcessError`."""
    with tempfile.TemporaryDirectory() as directory:
        figures = Path(directory) / "figures.json"
        command = [sys.executable, "-m", "beamer.cli", "emulate", *options, "--json", str(figures)]
        completed([*command, *([str(scenario)] if scenario else [])], shows_errors=True).check_returncode()
        found: list[RunDocument] = json.loads(figures.read_text())["runs"]
    return found
