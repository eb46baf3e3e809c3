"""Moves of GPU memory by a process that answers, refuses, hangs and dies."""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from beamer.engines.local.states import MemoryPlace
from beamer.engines.local.supervisor import memory
from beamer.engines.local.supervisor.groups import Group
from beamer.engines.local.supervisor.memory import MAX_ATTEMPTS, MAX_ATTEMPTS_BACK, MemoryMoves, MoveEnd

READY = "print('{\"ready\": true}', flush=True)"
ANSWERS = f"""
import json, sys
{READY}
for line in sys.stdin:
    place = json.loads(line)["goal"]
    print(json.dumps({{"place": place, "pids": [], "refusal": "", "permanent": False}}), flush=True)
"""
REFUSES = ANSWERS.replace('["goal"]', '["goal"] and "gpu"').replace('"refusal": ""', '"refusal": "no"')
HANGS = f"import time\n{READY}\ntime.sleep(1000)"
DIES_AT_ONCE = "raise SystemExit(1)"
DIES_LATER = f"import sys\n{READY}\nsys.stdin.readline()\nraise SystemExit(1)"


class NoProcesses(Group):
    """A group without a process. frozen: whether it was frozen last."""

    kind = "none"
    frozen = False

    def open(self) -> None:
        pass

    def adopt(self, parent: int, ranks: object) -> None:
        pass

    def members(self) -> list[int]:
        return []

    def freeze(self, timeout_s: float) -> bool:
        self.frozen = True
        return True

    def thaw(self, timeout_s: float) -> bool:
        self.frozen = False
        return True


class Bench:
    """Moves, and how they have ended."""

    def __init__(self, code: str, move_s: float) -> None:
        self.group = NoProcesses("", "A=1")
        self.ends: list[MoveEnd] = []
        self.selector = selectors.DefaultSelector()
        command = (sys.executable, "-c", code)
        self.moves = MemoryMoves(self.group, self.selector, self.ends.append, command, move_s)

    def until_ended(self, count: int = 1) -> MoveEnd:
        patient = time.monotonic() + 60.0
        while len(self.ends) < count:
            assert time.monotonic() < patient
            for key, _ in self.selector.select(0.01):
                key.data()
            self.moves.check(time.monotonic())
        return self.ends[-1]


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(*request.param)
    yield made
    made.moves.close()
    assert not made.group.spared


@pytest.mark.parametrize("bench", [(ANSWERS, 60.0)], indirect=True)
def test_memory_is_moved_and_brought_back(bench: Bench) -> None:
    bench.moves.offload()
    assert bench.until_ended() is MoveEnd.HOST
    assert bench.group.frozen
    assert bench.moves.status.offload_s > 0
    bench.moves.bring_back()
    assert bench.moves.status.place is MemoryPlace.TO_GPU
    assert bench.until_ended(2) is MoveEnd.GPU
    assert not bench.group.frozen
    assert bench.moves.status.restore_s > 0


@pytest.mark.parametrize("bench", [(ANSWERS, 60.0)], indirect=True)
def test_what_is_asked_for_meanwhile_is_done_afterwards(bench: Bench) -> None:
    bench.moves.offload()
    bench.moves.bring_back()
    assert bench.until_ended() is MoveEnd.GPU
    assert bench.moves.status.offload_s > 0
    assert bench.moves.status.restore_s > 0


@pytest.mark.parametrize("bench", [(REFUSES, 60.0)], indirect=True)
def test_a_refusal_leaves_it_where_it_was(bench: Bench) -> None:
    bench.moves.offload()
    assert bench.until_ended() is MoveEnd.GPU
    assert (bench.moves.status.place, bench.moves.status.refusal) == (MemoryPlace.GPU, "no")


@pytest.mark.parametrize("bench", [(DIES_AT_ONCE, 60.0)], indirect=True)
def test_a_process_that_cannot_begin_has_moved_nothing(bench: Bench) -> None:
    bench.moves.offload()
    assert bench.until_ended() is MoveEnd.GPU
    assert "has died" in bench.moves.status.refusal


