"""Moves of GPU memory: the calls that are due by what the driver says, and what refusals come to."""

from collections.abc import Mapping
from itertools import product

import pytest

from beamer.nvidia.checkpoint import DriverError, ProcessState, changed_gpus, whole_map
from beamer.nvidia.moves import Destination, DriverCall, Moved, Mover, next_calls

RUNNING, LOCKED, CHECKPOINTED = ProcessState.RUNNING, ProcessState.LOCKED, ProcessState.CHECKPOINTED
LEADS = {
    DriverCall.LOCK: (RUNNING, LOCKED),
    DriverCall.CHECKPOINT: (LOCKED, CHECKPOINTED),
    DriverCall.RESTORE: (CHECKPOINTED, LOCKED),
    DriverCall.UNLOCK: (LOCKED, RUNNING),
}
DONE = {Destination.HOST: CHECKPOINTED, Destination.GPU: RUNNING}


class Driver:
    """A driver of processes in states, which refuses some calls."""

    def __init__(self, states: dict[int, ProcessState], refused: Mapping[tuple[DriverCall, int], str] | None = None) -> None:
        self.states = states
        self.refused = dict(refused or {})
        self.calls: list[tuple[DriverCall, int]] = []

    def state(self, pid: int) -> ProcessState | None:
        return self.states.get(pid)

    def lock(self, pid: int, timeout_s: float) -> None:
        self._make(DriverCall.LOCK, pid)

    def checkpoint(self, pid: int) -> None:
        self._make(DriverCall.CHECKPOINT, pid)

    def restore(self, pid: int, onto: Mapping[str, str]) -> None:
        self._make(DriverCall.RESTORE, pid)

    def unlock(self, pid: int) -> None:
        self._make(DriverCall.UNLOCK, pid)

    def _make(self, call: DriverCall, pid: int) -> None:
        self.calls.append((call, pid))
        if (call, pid) in self.refused:
            raise DriverError(call, pid, self.refused[call, pid])
        before, after = LEADS[call]
        assert self.states[pid] is before
        self.states[pid] = after


def moved(driver: Driver, goal: Destination, pids: tuple[int, ...] = (1, 2)) -> Moved:
    return Mover(driver, 1.0, 0.0, clock=lambda: 0.0, sleep=lambda seconds: None).move(pids, goal, {})


@pytest.mark.parametrize("goal", Destination)
@pytest.mark.parametrize("states", list(product((RUNNING, LOCKED, CHECKPOINTED), repeat=2)))
def test_a_move_goes_on_from_wherever_it_was_left(states: tuple[ProcessState, ProcessState], goal: Destination) -> None:
    driver = Driver(dict(enumerate(states, 1)))
    assert moved(driver, goal) == Moved(goal, (1, 2))
    assert set(driver.states.values()) == {DONE[goal]}


def test_no_process_is_checkpointed_before_all_are_locked_nor_unlocked_before_all_are_restored() -> None:
    assert next_calls({1: LOCKED, 2: RUNNING}, Destination.HOST) == (DriverCall.LOCK, (2,))
    assert next_calls({1: LOCKED, 2: LOCKED}, Destination.HOST) == (DriverCall.CHECKPOINT, (1, 2))
    assert next_calls({1: LOCKED, 2: CHECKPOINTED}, Destination.GPU) == (DriverCall.RESTORE, (2,))
    assert next_calls({1: LOCKED, 2: RUNNING}, Destination.GPU) == (DriverCall.UNLOCK, (1,))
    assert next_calls({}, Destination.GPU) == (None, ())


@pytest.mark.parametrize("call", DriverCall)
def test_a_move_that_is_refused_is_taken_back_as_a_whole(call: DriverCall) -> None:
    goal = Destination.HOST if call in (DriverCall.LOCK, DriverCall.CHECKPOINT) else Destination.GPU
    driver = Driver(dict.fromkeys((1, 2), DONE[goal.other]), {(call, 2): "CUDA_ERROR_OUT_OF_MEMORY"})
    found = moved(driver, goal)
    assert (found.place, found.permanent) == (goal.other, False)
    assert found.refusal.startswith(f"NVIDIA's driver refuses to {call} a process: CUDA_ERROR_OUT_OF_MEMORY; free memory")
    assert set(driver.states.values()) == {DONE[goal.other]}


def test_what_can_be_moved_neither_there_nor_back_is_nowhere() -> None:
    name = "CUDA_ERROR_NOT_SUPPORTED"
    driver = Driver({1: RUNNING}, {(DriverCall.CHECKPOINT, 1): name, (DriverCall.UNLOCK, 1): name})
    found = moved(driver, Destination.HOST)
    assert (found.place, found.permanent) == (None, True)
    assert found.refusal.count(name) == 2


@pytest.mark.parametrize("state", [ProcessState.FAILED, ProcessState.CHECKPOINTING, ProcessState.RESTORING])
def test_a_process_that_can_go_no_further_is_nowhere(state: ProcessState) -> None:
    driver = Mover(Driver({1: state}), 1.0, 1.0, clock=iter((0.0, 0.5, 2.0, 2.0, 9.0)).__next__, sleep=lambda seconds: None)
    assert driver.move((1,), Destination.HOST, {}).place is None


