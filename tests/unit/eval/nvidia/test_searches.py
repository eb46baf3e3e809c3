"""What is read of the journals of searches on a GPU, and of traces."""

import time
from pathlib import Path

import pytest

from beamer.errors import EngineError, InputError
from beamer.gpu.events import Allocated, TrialReported
from beamer.gpu.model import Grant, Report
from eval.nvidia.parts import differences
from eval.nvidia.program import Driver, WatchedMemory, steps, wait
from eval.nvidia.searches import idle_s, starts_s
from eval.nvidia.site import Card, fitting


def granted(at_s: float, *trials: str) -> Allocated:
    return Allocated(at_s, "fifo", 1, None, {trial: Grant.of({"here": 1}) for trial in trials}, {})


def report(trial: str, at_s: float) -> TrialReported:
    return TrialReported(at_s, trial, Report(at_s, 1, 1.0, 0.0))


def test_a_start_goes_from_the_first_grant_to_the_first_line_after_it() -> None:
    ahead = report("b", 12.0)  # It was started ahead, and printed its first line then.
    events = [granted(10.0, "a"), report("a", 13.0), ahead, granted(20.0, "b"), granted(21.0, "b"), report("b", 20.5)]
    assert starts_s([*events, report("a", 22.0), granted(30.0, "c")]) == {"a": 3.0, "b": 0.5}


def test_a_gpu_is_idle_in_gaps_beyond_an_iteration() -> None:
    at_s = [0.0, 0.02, 0.04, 0.06, 3.06, 3.08, 3.10, 3.17]
    assert idle_s(report("ab"[index % 2], at) for index, at in enumerate(at_s)) == pytest.approx(3.0 - 0.02)
    assert idle_s([]) == idle_s([report("a", 1.0)]) == 0.0


class Free(Driver):
    """A driver that says what is free, look by look."""

    def __init__(self, *free: int) -> None:
        self.free = list(free)

    def free_bytes(self, until_s: float) -> int:
        if not self.free:
            raise EngineError("the driver is gone")
        return self.free.pop(0)


def test_moves_are_what_becomes_free_and_what_is_taken() -> None:
    driver = Free(10, 4, 4, 9, 3)
    with WatchedMemory(driver, 1.0) as memory:
        wait(lambda: not driver.free, time.monotonic() + 60, "all looks")
        wait(lambda: memory.taken == 12, time.monotonic() + 60, "the last one")
    assert memory.freed == 5


def test_what_keeps_memory_from_being_watched_is_raised() -> None:
    with WatchedMemory(Free(10), 1.0) as memory:
        memory._thread.join(60)
    with pytest.raises(EngineError, match="is gone"):
        memory.check()


def test_a_trace_that_is_being_written_is_read_as_far_as_it_is_whole(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    assert steps(trace) == {}
    trace.write_text('{"iteration": 1, "digest": "a"}\n{"iteration": 2, "digest": "b"}\n{"iteration": 3, "dig')
    assert steps(trace) == {1: "a", 2: "b"}


def test_runs_differ_in_any_loss_and_in_those_that_are_missing() -> None:
    expected = {1: "a", 2: "b", 3: "c"}
    assert differences("t", expected, dict(expected)) == []
    (text,) = differences("t", expected, {1: "a", 2: "x"})
    assert text == "t: 2 of 3 losses are not those of the undisturbed run, the first at 2"


def test_sizes_are_those_that_the_card_has_room_for() -> None:
    assert fitting((1.0, 9.5, 21.5), Card("a", 16.0, "", "", "")) == (1.0, 9.5)
    with pytest.raises(InputError, match="one with more than 3 GiB"):
        fitting((3.0,), Card("a", 2.0, "", "", ""))
