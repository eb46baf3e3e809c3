"""The calls of the driver, by a module that stands in for `cuda.bindings.driver`."""

from types import SimpleNamespace
from typing import Any

import pytest

from beamer.nvidia import checkpoint
from beamer.nvidia.checkpoint import NO_PAIRS, CudaCheckpoints, DriverError
from beamer.nvidia.inventory import Lack, NoGpus
from beamer.nvidia.room import Room

SUCCESS = SimpleNamespace(value=0, name="CUDA_SUCCESS")


class Bindings:
    """`cuda.bindings.driver` of version 12, with two GPUs: it has no pairs of GPUs yet."""

    def __init__(self) -> None:
        self.restored: list[tuple[int, Any]] = []

    def cuInit(self, flags: int) -> tuple[Any]:
        return (SUCCESS,)

    def cuDeviceGetCount(self) -> tuple[Any, int]:
        return SUCCESS, 2

    def CUdevice(self, index: int) -> int:
        return index

    def cuDeviceGetUuid(self, device: int) -> tuple[Any, Any]:
        return SUCCESS, SimpleNamespace(bytes=bytes([device] * 16))

    def cuCheckpointProcessGetState(self, pid: int) -> tuple[Any]:
        return (SimpleNamespace(value=1, name="CUDA_ERROR_INVALID_VALUE"),)

    def cuCheckpointProcessRestore(self, pid: int, args: Any) -> tuple[Any]:
        self.restored.append((pid, args))
        return (SUCCESS,)


def test_bindings_without_pairs_of_gpus_refuse_other_gpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bindings = Bindings()
    monkeypatch.setattr(checkpoint, "_driver", lambda: bindings)
    made = CudaCheckpoints(Room(lambda: NoGpus(Lack.PACKAGE, "it is not installed")))
    with pytest.raises(DriverError, match=f"refuses to restore a process: {NO_PAIRS}; install version 13"):
        made.restore(17, {"0": "1"})
    assert not bindings.restored
    made.restore(17, {"0": "0"})
    assert bindings.restored == [(17, None)]
