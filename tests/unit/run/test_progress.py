"""Which lines of an output are read for progress, and what of them is a step."""

import pytest

from beamer.engines.local.supervisor.lines import PrintedLine
from beamer.run.progress import MAX_PARTS, OutputParts, StepLines
from beamer.studies.model import MAX_STEPS


def test_lines_are_put_together_of_parts() -> None:
    parts = OutputParts()
    for data in (b"step 1", b"2\nst", b"ep 13", None):
        parts.put(data)
    assert [line.text for line in parts.lines()] == ["step 12", "step 13"]


def test_lines_around_parts_that_were_left_out_are_left_out() -> None:
    parts = OutputParts()
    lines = parts.lines()
    parts.put(b"step 1\nstep 2")
    assert next(lines).text == "step 1"
    parts.put(b"3\n")
    for _ in range(MAX_PARTS - 1):
        parts.put(b"9\nstep 4")
    parts.put(None)
    read = [line.text for line in lines]
    assert set(read) == {"step 49", "step 4"}
    assert len(read) == MAX_PARTS - 1


def test_what_is_no_step_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = StepLines("json")

    def read(text: str) -> tuple[int, float | None] | None:
        return lines.read(PrintedLine(text))

    for step in ("1.5", "-1", str(MAX_STEPS + 1), "1e300"):
        assert read(f'{{"iteration": {step}, "loss": 1}}') is None
    assert read('{"samples": 64, "loss": 1}') is None
    assert (
        capsys.readouterr().err == f"beamer run: progress in step 1.5 is left out, expected whole steps of 0 to {MAX_STEPS}\n"
    )
    assert read(f'{{"iteration": {MAX_STEPS}, "loss": 1}}') == (MAX_STEPS, 1.0)
    assert read("other") is None
