"""Room on GPUs for what is to run: which suspended jobs' memory has to leave first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of a GPU, in bytes. held: by process. chip: the GPU's product name, "": not known, or a slice of a GPU."""

    total: int
    free: int
    held: Mapping[int, int]
    chip: str = ""


class GpuMemory(Protocol):
    """What is known of the memory of this machine's GPUs."""

    def read(self) -> Mapping[str, DeviceMemory]:
        """Return every GPU's, by what CUDA_VISIBLE_DEVICES calls it."""


@dataclass(frozen=True)
class Resident:
    """A suspended job with memory on a GPU. held: bytes there. suspended_s: when it was suspended, monotonic time."""

    job: str
    held: int
    suspended_s: float


@dataclass(frozen=True)
class Eviction:
    """What is to be done before a job can run. waits: whether it has to wait. leave: jobs whose memory has to leave."""

    waits: bool
    leave: tuple[str, ...] = ()


def eviction(needed: int, free: int, leaving: int, residents: Sequence[Resident]) -> Eviction:
    """Return what makes room for so many bytes on a GPU.

    leaving: bytes that are on their way. residents: the last suspended leaves first, as turns go round: it will run last. Where
    not even all of them would make room, nothing is moved, as others hold the memory.
    """
    if free >= needed:
        return Eviction(False)
    chosen: list[str] = []
    coming = free + leaving
    for one in sorted(residents, key=lambda one: one.suspended_s, reverse=True):
        if coming >= needed:
            break
        if one.held:
            chosen.append(one.job)
            coming += one.held
    return Eviction(True, tuple(chosen)) if coming >= needed else Eviction(False)
