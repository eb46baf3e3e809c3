"""Whether processes have opened a GPU, by the files that they, and their descendants, have open; or ran out of its memory."""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

GPU_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/renderD")
"""How the paths begin of the device files of NVIDIA's driver, and of AMD's."""

_OUT_OF_MEMORY = re.compile(
    r"(CUDA|HIP) out of memory|torch(\.cuda)?\.OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
    r"|RESOURCE_EXHAUSTED: Out of memory"
)
"""What PyTorch, CUDA itself, JAX and TensorFlow say."""


def says_out_of_memory(text: str) -> bool:
    """Say whether a program's last words are that a GPU has no memory left for it."""
    return bool(_OUT_OF_MEMORY.search(text))


def uses_gpu(processes: Iterable[int], devices: tuple[str, ...] = GPU_DEVICES) -> bool:
    """Return whether one of some processes, or a descendant, has a GPU's device file open, as far as that may be read."""
    return any(path.startswith(devices) for pid in processes for one in _tree(pid) for path in _open_files(one))


def _tree(pid: int) -> Iterator[int]:
    """Return a process and its descendants, by what the kernel lists of each thread: not all processes need to be read."""
    yield pid
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # It has ended, or the kernel was built without such lists.
            for child in file.read_text().split():
                yield from _tree(int(child))


def _open_files(pid: int) -> list[str]:
    found: list[str] = []
    directory = f"/proc/{pid}/fd"
    with suppress(OSError):  # It has ended, or is another user's.
        for name in os.listdir(directory):
            with suppress(OSError):
                found.append(os.readlink(f"{directory}/{name}"))
    return found
