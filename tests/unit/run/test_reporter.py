"""What `beamer run` says beside what its command prints."""

import sys

import pytest

from beamer.run.reporter import say


class Unbuffered:
    """An output like the standard error, whose every write arrives by itself."""

    def __init__(self) -> None:
        self.writes: list[str] = []

    def write(self, text: str) -> None:
        self.writes.append(text)

    def flush(self) -> None:
        pass


def test_a_line_is_written_at_once_as_the_command_may_print_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    output = Unbuffered()
    monkeypatch.setattr(sys, "stderr", output)
    say("no controller answers")
    assert output.writes == ["beamer run: no controller answers\n"]
