"""The files in which a supervisor keeps what it knows of a job: `state`, replaced as a whole, `reports` and `output`, appended.

A full disk ends no job: what cannot be written now is written later, or is missing after the supervisor's death.
"""

import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from beamer.engines.local.supervisor import codec, store
from beamer.engines.local.supervisor.messages import RunStatus
from beamer.engines.local.supervisor.progress import NodeReport

SAVE_S = 1.0
"""How often progress is saved: so much of it is missing from `state` after a supervisor's death, nothing from `reports`."""


@dataclass(frozen=True)
class SavedState:
    """The content of `state`. group: kind and path of the process group, None if it has been removed."""

    run: RunStatus = field(default=RunStatus())
    group: tuple[str, str] | None = None


def load_state(directory: Path) -> SavedState:
    """Return the state that was saved in a directory, the initial one if none was."""
    value = store.read_json(directory / "state")
    return SavedState() if value is None else codec.decode(SavedState, value, f"{directory}/state")


class JobFiles:
    """The files of a directory, for its supervisor. reports: all that the job has made on this node."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.reports = list(_reports(directory / "reports"))
        # The file is open as long as this object lives.
        self.output: BinaryIO = open(directory / "output", "ab", buffering=0)  # noqa: SIM115
        self._reports = open(directory / "reports", "a", buffering=1)  # noqa: SIM115
        self._is_outdated = False
        self._saved_s = 0.0

    @property
    def due_s(self) -> float | None:
        """When `state` is to be saved, monotonic time; None: it is up to date."""
        return self._saved_s + SAVE_S if self._is_outdated else None

    def outdate(self) -> None:
        """Have `state` saved soon."""
        self._is_outdated = True

    def add(self, report: NodeReport) -> None:
        """Append a report."""
        self.reports.append(report)
        with suppress(OSError):
            self._reports.write(codec.encode(report) + "\n")

    def remove_reports(self) -> None:
        """Remove the reports: the job has left the node."""
        (self._directory / "reports").unlink(missing_ok=True)

    def save(self, state: SavedState) -> None:
        """Save the state, or have it saved soon where that fails."""
        try:
            self.write(state)
        except OSError as error:
            self._is_outdated = True
            with suppress(OSError):  # The log may be on the same disk.
                print(f"{self._directory}/state cannot be written: {error}", file=sys.stderr)

    def write(self, state: SavedState) -> None:
        """Save the state. Raises `OSError`."""
        self._is_outdated = False
        self._saved_s = time.monotonic()
        store.write_json(self._directory / "state", state)


def _reports(path: Path) -> list[NodeReport]:
    found = []
    with suppress(FileNotFoundError):
        for line in path.read_text().splitlines():
            with suppress(ValueError):  # The last line of a killed supervisor may be incomplete.
                found.append(codec.decode(NodeReport, json.loads(line)))
    return found