@pytest.mark.parametrize("bench", [(DIES_LATER, 60.0), (HANGS, 0.3)], indirect=True, ids=["dies", "hangs"])
def test_nobody_knows_where_memory_is_when_every_process_fails_in_a_move(bench: Bench) -> None:
    bench.moves.offload()
    assert bench.until_ended() is MoveEnd.LOST
    bench.moves.close()
    bench.moves.offload()
    assert bench.ends[1:] == [MoveEnd.GPU], "the next run is not lost"
    assert bench.moves.status.permanent
    assert "GPU memory was not moved" in bench.moves.status.refusal


NOWHERE = ANSWERS.replace('["goal"]', '["goal"] and None').replace('"refusal": ""', '"refusal": "no"')


@pytest.mark.parametrize("bench", [(NOWHERE, 60.0)], indirect=True)
def test_what_is_neither_here_nor_there_is_asked_of_another_process_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[float] = []
    start = bench.moves._start

    def counts() -> "subprocess.Popen[bytes]":
        starts.append(time.monotonic())
        return start()

    monkeypatch.setattr(bench.moves, "_start", counts)
    monkeypatch.setattr(memory, "RETRY_S", 0.1)
    bench.moves.offload()
    assert bench.until_ended() is MoveEnd.LOST
    assert len(starts) == MAX_ATTEMPTS + MAX_ATTEMPTS_BACK
    assert min(later - sooner for sooner, later in pairwise(starts)) >= 0.1
    assert bench.moves.status.refusal == "GPU memory was not moved: no"


STAYS = f"{ANSWERS}\nimport time\ntime.sleep(1000)"


@pytest.mark.parametrize("bench", [(STAYS, 60.0)], indirect=True)
def test_a_process_that_does_not_die_is_waited_for_a_while_and_stays_spared_until_it_does(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.moves.offload()
    bench.until_ended()
    (dying,) = bench.group.spared
    os.kill(dying, signal.SIGSTOP)  # Nor does it end with its input.
    monkeypatch.setattr(memory, "END_S", 0.05)
    monkeypatch.setattr(subprocess.Popen, "kill", lambda process: None)  # It waits in the driver.
    monkeypatch.setattr(subprocess.Popen, "wait", waits := Waits())
    bench.moves.close()
    assert waits.timeouts == [0.05]
    assert bench.group.spared == {dying}
    monkeypatch.undo()
    os.kill(dying, signal.SIGKILL)
    bench.moves.offload()
    bench.until_ended(2)
    bench.moves.close()
    assert not bench.group.spared


class Waits:
    """Waits in vain, as of a process that does not die."""

    def __init__(self) -> None:
        self.timeouts: list[float | None] = []

    def __call__(self, timeout: float | None = None) -> int:
        self.timeouts.append(timeout)
        raise subprocess.TimeoutExpired("it", timeout or 0.0)


OF_ANOTHER_VERSION = ANSWERS.replace('"place": place', '"where": place')


@pytest.mark.parametrize("bench", [(OF_ANOTHER_VERSION, 60.0)], indirect=True)
def test_an_answer_that_cannot_be_read_is_none(bench: Bench) -> None:
    bench.moves.offload()
    assert bench.until_ended() is MoveEnd.LOST
    assert "KeyError" in bench.moves.status.refusal


@pytest.mark.parametrize("bench", [(ANSWERS, 60.0)], indirect=True)
def test_a_machine_that_is_short_of_something_for_a_moment_loses_no_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [OSError("no memory to fork")] * (MAX_ATTEMPTS - 1)
    start = bench.moves._start

    def fails() -> "subprocess.Popen[bytes]":
        if failures:
            raise failures.pop()
        return start()

    monkeypatch.setattr(bench.moves, "_start", fails)
    bench.moves.offload()
    bench.moves.check(time.monotonic())
    assert not bench.ends
    assert bench.moves.is_under_way, "it is tried again later, not at once"
    assert bench.until_ended() is MoveEnd.HOST


@pytest.mark.parametrize("bench", [(ANSWERS, 60.0)], indirect=True)
def test_ranks_that_do_not_freeze_are_brought_back_all_the_same(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NoProcesses, "freeze", lambda group, timeout_s: False)
    bench.moves.offload()
    patient = time.monotonic() + 60.0
    while not bench.moves.status.offload_s:
        assert time.monotonic() < patient
        for key, _ in bench.selector.select(0.01):
            key.data()
    assert not bench.ends
    bench.moves.bring_back()
    assert bench.until_ended() is MoveEnd.GPU
    assert bench.moves.status.restore_s > 0
