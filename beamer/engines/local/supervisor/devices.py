"""Whether processes have opened a GPU, by the files that they have open."""

import os
from collections.abc import Iterable
from contextlib import suppress

GPU_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/renderD")
"""How the paths begin of the device files of NVIDIA's driver, and of AMD's."""


def uses_gpu(processes: Iterable[int], devices: tuple[str, ...] = GPU_DEVICES) -> bool:
    """Return whether one of some processes has a device file of a GPU open, as far as that may be read."""
    return any(path.startswith(devices) for pid in processes for path in _open_files(pid))


def _open_files(pid: int) -> list[str]:
    found: list[str] = []
    directory = f"/proc/{pid}/fd"
    with suppress(OSError):  # It has ended, or is another user's.
        for name in os.listdir(directory):
            with suppress(OSError):
                found.append(os.readlink(f"{directory}/{name}"))
    return found
