"""What is known of GPUs' room for memory that comes back."""

import pytest

from beamer.nvidia.inventory import Lack, NoGpus
from beamer.nvidia.room import Room
from tests.support.nvidia.standin import Described

GIB = 1 << 30
HERE = {"GPU-a": "GPU-a", "GPU-b": "GPU-b"}
SWAPPED = {"GPU-a": "GPU-b", "GPU-b": "GPU-a"}


def gpus(described: Described, free_a: int, free_b: int, *processes: str) -> None:
    described(f"gpu GPU-a {16 * GIB} {free_a} H200", f"gpu GPU-b {16 * GIB} {free_b} H200", *processes)


@pytest.mark.parametrize(("free_a", "lacks"), [(6 * GIB, False), (6 * GIB - 1, True)])
def test_a_gpu_lacks_room_that_has_less_free_than_what_left_it(free_a: int, lacks: bool, described: Described) -> None:
    room = Room()
    gpus(described, 0, 0, f"process 17 GPU-a {6 * GIB}")
    room.take_held(17)
    gpus(described, free_a, 0)
    assert room.lacks(17, HERE) is lacks
    gpus(described, 0, free_a)
    assert room.lacks(17, SWAPPED) is lacks


def test_nothing_lacks_room_of_which_nothing_is_known(described: Described) -> None:
    gpus(described, 0, 0)
    room = Room()
    assert not room.lacks(17, HERE)
    room.take_held(17)
    assert not room.lacks(17, HERE)
    gpus(described, 0, 0, f"process 17 GPU-a {GIB}")
    room.take_held(17)
    described(f"gpu GPU-c {16 * GIB} 0 H200")
    assert not room.lacks(17, {}), "GPU-a is not there any more"


def test_what_a_process_held_last_counts(described: Described) -> None:
    room = Room()
    for held in (6 * GIB, GIB):
        gpus(described, 0, 0, f"process 17 GPU-a {held}")
        room.take_held(17)
    gpus(described, GIB, 0)
    assert not room.lacks(17, HERE)


def test_without_nvml_nothing_is_known_and_it_is_asked_for_once() -> None:
    asked: list[None] = []

    def none() -> NoGpus:
        asked.append(None)
        return NoGpus(Lack.PACKAGE, "it is not installed")

    room = Room(none)
    for _ in range(2):
        room.take_held(17)
        assert not room.lacks(17, HERE)
    assert len(asked) == 1
