"""What is known of GPUs' room for memory that comes back."""

import threading
from collections.abc import Mapping

import pytest

from beamer.nvidia.inventory import Lack, NoGpus
from beamer.nvidia.room import Room
from tests.support.nvidia.standin import Described

GIB = 1 << 30
PATIENCE_S = 60.0
HERE = {"GPU-a": "GPU-a", "GPU-b": "GPU-b"}
SWAPPED = {"GPU-a": "GPU-b", "GPU-b": "GPU-a"}


def gpus(described: Described, free_a: int, free_b: int, *processes: str) -> None:
    described(f"gpu GPU-a {16 * GIB} {free_a} H200", f"gpu GPU-b {16 * GIB} {free_b} H200", *processes)


def fits(room: Room, onto: Mapping[str, str], pid: int = 17) -> bool:
    with room.claimed(pid, onto) as found:
        return found


@pytest.mark.parametrize(("free_a", "lacks"), [(6 * GIB, False), (6 * GIB - 1, True)])
def test_a_gpu_lacks_room_that_has_less_free_than_what_left_it(free_a: int, lacks: bool, described: Described) -> None:
    room = Room()
    gpus(described, 0, 0, f"process 17 GPU-a {6 * GIB}")
    room.take_held(17)
    gpus(described, free_a, 0)
    assert fits(room, HERE) is not lacks
    gpus(described, 0, free_a)
    assert fits(room, SWAPPED) is not lacks


def test_nothing_lacks_room_of_which_nothing_is_known(described: Described) -> None:
    gpus(described, 0, 0)
    room = Room()
    assert fits(room, HERE)
    room.take_held(17)
    assert fits(room, HERE)
    gpus(described, 0, 0, f"process 17 GPU-a {GIB}")
    room.take_held(17)
    described(f"gpu GPU-c {16 * GIB} 0 H200")
    assert fits(room, {}), "GPU-a is not there any more"


def test_what_a_process_held_last_counts(described: Described) -> None:
    room = Room()
    for held in (6 * GIB, GIB):
        gpus(described, 0, 0, f"process 17 GPU-a {held}")
        room.take_held(17)
    gpus(described, GIB, 0)
    assert fits(room, HERE)


def test_without_nvml_nothing_is_known_and_it_is_asked_for_once() -> None:
    asked: list[None] = []

    def none() -> NoGpus:
        asked.append(None)
        return NoGpus(Lack.PACKAGE, "it is not installed")

    room = Room(none)
    for _ in range(2):
        room.take_held(17)
        assert fits(room, HERE)
    assert len(asked) == 1


def test_memory_comes_back_onto_a_gpu_one_after_another(described: Described) -> None:
    gpus(described, 16 * GIB, 16 * GIB, f"process 17 GPU-a {GIB}", f"process 18 GPU-a {GIB}", f"process 19 GPU-b {GIB}")
    room = Room(claim_s=PATIENCE_S)
    for pid in (17, 18, 19):
        room.take_held(pid)
    then: list[str] = []

    def comes_back() -> None:
        then.append("waits")
        with room.claimed(18, HERE):
            then.append("comes back")

    later = threading.Thread(target=comes_back)
    with room.claimed(17, HERE):
        later.start()
        assert fits(room, HERE, 19), "the other GPU is nobody's"
        later.join(0.2)
        assert then == ["waits"]
    later.join(PATIENCE_S)
    assert then == ["waits", "comes back"]


def test_a_gpu_is_not_waited_for_for_ever(described: Described) -> None:
    gpus(described, 16 * GIB, 0, f"process 17 GPU-a {GIB}")
    hangs, room = Room(), Room(claim_s=0.1)
    for one in (hangs, room):
        one.take_held(17)
    with hangs.claimed(17, HERE):
        assert fits(room, HERE)
