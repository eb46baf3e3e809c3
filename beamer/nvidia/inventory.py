"""The GPUs of a machine as values, or why none is known."""

from dataclasses import dataclass
from enum import StrEnum

EXTRA = "beamer-scheduler[nvidia]"
"""What installs the packages that this folder imports."""
UNNAMED = "unnamed"
"""The name of a GPU of which the driver says none."""


@dataclass(frozen=True)
class MigSlice:
    """A part of a GPU in MIG mode, which programs use as a GPU of its own."""

    uuid: str
    """What CUDA_VISIBLE_DEVICES calls it."""
    name: str
    total_bytes: int | None
    """Its memory; None: the driver does not say."""
    free_bytes: int | None


@dataclass(frozen=True)
class Gpu:
    """A GPU as the driver has it."""

    index: int
    """Its number in the order of the PCI bus."""
    uuid: str
    name: str
    total_bytes: int | None
    """Its memory; None: the driver does not say."""
    free_bytes: int | None
    in_mig_mode: bool = False
    """Whether it is used by its slices alone."""
    slices: tuple[MigSlice, ...] = ()
    """In the driver's order; empty unless it is in MIG mode."""
    runs_mps: bool | None = None
    """Whether a server of MPS (Multi-Process Service) has a context there; None: the driver does not say."""

    def __str__(self) -> str:
        return f"{self.index} ({self.uuid}, {self.name})"


@dataclass(frozen=True)
class Inventory:
    """The GPUs of a machine, at least one, by index. driver: its version, "": not known."""

    gpus: tuple[Gpu, ...]
    driver: str = ""


class Lack(StrEnum):
    """What a machine lacks for its GPUs to be known."""

    PACKAGE = "package"
    LIBRARY = "library"
    DRIVER = "driver"
    GPU = "GPU"
    NEWER_DRIVER = "newer driver"
    ANSWER = "answer"


@dataclass(frozen=True)
class NoGpus:
    """No GPUs are known. reason: why not, a clause; what is to be done about it, where something is."""

    lack: Lack
    reason: str
