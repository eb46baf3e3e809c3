"""NVIDIA's management library (NVML) by the package `nvidia-ml-py`: which GPUs there are, and what each process holds there.

NVML (nvml.h of CUDA 12 and 13) numbers GPUs in the order of the PCI bus, which is CUDA's with CUDA_DEVICE_ORDER=PCI_BUS_ID.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Self, TypeVar

from beamer.nvidia.inventory import EXTRA, UNNAMED, Gpu, Inventory, Lack, MigSlice, NoGpus

MPS_NAME = "nvidia-cuda-mps"
"""How the kernel names the server of MPS: the first 15 characters of its program's name."""

NEWEST = "nvmlDeviceGetMPSComputeRunningProcesses_v3"
"""The function that the package got last of those that are called here."""

T = TypeVar("T")

log = logging.getLogger("beamer.nvidia")


class Nvml:
    """A session of NVML, open until `close`.

    Without persistence mode the driver initialises every GPU for it, which may take seconds. One thread at a time may use it.
    """

    def __init__(self, pynvml: ModuleType) -> None:
        self._pynvml: Any = pynvml
        self._said: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session."""
        with suppress(self._pynvml.NVMLError):
            self._pynvml.nvmlShutdown()

    def inventory(self) -> Inventory | NoGpus:
        """Return the GPUs, or why none is known."""
        try:
            gpus = tuple(self._gpu(index) for index in range(self._pynvml.nvmlDeviceGetCount()))
        except self._pynvml.NVMLError as error:
            return _reason(self._pynvml, error, self.driver)
        return Inventory(gpus, self.driver) if gpus else NoGpus(Lack.GPU, "the driver has no GPU")

    @property
    def driver(self) -> str:
        """The driver's version, "": not known."""
        return str(self._optional(self._pynvml.nvmlSystemGetDriverVersion) or "")

    def held_bytes(self) -> Mapping[int, Mapping[str, int]]:
        """Return the bytes that each process holds, by process id and UUID of the GPU or slice.

        Processes of which the driver does not say it are left out. Why nothing is known of a GPU is logged, once.
        """
        found: dict[int, dict[str, int]] = {}
        for uuid, handle in self._devices():
            for process in self._processes(uuid, handle):
                if process.usedGpuMemory is not None:
                    # A process that is in several lists has the same bytes in each.
                    of = found.setdefault(int(process.pid), {})
                    of[uuid] = max(of.get(uuid, 0), int(process.usedGpuMemory))
        return found

    def _gpu(self, index: int) -> Gpu:
        handle = self._pynvml.nvmlDeviceGetHandleByIndex(index)
        total, free = self._memory(handle)
        in_mig_mode = self._is_in_mig_mode(handle)
        return Gpu(
            index,
            str(self._pynvml.nvmlDeviceGetUUID(handle)),
            str(self._optional(self._pynvml.nvmlDeviceGetName, handle) or UNNAMED),
            total,
            free,
            in_mig_mode,
            tuple(map(self._slice, self._slices(handle))) if in_mig_mode else (),
            self._runs_mps(handle),
        )

    def _slice(self, handle: Any) -> MigSlice:
        name = str(self._optional(self._pynvml.nvmlDeviceGetName, handle) or UNNAMED)
        return MigSlice(str(self._pynvml.nvmlDeviceGetUUID(handle)), name, *self._memory(handle))

    def _memory(self, handle: Any) -> tuple[int | None, int | None]:
        memory = self._optional(self._pynvml.nvmlDeviceGetMemoryInfo, handle)
        return (None, None) if memory is None else (int(memory.total), int(memory.free))

    def _is_in_mig_mode(self, handle: Any) -> bool:
        modes = self._optional(self._pynvml.nvmlDeviceGetMigMode, handle)  # Most GPUs, and drivers before 450, have none.
        return modes is not None and modes[0] == self._pynvml.NVML_DEVICE_MIG_ENABLE

    def _slices(self, handle: Any) -> Iterator[Any]:
        for index in range(self._pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with suppress(self._pynvml.NVMLError_NotFound):  # The numbers have gaps.
                yield self._pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)

    def _devices(self) -> Iterator[tuple[str, Any]]:
        """Yield what programs use, GPUs or slices, by UUID; say which GPUs cannot be read, as a search outlives some."""
        try:
            count = self._pynvml.nvmlDeviceGetCount()
        except self._pynvml.NVMLError as error:
            self._say_unknown("GPUs", error)
            return
        for index in range(count):
            try:
                handle = self._pynvml.nvmlDeviceGetHandleByIndex(index)
                used = list(self._slices(handle)) if self._is_in_mig_mode(handle) else [handle]
                found = [(str(self._pynvml.nvmlDeviceGetUUID(one)), one) for one in used]
            except self._pynvml.NVMLError as error:
                self._say_unknown(f"GPU {index}", error)
                continue
            yield from found

    def _processes(self, uuid: str, handle: Any) -> Iterator[Any]:
        """Yield the processes that compute there; those under MPS are in a list of their own."""
        try:
            yield from self._compute_processes(handle)
        except self._pynvml.NVMLError as error:
            self._say_unknown(uuid, error)
        yield from self._optional(self._pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, handle) or ()

    def _compute_processes(self, handle: Any) -> list[Any]:
        try:
            return list(self._pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle))
        except self._pynvml.NVMLError_FunctionNotFound:  # A driver of branches 470 to 495 has the same by another name.
            return list(self._pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle))

    def _runs_mps(self, handle: Any) -> bool | None:
        clients = self._optional(self._pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, handle)
        processes = self._optional(self._compute_processes, handle)
        if clients is None and processes is None:
            return None
        return bool(clients) or any(_program(process.pid).startswith(MPS_NAME) for process in processes or ())

    def _optional(self, ask: Callable[..., T], *arguments: Any) -> T | None:
        """Return what the driver answers, None where it does not."""
        try:
            return ask(*arguments)
        except self._pynvml.NVMLError:
            return None

    def _say_unknown(self, where: str, error: Exception) -> None:
        self._say(f"what processes hold on {where} is not known: {_reason(self._pynvml, error, self.driver).reason}")

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            log.warning("%s", text)


