"""Pipes as lines: their ends, lines without one, and no more of either than is taken at a time."""

import pytest

from beamer.engines.local.supervisor.lines import MAX_LINE, PrintedLine
from beamer.engines.local.supervisor.output_lines import HEAD, OutputLines


def taken(lines: OutputLines) -> list[PrintedLine]:
    found = []
    while (line := lines.take()) is not None:
        found.append(line)
    return found


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n", b"\b" * 60])
def test_a_line_ends_where_the_next_one_is_written_over_or_below_it(end: bytes) -> None:
    lines = OutputLines()
    lines.add(b"one" + end + b"tw")
    lines.add(b"o" + end)
    lines.add(b"three")
    assert [line.text for line in taken(lines)] == ["one", "two"]
    assert lines.finish()
    assert [line.text for line in taken(lines)] == ["three"]
    assert not lines.finish()


def test_of_a_line_that_is_too_long_the_beginning_and_the_end_are_kept() -> None:
    lines = OutputLines()
    lines.add(b"{" + b"x" * MAX_LINE)
    for _ in range(50):
        lines.add(b"y" * 65536)
        assert not lines
    lines.add(b" 20/20 loss 0.5\nnext\n")
    long_line, other = taken(lines)
    assert long_line.text == " 20/20 loss 0.5", "what is cut at its beginning is left out"
    assert long_line.head.startswith("{xxx")
    assert len(long_line.head) == HEAD
    assert long_line.length == 1 + MAX_LINE + 50 * 65536 + len(" 20/20 loss 0.5")
    assert other == PrintedLine("next", "", 4)


def test_no_part_of_a_number_is_left_of_a_line_that_is_too_long() -> None:
    lines = OutputLines()
    end = b"20/200 loss 0.5"
    lines.add(b"z" * MAX_LINE + b"1" + end + b" " * (MAX_LINE - len(end)) + b"\n")
    (line,) = taken(lines)
    assert line.text.startswith("/200 loss 0.5")
