"""From lines to reports: what counts as progress, and what as time."""

from collections.abc import Iterable

import pytest

from beamer.engines.local.supervisor.lines import ProgressLine
from beamer.engines.local.supervisor.progress import Meter, Progress
from beamer.errors import InputError

START = Progress()


def meter(
    progress: Progress = START, launched_s: float = 100.0, scale: float = 1.0, every: int = 1, gap_s: float = 0.0
) -> Meter:
    return Meter(progress, launched_s, scale, 32, every, gap_s)


def at(step: float, loss: float = 1.0) -> ProgressLine:
    return ProgressLine(step, False, loss)


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


def test_the_same_iterations_are_reported_however_often_a_job_is_restarted() -> None:
    progress, reported = START, []
    for first, last in (
        (0, 7),
        (8, 9),
        (10, 10),
        (11, 13),
        (12, 20),
    ):  # the last run is of a checkpoint from before the last line
        one = meter(progress, every=5)
        reported += [entry.iteration for i in range(first, last + 1) if (entry := one.line(at(i), 100.0 + i))]
        progress = one.progress
    assert reported == [0, 5, 10, 15, 20]


def test_a_run_that_goes_back_reports_nothing_else_than_before() -> None:
    one = meter(Progress(step=22.0, done=22.0), every=5)
    reported = [entry.iteration for i in range(12, 28) if (entry := one.line(at(i), 100.0 + i))]
    assert reported == [15, 20, 25]


def test_multiples_of_what_fractions_sum_up_to_are_reported() -> None:
    one = meter(scale=1 / 3, every=2)
    reported = [entry.iteration for i in range(31) if (entry := one.line(at(i), 100.0 + i))]
    assert reported == pytest.approx([0, 2, 4, 6, 8, 10])


def test_the_last_iteration_is_reported_whatever_came_before() -> None:
    one = Meter(START, 100.0, 1.0, 32, 4, 0.0, iterations=6)
    reported = [entry.iteration for i in range(7) if (entry := one.line(at(i), 100.0 + i))]
    assert reported == [0, 4, 6]


TARGET = 50


def bounded(every: int = 1, progress: Progress = START, scale: float = 1.0) -> Meter:
    return Meter(progress, 100.0, scale, 32, every, 0.0, iterations=TARGET)


@pytest.mark.parametrize("step", [-1.0, 52.0, 1e30])
def test_an_iteration_that_cannot_be_is_refused_and_changes_nothing(step: float) -> None:
    one = bounded()
    with pytest.raises(InputError, match="expected 0 to 50, its target, and at most 1 beyond") as refused:
        one.line(at(step, -1e30), 100.0)
    assert (refused.value.field, refused.value.value) == ("iteration", step)
    report = one.line(at(1), 101.0)
    assert report is not None, "what comes after it counts"
    assert report.iteration == 1.0


def test_without_a_known_end_only_what_no_training_comes_to_is_refused() -> None:
    with pytest.raises(InputError, match=r"^iteration: got 1e\+30"):
        meter().line(at(1e30), 100.0)
    assert meter().line(at(1e9), 100.0) is not None


def test_a_program_may_run_beyond_its_target_by_what_lies_between_two_reports() -> None:
    declared, measured = bounded(every=8), bounded()
    assert declared.line(at(56), 101.0) is not None
    for step in (0, 7, 14, 21, 28, 35, 42, 49, 56):
        assert measured.line(at(step), 101.0 + step) is not None
    with pytest.raises(InputError):
        measured.line(at(63), 200.0)


def test_samples_are_bounded_as_iterations_are() -> None:
    one = bounded()
    assert one.line(ProgressLine(50 * 32.0, True, 1.0), 101.0) is not None
    with pytest.raises(InputError, match=r"^samples: got 3200\.0, expected 0 to 1600, its target, and at most 32 beyond"):
        bounded().line(ProgressLine(100 * 32.0, True, 1.0), 101.0)


@pytest.mark.parametrize(
    ("steps", "every", "missing"),
    [
        (range(31), 1, 20.0),
        (range(51), 1, 0.0),
        (range(50), 1, 0.0),  # counted from 0
        (range(49), 1, 2.0),
        ((0, 20, 40), 1, 0.0),  # every 20, and none at the end
        ((0, 15, 30), 1, 20.0),
        ((30,), 1, 20.0),  # it may report every 30, but has not said so
        ((30,), 30, 0.0),
        ((), 1, 0.0),  # silent
    ],
)
def test_what_is_missing_to_the_end(steps: Iterable[int], every: int, missing: float) -> None:
    one = bounded(every)
    for step in steps:
        one.line(at(step), 101.0 + step)
    assert one.missing == missing


def test_what_is_missing_follows_from_the_run_before_where_this_one_says_nothing() -> None:
    assert bounded(progress=Progress(step=30.0, done=30.0)).missing == 20.0
    assert bounded(progress=Progress(step=50.0, done=50.0)).missing == 0.0


def test_a_program_all_of_whose_reports_were_refused_has_not_come_to_its_end() -> None:
    one = bounded()
    with pytest.raises(InputError):
        one.line(at(1e30), 101.0)
    assert one.missing == TARGET


def test_a_larger_batch_comes_to_the_target_in_fewer_steps() -> None:
    one = bounded(scale=2.0)
    for step in range(26):
        one.line(at(step), 101.0 + step)
    assert one.missing == 0.0
    counts_steps = bounded(scale=0.5)
    counts_steps.line(at(TARGET), 101.0)
    assert counts_steps.missing == 0.0, "it ended after as many steps as it was asked for"
