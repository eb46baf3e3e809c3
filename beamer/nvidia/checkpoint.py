"""The driver's checkpoint of another process: its GPU memory is moved to host memory, and back, by `cuCheckpointProcess*`.

CUDA driver API, from 12.8 on, by the package `cuda-bindings`. The process needs no change; it is the caller's user's, or the
caller is root. The states that the driver has for it, and the calls between them:

    RUNNING --lock--> LOCKED --checkpoint--> CHECKPOINTED
            <-unlock-        <---restore----

A locked process blocks at its next CUDA call. A thread of the process itself saves its memory and restores it, so that it must
not be stopped meanwhile: CRIU's plugin for CUDA lets that thread go on, too.

A restore that found too little memory leaves the process so that no further one succeeds: driver 580.95 then answers
CUDA_ERROR_OPERATING_SYSTEM for ever (https://github.com/NVIDIA/cuda-checkpoint/issues/44). Room is looked for before the call.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import ModuleType
from typing import Any, Protocol

from beamer.errors import PlatformError
from beamer.nvidia.room import Room

EXTRA = "install beamer-scheduler[nvidia]"
UUID_PREFIX = "GPU-"


class ProcessState(StrEnum):
    """What the driver says of a process that uses CUDA.

    CHECKPOINTING and RESTORING: on its way to a state, by a call that somebody else has made. FAILED: it cannot go on.
    """

    RUNNING = "running"
    LOCKED = "locked"
    CHECKPOINTED = "checkpointed"
    FAILED = "failed"
    CHECKPOINTING = "checkpointing"
    RESTORING = "restoring"

    @property
    def is_settling(self) -> bool:
        """Whether it becomes another one by itself."""
        return self in (ProcessState.CHECKPOINTING, ProcessState.RESTORING)


class NoCheckpointsError(PlatformError):
    """The driver, or what is needed to call it, has no checkpoints; no process can have one here."""


class DriverError(PlatformError):
    """The driver has refused a call. call: which. name: of the error, as the driver calls it."""

    def __init__(self, call: str, pid: int, name: str) -> None:
        self.call = call
        self.pid = pid
        self.name = name
        refused = "say what a process does" if call == "state" else f"{call} a process"
        super().__init__(f"NVIDIA's driver refuses to {refused}: {name}", REMEDIES.get(name, UNKNOWN_REMEDY))

    def __reduce__(self) -> tuple[type["DriverError"], tuple[str, int, str]]:  # type: ignore[override]
        """Return how to make it again in another process."""
        return type(self), (self.call, self.pid, self.name)

    @property
    def is_permanent(self) -> bool:
        """Whether the same process will be refused again."""
        return self.name in ("CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_NOT_PERMITTED")

    @property
    def is_of_no_return(self) -> bool:
        """Whether the process' memory is on the host and stays there, whatever becomes free."""
        return (self.call, self.name) == ("restore", "CUDA_ERROR_OPERATING_SYSTEM")


NO_PAIRS = "cuda-bindings has no CUcheckpointGpuPair"
UNKNOWN_REMEDY = "its documentation of the checkpoint API says what that means"
REMEDIES: Mapping[str, str] = {
    "CUDA_ERROR_NOT_SUPPORTED": "it saves no CUDA IPC memory before version 610 (NCCL on several GPUs), and no managed memory",
    "CUDA_ERROR_NOT_PERMITTED": "run as the user of the process, or as root",
    "CUDA_ERROR_NOT_READY": "its kernels did not end in time: give it iterations that take less",
    "CUDA_ERROR_OUT_OF_MEMORY": "free memory of the GPU, or of the host, first",
    "CUDA_ERROR_ILLEGAL_STATE": "another program checkpoints it, too: have only one do so",
    "CUDA_ERROR_INVALID_VALUE": "it does not use CUDA, or the GPU is of another chip",
    NO_PAIRS: "install version 13 of it, or newer, with which memory comes back onto other GPUs",
    "CUDA_ERROR_OPERATING_SYSTEM": "it does not bring memory back once it has found too little room for it",
}
NOT_CUDA = ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_NOT_INITIALIZED", "CUDA_ERROR_NOT_FOUND")
"""What the driver says of a process that has not initialised CUDA, or is gone; which of them is not documented."""


class Checkpoints(Protocol):
    """What can be asked of a driver about other processes. Every method raises `DriverError`."""

    def state(self, pid: int) -> ProcessState | None:
        """Return a process' state, None of one that does not use CUDA."""

    def lock(self, pid: int, timeout_s: float) -> None:
        """Have a running process make no further CUDA calls; without an answer in time it goes on."""

    def checkpoint(self, pid: int) -> None:
        """Move a locked process' GPU memory to host memory."""

    def restore(self, pid: int, onto: Mapping[str, str]) -> None:
        """Move a checkpointed process' memory back.

        onto: by a GPU, the one of the same chip that takes its place, each by its UUID, how that begins, or its index, as in
        CUDA_VISIBLE_DEVICES.
        """

    def unlock(self, pid: int) -> None:
        """Let a locked process go on."""


