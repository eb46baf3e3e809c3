"""How figures and tables are written."""

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from beamer.inspect.text import FittedTable, counts, few, quantity, seconds, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0 s"), (1e-5, "10 us"), (0.0123, "0.012 s"), (9.94, "9.9 s"), (59.6, "1 min 0 s"), (3599.9, "1 h 0 min"),
     (86_399.9, "1 d 0 h"), (200_000, "2 d 7 h")],
)  # fmt: skip
def test_a_duration_has_the_units_that_say_how_long_it_is(value: float | None, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0, "0 B"), (999, "999 B"), (999.6, "1 kB"), (5_220_000, "5.22 MB"), (1e30, "1e+15 PB")]
)
def test_a_quantity_has_three_digits_and_a_prefix(value: float | None, text: str) -> None:
    assert quantity(value, "B") == text


def test_texts_of_others_are_one_line_without_escapes() -> None:
    assert shown("a\x1b[2J\nb\u202e") == r"a\x1b[2J\nb\u202e"
    assert few(["a", "b", "c"], 2) == "a, b and 1 more"
    assert counts({"killed": 2, "running": 1, "new\n": 3}) == r"1 running, 2 killed, 3 new\n"


@pytest.mark.parametrize("width", [20, 40, 60, 200])
def test_a_table_fits_its_terminal_and_keeps_figures_and_the_ends_of_names(width: int) -> None:
    rows = FittedTable("name", "loss", "hosts", right=("loss",), names=("name",), wrapped=("hosts",))
    for i in range(3):
        rows.add(f"a-name-that-is-long-enough-for-any-terminal-0{i}", f"0.{i}234", "h1, h2, h3, h4")
    rows.add("日本語" * 10, "7", "h1")
    out = io.StringIO()
    Console(file=out, width=width).print(rows)
    lines = out.getvalue().splitlines()
    assert max(map(cell_len, lines)) <= width
    if width >= 40:
        for i in range(3):
            (line,) = [one for one in lines if f"0.{i}234" in one]
            assert f"0{i} " in line
