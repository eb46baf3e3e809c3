"""What is known of a run by what it prints: reports, refused lines, and the loss at its end."""

from collections.abc import Iterable
from math import isnan

import pytest

from beamer.engines.local.spec import LaunchSpec
from beamer.engines.local.supervisor.lines import PrintedLine
from beamer.engines.local.supervisor.messages import Launch, RunStatus
from beamer.engines.local.supervisor.progress import UNKNOWN, NodeReport, Progress
from beamer.engines.local.supervisor.run_watch import RunWatch

START = Progress()
PATTERN = r"(?P<iteration>\S+)/20 loss (?P<loss>\S+)"
SLOW = r"((a|aa)+$)|(?P<iteration>\d+)/\d+ loss (?P<loss>\S+)"


def watch(pattern: str = "", progress: Progress = START, batch_size: int = 1, iterations: int = 20) -> RunWatch:
    spec = LaunchSpec(("true",), progress=pattern, iterations=iterations, batch_size=batch_size)
    return RunWatch(Launch(1, spec, (0,), ("",), 1, "127.0.0.1", 4711, batch_size, progress), 0.0)


def read(run: RunWatch, texts: Iterable[str]) -> list[NodeReport]:
    found = [run.line(PrintedLine(text), 1.0 + i) for i, text in enumerate(texts)]
    return [report for report in found if report is not None]


def lines(first: int, last: int, loss: str = "0.5", end: int = 20) -> list[str]:
    return [f"{i}/{end} loss {loss}" for i in range(first, last + 1)]


def status(run: RunWatch) -> RunStatus:
    return run.status(RunStatus(1), 100.0)


def test_a_refused_last_line_is_the_worst_loss_and_not_the_one_before() -> None:
    run = watch(PATTERN)
    assert [report.iteration for report in read(run, [*lines(1, 19), "20/20 loss n/a"])] == list(range(1, 20))
    assert status(run).missing == 0.0
    last = run.last_report(50.0)
    assert last is not None
    assert (last.at_s, last.iteration, last.service_s) == (50.0, 20.0, 19.0)
    assert isnan(last.loss)
    assert "loss: got 'n/a'" in status(run).refused
    assert run.unread([]) == ""


@pytest.mark.parametrize("last", ["20,000/20 loss 0.5", "x/20 loss 0.5", "-20/20 loss 0.5", "2000/20 loss 0.5"])
def test_the_loss_is_not_known_either_where_the_iteration_of_the_last_line_cannot_be(last: str) -> None:
    run = watch(PATTERN)
    read(run, [*lines(1, 19), last])
    assert status(run).progress.refused == UNKNOWN
    report = run.last_report(50.0)
    assert report is not None
    assert (report.iteration, isnan(report.loss)) == (20.0, True)


@pytest.mark.parametrize("after", [["20/20 loss 0.25"], ["20/20 loss n/a", "20/20 loss 0.25"]])
def test_what_another_rank_reports_of_the_same_iteration_counts(after: list[str]) -> None:
    run = watch(PATTERN)
    reports = read(run, [*lines(1, 19), *after])
    assert (reports[-1].iteration, reports[-1].loss) == (20.0, 0.25)
    assert run.last_report(50.0) is None
    read(run, ["20/20 loss n/a", "3/20 loss n/a"])
    assert run.last_report(50.0) is None, "it was reported before"


def test_a_refused_line_between_others_costs_itself() -> None:
    run = watch(PATTERN)
    reports = read(run, [*lines(1, 9), "10/20 loss n/a", *lines(11, 20)])
    assert [report.iteration for report in reports] == [*range(1, 10), *range(11, 21)]
    assert run.last_report(50.0) is None


def test_refused_lines_are_progress_all_the_same() -> None:
    run = watch(PATTERN)
    read(run, [*lines(1, 15), *lines(16, 20, "n/a")])
    assert status(run).missing == 0.0
    assert status(run).progress.done == 15.0
    other = watch(PATTERN)
    read(other, [*lines(1, 5), *lines(6, 10, "n/a")])
    assert status(other).missing == 10.0, "it has stopped short"


def test_a_refused_line_is_handed_on_to_the_next_run() -> None:
    run = watch(PATTERN)
    read(run, [*lines(1, 19), "20/20 loss n/a"])
    progress = status(run).progress
    assert progress.refused == 20.0
    nothing_more = watch(PATTERN, progress)
    report = nothing_more.last_report(50.0)
    assert report is not None
    assert isnan(report.loss)
    again = watch(PATTERN, progress)
    assert [one.loss for one in read(again, ["20/20 loss 0.75"])] == [0.75]
    assert again.last_report(50.0) is None


def test_samples_of_a_refused_line_are_iterations() -> None:
    run = watch(batch_size=32)
    read(run, [f'{{"samples": {32 * i}, "loss": 0.5}}' for i in range(1, 20)] + ['{"samples": 640, "loss": "n/a"}'])
    assert status(run).progress.refused == 20.0


def test_other_json_after_the_last_line_takes_nothing_from_it() -> None:
    run = watch()
    reports = read(run, ['{"iteration": 19, "loss": 0.5}', '{"final_loss": 0.5, "took_s": 3}', '{"level": "info"}'])
    assert [report.iteration for report in reports] == [19.0]
    assert run.last_report(50.0) is None


def test_a_run_none_of_whose_lines_was_read_says_what_it_printed() -> None:
    run = watch("Epochs (?P<iteration>\\d+): (?P<loss>\\S+)")
    assert read(run, ["starting", "Epoch 1: 0.5"]) == []
    assert run.last_report(50.0) is None
    said = run.unread(["starting", "Epoch 1: " + "0" * 500])
    assert said.startswith("none of its 2 lines was read as progress: the pattern Epochs")
    assert "\n  starting\n  Epoch 1: 000" in said
    assert len(said) < 500
    assert "none is JSON such as" in (other := watch()).unread([]) or other.unread([]).startswith("it printed nothing")
    assert watch(progress=Progress(step=3.0, done=3.0)).unread([]) == "", "a run before has reported"


def test_refused_lines_alone_are_remembered_as_such() -> None:
    run = watch(PATTERN)
    assert read(run, lines(1, 20, "n/a")) == []
    assert run.last_report(50.0) is None
    assert status(run).progress.refused == 20.0
    assert run.unread(["20/20 loss n/a"])
    other = watch()
    read(other, ['{"step": 1, "loss": 0.5}'])
    assert status(other).progress.refused == UNKNOWN
    logs = watch()
    read(logs, ['{"level": "info"}'])
    assert status(logs).progress.refused is None, "that is no report"


def test_a_refused_line_of_a_pattern_is_said_after_others_too() -> None:
    run = watch(r"at (?P<iteration>\d+): (?P<loss>\S+)")
    read(run, ["at 1: 0.5", "at 2: n/a"])
    assert status(run).refused.startswith("'at 2: n/a' is no progress: loss: got 'n/a'")


def test_a_pattern_that_is_too_slow_is_tried_no_more() -> None:
    run = watch(SLOW)
    assert [report.loss for report in read(run, ["1/20 loss 0.5", "a" * 60 + "!", "2/20 loss 0.5"])] == [0.5]
    assert "took longer than" in run.slow