class CudaCheckpoints:
    """Those of the driver on this machine. Raises `NoCheckpointsError` where there are none.

    room: what is known of GPUs' memory, None: what NVML says.
    """

    def __init__(self, room: Room | None = None) -> None:
        self._room = room or Room()
        self._driver = _driver()
        self._check_start("cuInit", self._driver.cuInit(0))
        self._check_start("cuDeviceGetCount", count := self._driver.cuDeviceGetCount())
        self._uuids = [self._uuid(index) for index in range(count[1])]
        try:
            # A driver that lacks the call is told from one that does not know the process.
            self._driver.cuCheckpointProcessGetState(0)
        except RuntimeError as error:
            remedy = "it needs version 570 or newer (CUDA 12.8)"
            raise NoCheckpointsError(f"NVIDIA's driver here cannot checkpoint processes ({error})", remedy) from error

    def state(self, pid: int) -> ProcessState | None:
        """Ask for it."""
        error, *state = self._driver.cuCheckpointProcessGetState(pid)
        if error.name in NOT_CUDA:
            return None
        _check("state", pid, error)
        return ProcessState(state[0].name.removeprefix("CU_PROCESS_STATE_").lower())

    def lock(self, pid: int, timeout_s: float) -> None:
        """Lock it, with a time-out in milliseconds, at least one: 0 is none."""
        args = self._driver.CUcheckpointLockArgs()
        args.timeoutMs = max(int(1000 * timeout_s), 1)
        _check("lock", pid, *self._driver.cuCheckpointProcessLock(pid, args))

    def checkpoint(self, pid: int) -> None:
        """Checkpoint it, and keep in mind what it held."""
        self._room.take_held(pid)
        _check("checkpoint", pid, *self._driver.cuCheckpointProcessCheckpoint(pid, None))

    def restore(self, pid: int, onto: Mapping[str, str]) -> None:
        """Restore it; where it changes GPUs, by a map with every GPU that the driver sees, as it wants one."""
        args = None
        uuids = {_text(uuid): uuid for uuid in self._uuids}
        changed = changed_gpus(pid, onto, tuple(uuids))
        whole = whole_map(changed, tuple(uuids))
        if changed:
            if not hasattr(self._driver, "CUcheckpointGpuPair"):
                raise DriverError("restore", pid, NO_PAIRS)
            args, pairs = self._driver.CUcheckpointRestoreArgs(), []
            for old, new in whole.items():
                pair = self._driver.CUcheckpointGpuPair()
                pair.oldUuid, pair.newUuid = uuids[old], uuids[new]
                pairs.append(pair)
            args.gpuPairs, args.gpuPairsCount = pairs, len(pairs)
        with self._room.claimed(pid, whole) as fits:
            if not fits:
                raise DriverError("restore", pid, "CUDA_ERROR_OUT_OF_MEMORY")
            _check("restore", pid, *self._driver.cuCheckpointProcessRestore(pid, args))

    def unlock(self, pid: int) -> None:
        """Unlock it."""
        _check("unlock", pid, *self._driver.cuCheckpointProcessUnlock(pid, None))

    def _uuid(self, index: int) -> Any:
        self._check_start("cuDeviceGetUuid", found := self._driver.cuDeviceGetUuid(self._driver.CUdevice(index)))
        return found[1]

    def _check_start(self, call: str, answer: tuple[Any, ...]) -> None:
        if answer[0].value:
            raise NoCheckpointsError(f"{call}: NVIDIA's driver says {answer[0].name}", "see that nvidia-smi lists its GPUs")


def changed_gpus(pid: int, onto: Mapping[str, str], uuids: tuple[str, ...]) -> dict[str, str]:
    """Return a process' map of GPUs by their whole UUIDs, {} where none changes. onto: as of `Checkpoints.restore`.

    uuids: of all GPUs, in order of their indices. Raises `DriverError` where one is not there, or two become one.
    """
    found = {_uuid_of(pid, old, uuids): _uuid_of(pid, new, uuids) for old, new in onto.items()}
    if len(set(found.values())) < len(found):
        raise DriverError("restore", pid, f"several of its GPUs onto one of {', '.join(sorted(set(found.values())))}")
    return {} if all(old == new for old, new in found.items()) else found


def _uuid_of(pid: int, name: str, uuids: tuple[str, ...]) -> str:
    """Return the whole UUID of a GPU."""
    if name.isdigit() and int(name) < len(uuids):
        return uuids[int(name)]
    named = [uuid for uuid in uuids if uuid.startswith(name) and name.startswith(UUID_PREFIX)]
    if len(named) != 1:
        raise DriverError("restore", pid, f"{name!r} is not the UUID or index of one of {', '.join(uuids)}")
    return named[0]


def whole_map(onto: Mapping[str, str], uuids: tuple[str, ...]) -> dict[str, str]:
    """Return a map of GPUs with all that there are, each once on either side: those that are displaced take what is left."""
    left = [uuid for uuid in uuids if uuid not in onto.values()]
    found = dict(onto)
    for uuid in uuids:
        if uuid not in found and uuid in left:
            left.remove(uuid)
            found[uuid] = uuid
    for uuid in uuids:
        if uuid not in found:
            found[uuid] = left.pop(0)
    return found


def _driver() -> ModuleType:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise NoCheckpointsError("the package cuda-bindings is missing", EXTRA) from error
    try:
        driver.cuDriverGetVersion()
    except RuntimeError as error:
        raise NoCheckpointsError("there is no libcuda.so.1", "install NVIDIA's driver") from error
    return driver  # type: ignore[no-any-return]


def _check(call: str, pid: int, error: Any) -> None:
    if error.value:
        raise DriverError(call, pid, error.name)


def _text(uuid: Any) -> str:
    digits = bytes(uuid.bytes).hex()
    return UUID_PREFIX + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
