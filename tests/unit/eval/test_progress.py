"""What is shown of runs while they go on."""

import io
from collections.abc import Iterator

from rich.console import Console

from eval.progress import BETWEEN_LINES_S, LINES, ProgressLines, runs_progress


def printed(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def plain() -> Console:
    return Console(file=io.StringIO(), width=200)


def test_a_run_that_lasts_has_a_line_a_minute() -> None:
    times = iter([0.0, 10.0, 59.0, 60.0, 60.0, 90.0, 130.0])
    console = plain()
    progress = ProgressLines(console, "t", runs=3, known=1, clock=lambda: next(times))
    for title in ("a", "b"):
        progress.start(title)
    for done in (1, 2, 3, 4):
        progress.advance("a", done, 9)
    progress.end("a")
    assert printed(console) == [
        "t: 3 runs, 1 of them known",
        "t: 1 of 3 runs, 60 s; a: 3 of 9 jobs; b: just begun",
        "t: 2 of 3 runs, 130 s; ended: a",
    ]


def ended(runs: int, seconds_apart: float) -> list[str]:
    """Return the lines about so many runs that end one after another, of which nothing is known before."""

    def clock() -> Iterator[float]:
        while True:
            yield seconds_apart * made

    made, times, console = 0, clock(), plain()
    progress = ProgressLines(console, "t", runs, 0, lambda: next(times))
    for made in range(1, runs + 1):
        progress.end(f"run {made}")
    return printed(console)[1:]


def test_of_short_runs_a_tenth_has_a_line_and_of_long_ones_each() -> None:
    assert len(ended(5, 0.1)) == 5
    assert len(ended(1000, 0.001)) == LINES
    assert ended(1000, 0.001)[-1] == "t: 1000 of 1000 runs, 1 s; ended: run 1000"
    assert len(ended(1000, BETWEEN_LINES_S)) == 1000


def test_bars_are_of_all_runs_and_of_those_that_go_on() -> None:
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    with runs_progress(console, "t", runs=3, known=1) as progress:
        progress.start("a")
        progress.advance("a", 3, 9)
        progress.end("a")
        progress.end("b")
    shown = "\n".join(printed(console))
    assert "3/3" in shown
    assert "t: b" in shown, "it was not known before it ended"
