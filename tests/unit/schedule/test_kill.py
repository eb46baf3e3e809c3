"""What `beamer schedule --kill` says that it has killed: what has ended, and nothing else."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from beamer.schedule.command import _Command


class Session:
    """A search whose jobs end, when they are waited for, unless they are among those that stay."""

    done = False

    def __init__(self, jobs: set[str], stay: set[str]) -> None:
        self.unended = jobs
        self._stay = stay

    def park(self, interrupted: Callable[[], bool]) -> bool:
        self.unended = self.unended & self._stay
        return not self.unended


@pytest.mark.parametrize(
    ("stay", "left", "said"),
    [
        (set(), [], ["killed: s/a", "killed: s/b"]),
        ({"s/b"}, [("s/b", "s/b on far: not reached")], ["killed: s/a"]),
        ({"s/a", "s/b"}, [], []),  # of an engine that kills nothing
    ],
)
def test_only_what_has_ended_is_said_to_be_killed(
    stay: set[str], left: list[tuple[str, str]], said: list[str], tmp_path: Path
) -> None:
    printed: list[str] = []
    command: Any = object.__new__(_Command)
    command.session, command.signals = Session({"s/a", "s/b"}, stay), []
    command.directory = SimpleNamespace(path=tmp_path)
    command.search = SimpleNamespace(engine=SimpleNamespace(left=lambda folder, jobs, kill: left))
    command.errors = SimpleNamespace(print=lambda line, highlight: printed.append(line))
    assert command._kill_jobs() == (not stay)
    assert printed == said
