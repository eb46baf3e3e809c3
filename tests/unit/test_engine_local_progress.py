"""From lines to reports: what counts as progress, and what as time."""

import json

import pytest

from beamer.engines.local.supervisor.progress import Meter, Progress, ProgressLine, parse, parser

START = Progress()


def meter(
    progress: Progress = START, launched_s: float = 100.0, scale: float = 1.0, every: int = 1, gap_s: float = 0.0
) -> Meter:
    return Meter(progress, launched_s, scale, 32, every, gap_s)


def at(step: float, loss: float = 1.0) -> ProgressLine:
    return ProgressLine(step, False, loss)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"iteration": 3, "loss": 0.5}', ProgressLine(3.0, False, 0.5)),
        (' {"iteration": 3, "loss": 0.5, "accuracy": 0.25, "lr": 1} ', ProgressLine(3.0, False, 0.5, 0.25)),
        ('{"samples": 96, "loss": "0.5", "gradient_sqr": 2, "gradient_var": 3}', ProgressLine(96.0, True, 0.5, None, 2.0, 3.0)),
        ('{"iteration": 3}', None),
        ('{"loss": 3}', None),
        ('{"iteration": "many", "loss": 0.5}', None),
        ('{"iteration": Infinity, "loss": 0.5}', None),
        (f'{{"iteration": {10**400}, "loss": 0.5}}', None),
        ('{"iteration": true, "loss": 0.5}', None),
        ('{"iteration": 3, "loss":', None),
        ("3", None),
        ("", None),
        ("Epoch 3, loss 0.5", None),
    ],
)
def test_lines_of_json(text: str, line: ProgressLine | None) -> None:
    assert parse(text, None) == line


def test_a_loss_that_is_no_number_any_more_is_passed_on() -> None:
    line = parse('{"iteration": 3, "loss": NaN}', None)
    assert line is not None
    assert line.loss != line.loss


def test_lines_of_a_pattern() -> None:
    pattern = parser(r"step (?P<iteration>\d+).*loss (?P<loss>\S+)(?: acc (?P<accuracy>\S+))?")
    assert parse("[12:00] step 7 of 9, loss 0.5 acc 0.75", pattern) == ProgressLine(7.0, False, 0.5, 0.75)
    assert parse("step 7 of 9, loss 0.5", pattern) == ProgressLine(7.0, False, 0.5)
    assert parse(json.dumps({"iteration": 7, "loss": 0.5}), pattern) is None


def test_service_time_is_that_between_lines_without_what_was_suspended() -> None:
    one = meter()
    first = one.line(at(0), 103.0)
    assert first is not None
    assert (first.iteration, first.service_s) == (0.0, 0.0), "the start-up is no service"
    one.pause(50.0)
    later = one.line(at(4), 161.0)
    assert later is not None
    assert (later.at_s, later.iteration, later.service_s) == (161.0, 4.0, 8.0)
    assert one.iteration_s == 2.0


def test_only_news_are_reported_and_only_as_often_as_asked() -> None:
    one = meter(every=3)
    reports = [one.line(at(step), 100.0 + i) for i, step in enumerate([0, 0, 1, 2, 3, 3, 2, 4, 5, 7])]
    assert [report.iteration for report in reports if report] == [0.0, 3.0, 7.0]
    last = reports[-1]
    assert last is not None
    assert last.service_s == 9.0, "what is not reported is counted all the same"


def test_a_restart_costs_what_no_step_was_computed_in() -> None:
    one = meter(Progress(step=20.0, done=20.0, service_s=40.0, step_s=2.0), gap_s=5.0)
    report = one.line(at(22), 110.0)
    assert report is not None
    assert report.service_s == 44.0
    assert one.restart_s == pytest.approx(5.0 + 10.0 - 4.0)


def test_a_program_that_does_not_show_its_start_is_counted_from_the_launch() -> None:
    one = meter()
    report = one.line(at(10), 130.0)
    assert report is not None
    assert report.service_s == 30.0
    assert one.restart_s is None


def test_other_batch_sizes_count_as_what_they_do() -> None:
    one = meter(Progress(step=10.0, done=10.0), scale=2.0)
    report = one.line(at(15), 101.0)
    assert report is not None
    assert report.iteration == 20.0
    in_samples = meter(Progress(step=320.0, done=10.0), scale=2.0)
    in_samples.line(ProgressLine(320.0, True, 1.0), 101.0)
    second = in_samples.line(ProgressLine(384.0, True, 1.0), 103.0)
    assert second is not None
    assert second.iteration == 12.0
    assert in_samples.iteration_s == pytest.approx(2.0), "one step of 64 samples"


def test_a_run_from_an_older_checkpoint_goes_back() -> None:
    one = meter(Progress(step=20.0, done=20.0, service_s=40.0, step_s=2.0))
    report = one.line(at(11), 103.0)
    assert report is not None
    assert (report.iteration, report.service_s) == (11.0, 40.0)


def test_the_last_iteration_is_reported_whatever_came_before() -> None:
    one = Meter(START, 100.0, 1.0, 32, 4, 0.0, iterations=6)
    reported = [entry.iteration for i in range(7) if (entry := one.line(at(i), 100.0 + i))]
    assert reported == [0, 4, 6]
