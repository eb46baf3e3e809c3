"""Whether GPUs have room for memory that is on the host: what processes held there, and what is free, as NVML says."""

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from beamer.nvidia.inventory import Inventory
from beamer.nvidia.nvml import Nvml, open_nvml

CLAIM_S = 120.0
"""How long a GPU is waited for that memory of others comes back onto: three times what the whole of a large one takes."""
POLL_S = 0.02


class Room:
    """What processes held on GPUs when their memory left. open: begins a session of NVML; where it has none, nothing is known.

    Any thread may call it. claim_s: as of `CLAIM_S`.
    """

    def __init__(self, open: Callable[[], object] = open_nvml, claim_s: float = CLAIM_S) -> None:
        self._open = open
        self._claim_s = claim_s
        self._nvml: Nvml | None = None
        self._is_open = False
        self._held: dict[int, Mapping[str, int]] = {}
        self._lock = threading.Lock()

    def take_held(self, pid: int) -> None:
        """Take in what a process holds on each GPU now."""
        with self._lock:
            nvml = self._session()
            self._held[pid] = {} if nvml is None else nvml.held_bytes().get(pid, {})

    @contextmanager
    def claimed(self, pid: int, onto: Mapping[str, str]) -> Iterator[bool]:
        """Keep other processes that call this off the GPUs that a process' memory comes back onto, and say if it fits there.

        onto: by the UUID of every GPU, that of the GPU which takes its place. What is not known is taken to fit.
        """
        needed = {onto.get(gpu, gpu): count for gpu, count in self._held.get(pid, {}).items() if count}
        with ExitStack() as stack:
            for gpu in sorted(needed):  # All take them in the same order.
                stack.enter_context(_claim(gpu, self._claim_s))
            yield self._fits(needed)

    def _fits(self, needed: Mapping[str, int]) -> bool:
        if not needed:
            return True
        with self._lock:
            nvml = self._session()
            found = nvml.inventory() if nvml is not None else None
        free = {gpu.uuid: gpu.free_bytes for gpu in found.gpus} if isinstance(found, Inventory) else {}
        return all((left := free.get(gpu)) is None or left >= count for gpu, count in needed.items())

    def _session(self) -> Nvml | None:
        if not self._is_open:
            self._is_open = True
            opened = self._open()
            self._nvml = opened if isinstance(opened, Nvml) else None
        return self._nvml


@contextmanager
def _claim(gpu: str, patience_s: float) -> Iterator[None]:
    """Have a GPU among those who claim it, by a name that the kernel gives to one socket at a time, of whatever user.

    Whoever has waited for too long goes on without: a program that hangs, or another user, must not keep memory on the host.
    """
    until = time.monotonic() + patience_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        while True:
            try:
                one.bind(f"\0beamer-restores-onto-{gpu}")
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                    break
            time.sleep(POLL_S)
        yield
