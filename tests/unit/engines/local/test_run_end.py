"""What has become of a run, by what its supervisors report, and how long it has run and been silent."""

from dataclasses import replace

import pytest

from beamer.engines.local.run_end import RunStatuses
from beamer.engines.local.states import Phase, RanksState
from beamer.engines.local.supervisor.messages import RunStatus, Status
from beamer.engines.local.supervisor.progress import Progress
from beamer.engines.local.supervisor.run_clock import RunClock


def test_a_clock_counts_what_runs_and_what_is_silent_over_all_runs() -> None:
    clock = RunClock(100.0, ran_s=10.0, quiet_s=4.0)
    assert (clock.ran_s(103.0), clock.quiet_s(103.0)) == (13.0, 7.0)
    clock.suspend(103.0)
    assert (clock.ran_s(200.0), clock.quiet_s(200.0)) == (13.0, 7.0), "suspended time is left out"
    clock.resume(200.0)
    assert (clock.ran_s(201.0), clock.quiet_s(201.0)) == (14.0, 8.0)
    clock.hear(201.0)
    assert (clock.ran_s(203.0), clock.quiet_s(203.0)) == (16.0, 2.0)


def test_what_is_read_after_the_suspension_is_heard_without_going_on() -> None:
    clock = RunClock(100.0, 0.0, 0.0)
    clock.suspend(103.0)
    clock.hear(150.0)
    assert (clock.ran_s(160.0), clock.quiet_s(160.0)) == (3.0, 0.0)


def status(state: RanksState, step: float = 0.0, number: int = 3, **fields: object) -> Status:
    run = replace(RunStatus(number, state, progress=Progress(step=step, done=step)), **fields)  # type: ignore[arg-type]
    return Status(run, 100.0, 0.5, (), 0, False, "signals", 4711)


def replaced(known: Status, progress: Progress) -> Status:
    return replace(known, run=replace(known.run, progress=progress))


def statuses(**by_node: Status) -> RunStatuses:
    return RunStatuses(3, by_node)


FINISHED, FAILED, RUNNING = RanksState.FINISHED, RanksState.FAILED, RanksState.RUNNING


@pytest.mark.parametrize(
    ("found", "stopping", "end"),
    [
        (statuses(a=status(RUNNING)), False, None),
        (statuses(a=status(FINISHED, 50.0), b=status(RUNNING)), False, None),
        (statuses(a=status(FINISHED, 50.0), b=status(FINISHED)), False, (Phase.FINISHED, "")),
        (statuses(a=status(FAILED, exit="it broke"), b=status(RUNNING)), False, (Phase.FAILED, "a: it broke")),
        (statuses(a=status(RanksState.STOPPED, note="killed")), False, (Phase.PARKED, "a: killed")),
        (statuses(a=status(RanksState.LOST, note="died"), b=status(FAILED, exit="alone")), False, (Phase.PARKED, "a: died")),
        (statuses(a=status(FINISHED, number=2)), False, None),  # of the run before
        (statuses(a=status(RanksState.STOPPED)), True, None),  # as it was asked to
        (statuses(a=status(FAILED, exit="it broke")), True, (Phase.FAILED, "a: it broke")),
        (statuses(a=status(FAILED, port_taken=True)), True, None),  # it is launched again anyway
        (statuses(a=status(FAILED, port_taken=True, exit="in use")), False, (Phase.FAILED, "a: in use")),
        (statuses(a=status(FINISHED, 50.0)), True, (Phase.FINISHED, "")),
    ],
)
def test_what_has_become_of_a_run(found: RunStatuses, stopping: bool, end: tuple[Phase, str] | None) -> None:
    assert found.end(stopping) == end


def test_ranks_of_which_one_died_of_the_stop_signal_some_time_ago_are_orphans() -> None:
    stopped = status(RanksState.STOPPED, died_stopping=True)
    assert not statuses(a=stopped, b=status(RanksState.STOPPING)).is_orphaned, "it has just died"
    assert statuses(a=replace(stopped, ended_s=2.5), b=status(RanksState.STOPPING)).is_orphaned
    stopping = replace(status(RanksState.STOPPING, died_stopping=True), ended_s=300.0)  # since the run before
    assert not statuses(a=stopping).is_orphaned, "others on its node may be writing a checkpoint"
    assert not statuses(a=replace(status(RanksState.STOPPED), ended_s=2.5), b=status(RanksState.STOPPING)).is_orphaned


@pytest.mark.parametrize("stopping", [False, True])
def test_a_run_whose_iterations_are_missing_has_not_finished(stopping: bool) -> None:
    short = statuses(a=status(FINISHED, 30.0, missing=20.0), b=status(FINISHED, 0.0, missing=0.0))
    phase, reason = short.end(stopping) or (None, "")
    assert phase is Phase.FAILED
    assert reason == "it ended with exit code 0 and 20 of its iterations missing, as far as it has reported"


def test_whoever_knows_most_says_what_is_missing() -> None:
    moved = statuses(a=status(FINISHED, 30.0, missing=20.0), b=status(FINISHED, 50.0, missing=0.0))
    assert moved.end(False) == (Phase.FINISHED, ""), "a knows of the run before only"
    refused = statuses(a=status(FINISHED, 0.0, missing=50.0, refused="a line"), b=status(FINISHED))
    assert (refused.end(False) or [None])[0] is Phase.FAILED


def test_a_run_is_as_silent_as_its_least_silent_node() -> None:
    found = statuses(a=status(RUNNING, ran_s=10.0, quiet_s=2.0), b=status(RUNNING, ran_s=9.0, quiet_s=9.0, refused="a line"))
    assert (found.ran_s, found.quiet_s, found.refused) == (10.0, 2.0, "a line")
    nobody = RunStatuses(4, found.by_node)
    assert (nobody.ran_s, nobody.quiet_s, nobody.refused, nobody.leader) == (0.0, 0.0, "", None)


REFUSED = Progress(refused=20.0)


@pytest.mark.parametrize(
    ("found", "end"),
    [
        (statuses(a=status(FINISHED, unread="it printed nothing")), (Phase.FINISHED, "")),
        (
            statuses(a=replaced(status(FINISHED, unread="none of its 20", refused="'n/a'"), REFUSED)),
            (Phase.FAILED, "none of its reports could be read"),
        ),
        (
            statuses(a=status(FINISHED, unread="nothing"), b=replaced(status(FINISHED, unread="none of 20"), REFUSED)),
            (Phase.FAILED, "none of its reports could be read"),
        ),
        (
            statuses(a=status(FINISHED, 20.0), b=replaced(status(FINISHED, unread="none of its 20"), REFUSED)),
            (Phase.FINISHED, ""),
        ),
    ],
)
def test_a_run_has_failed_whose_reports_were_all_refused(found: RunStatuses, end: tuple[Phase, str]) -> None:
    assert found.end(stopping=False) == end


def test_what_is_said_of_a_run_that_no_line_was_read_of() -> None:
    said = "it printed nothing"
    assert statuses(a=status(FINISHED, unread=said), b=status(FINISHED, unread=said)).refused == said
    assert statuses(a=status(FINISHED, 20.0), b=status(FINISHED, unread=said)).refused == "", "another rank has reported"
    assert statuses(a=status(FINISHED, unread=said, refused="a line")).refused == "a line"
