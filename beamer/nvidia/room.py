"""Whether GPUs have room for memory that is on the host: what processes held there, and what is free, as NVML says."""

import threading
from collections.abc import Callable, Mapping

from beamer.nvidia.inventory import Inventory
from beamer.nvidia.nvml import Nvml, open_nvml


class Room:
    """What processes held on GPUs when their memory left. open: begins a session of NVML; where it has none, nothing is known.

    Any thread may call it.
    """

    def __init__(self, open: Callable[[], object] = open_nvml) -> None:
        self._open = open
        self._nvml: Nvml | None = None
        self._is_open = False
        self._held: dict[int, Mapping[str, int]] = {}
        self._lock = threading.Lock()

    def take_held(self, pid: int) -> None:
        """Take in what a process holds on each GPU now."""
        with self._lock:
            nvml = self._session()
            self._held[pid] = {} if nvml is None else nvml.held_bytes().get(pid, {})

    def lacks(self, pid: int, onto: Mapping[str, str]) -> bool:
        """Return whether a GPU is known to have less free than a process held when its memory left.

        onto: by the UUID of every GPU, that of the GPU which takes its place.
        """
        with self._lock:
            held = self._held.get(pid)
            nvml = self._session() if held else None
            found = nvml.inventory() if nvml is not None else None
            if not held or not isinstance(found, Inventory):
                return False
            free = {gpu.uuid: gpu.free_bytes for gpu in found.gpus}
            return any((left := free.get(onto.get(gpu, gpu))) is not None and left < count for gpu, count in held.items())

    def _session(self) -> Nvml | None:
        if not self._is_open:
            self._is_open = True
            opened = self._open()
            self._nvml = opened if isinstance(opened, Nvml) else None
        return self._nvml