def test_processes_that_do_not_use_cuda_have_nothing_to_move() -> None:
    driver = Driver({2: RUNNING})
    assert moved(driver, Destination.HOST) == Moved(Destination.HOST, (2,))
    assert moved(Driver({}), Destination.HOST) == Moved(Destination.HOST, ())


def test_a_map_names_every_gpu_once_on_either_side() -> None:
    gpus = ("a", "b", "c")
    assert whole_map({"a": "b"}, gpus) == {"a": "b", "b": "a", "c": "c"}
    assert whole_map({"a": "b", "b": "c"}, gpus) == {"a": "b", "b": "c", "c": "a"}
    assert whole_map({"c": "c"}, gpus) == {"a": "a", "b": "b", "c": "c"}


def test_a_map_is_of_whole_uuids_and_none_where_nothing_changes() -> None:
    gpus = ("GPU-a1", "GPU-a2", "GPU-b1")
    assert changed_gpus(7, {"0": "GPU-a2", "1": "GPU-b"}, gpus) == {"GPU-a1": "GPU-a2", "GPU-a2": "GPU-b1"}
    assert changed_gpus(7, {"0": "GPU-a1"}, gpus) == changed_gpus(7, {}, gpus) == {}


@pytest.mark.parametrize("onto", [{"0": "3"}, {"0": "GPU-a"}, {"0": "MIG-1"}, {"GPU-": "0"}, {"0": "2", "1": "2"}])
def test_a_gpu_that_is_not_known_or_taken_twice_is_refused_by_name(onto: dict[str, str]) -> None:
    with pytest.raises(DriverError, match="GPU-b1"):
        changed_gpus(7, onto, ("GPU-a1", "GPU-a2", "GPU-b1"))


def test_what_has_been_on_other_gpus_is_told_before_it_leaves_them() -> None:
    driver = Driver(dict.fromkeys((1, 2, 3), CHECKPOINTED), {(DriverCall.RESTORE, 2): "CUDA_ERROR_OUT_OF_MEMORY"})
    told: list[tuple[tuple[int, ...], ProcessState]] = []
    onto = {1: {"0": "1"}, 2: {"0": "1"}}
    made = Mover(driver, 1.0, 0.0, clock=lambda: 0.0).move(
        (1, 2, 3), Destination.GPU, onto, lambda pids: told.append((pids, driver.states[1]))
    )
    assert made.place is Destination.HOST
    assert told == [((1,), LOCKED)]


def test_a_process_that_the_driver_has_moved_is_not_taken_for_one_without_cuda() -> None:
    driver = Driver({1: CHECKPOINTED})
    mover = Mover(driver, 1.0, 0.0, clock=lambda: 0.0, lives=lambda pid: pid == 2)
    found = mover.move((1, 2, 3), Destination.GPU, {}, known=(1, 2, 3))
    assert found.place is None
    assert "it knows of no CUDA in a process that has a GPU" in found.refusal
    assert driver.states == {1: CHECKPOINTED}
    assert mover.move((1, 3), Destination.GPU, {}, known=(1, 3)) == Moved(Destination.GPU, (1,)), (
        "one that has ended has no memory"
    )


def test_memory_is_not_said_to_have_left_where_the_driver_knows_nobody_who_has_a_gpu() -> None:
    mover = Mover(Driver({}), 1.0, 0.0, clock=lambda: 0.0, has_gpu=lambda pid: pid == 2)
    assert mover.move((1,), Destination.HOST, {}) == Moved(Destination.HOST)
    found = mover.move((1, 2), Destination.HOST, {})
    assert found.place is Destination.GPU
    assert "it knows of no CUDA in a process that has a GPU" in found.refusal


@pytest.mark.parametrize("parents", [{2: 1}, {2: 7, 7: 1}])
def test_what_a_process_has_started_inherits_its_gpu(parents: dict[int, int]) -> None:
    def parent_of(pid: int) -> int:
        return parents.get(pid, 0)

    mover = Mover(Driver({1: RUNNING}), 1.0, 0.0, clock=lambda: 0.0, has_gpu=lambda pid: True, parent_of=parent_of)
    assert mover.move((1, 2), Destination.HOST, {}) == Moved(Destination.HOST, (1,))


def test_a_rank_with_a_gpu_that_the_driver_does_not_know_keeps_those_that_it_knows() -> None:
    driver = Driver({1: RUNNING})
    mover = Mover(driver, 1.0, 0.0, clock=lambda: 0.0, has_gpu=lambda pid: pid == 2, parent_of=lambda pid: 100)
    found = mover.move((1, 2), Destination.HOST, {})
    assert found.place is Destination.GPU
    assert "it knows of no CUDA in a process that has a GPU" in found.refusal
    assert driver.states == {1: RUNNING}
    assert mover.move((1, 3), Destination.HOST, {}) == Moved(Destination.HOST, (1,)), "3 has none"


def test_what_the_driver_never_brings_back_is_nowhere() -> None:
    name = "CUDA_ERROR_OPERATING_SYSTEM"
    found = moved(Driver(dict.fromkeys((1, 2), CHECKPOINTED), {(DriverCall.RESTORE, 2): name}), Destination.GPU)
    assert found.place is None
    assert "refuses to restore a process: CUDA_ERROR_OPERATING_SYSTEM" in found.refusal
    driver = Driver({1: RUNNING}, {(DriverCall.LOCK, 1): name})
    assert moved(driver, Destination.HOST).place is Destination.GPU, "what has not left stays"