def open_nvml() -> Nvml | NoGpus:
    """Open a session of NVML; return why not where that cannot be."""
    try:
        import pynvml
    except ImportError:
        return NoGpus(Lack.PACKAGE, f"the package nvidia-ml-py is not installed: pip install '{EXTRA}'")
    if not hasattr(pynvml, NEWEST):  # The former package `pynvml` has a module of the same name, which hides the newer one's.
        how = f"pip uninstall pynvml, then pip install --force-reinstall '{EXTRA}'"
        return NoGpus(Lack.PACKAGE, f"the module pynvml is not that of nvidia-ml-py 12.535.108 or newer: {how}")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _reason(pynvml, error, "")
    return Nvml(pynvml)


def _reason(pynvml: Any, error: Exception, driver: str) -> NoGpus:
    """Return what an error of NVML means. driver: its version, "": not known."""
    if isinstance(error, pynvml.NVMLError_LibraryNotFound):
        return NoGpus(Lack.LIBRARY, "no driver of NVIDIA's is installed (libnvidia-ml.so.1 is not found)")
    if isinstance(error, pynvml.NVMLError_DriverNotLoaded):
        return NoGpus(Lack.DRIVER, "the kernel has not loaded the driver: see nvidia-smi")
    if isinstance(error, pynvml.NVMLError_FunctionNotFound):
        which = f"the driver, {driver}," if driver else "the driver"
        return NoGpus(Lack.NEWER_DRIVER, f"{which} is too old for the installed nvidia-ml-py: install a newer driver")
    return NoGpus(Lack.ANSWER, f"NVML fails ({error}): see nvidia-smi")


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8").strip()
    except (OSError, UnicodeError):  # It has ended.
        return ""
