"""Whether GPUs that somebody declares are among those of a machine."""

from collections.abc import Sequence

from beamer.errors import InputError
from beamer.nvidia.inventory import Gpu, Inventory, MigSlice

NO_GPU = "-1"
"""What CUDA_VISIBLE_DEVICES calls no GPU: a slot."""
GPU_PREFIX, SLICE_PREFIX = "GPU-", "MIG-"
BY_NAME = "devices with a name for each, one of them several times where trials share a GPU, or '-1' for a slot without a GPU"


def names_uuid(device: str) -> bool:
    """Return whether a device is named by a UUID, of a GPU or of a slice."""
    return device.startswith((GPU_PREFIX, SLICE_PREFIX))


def check_declared(field: str, gpus: int, devices: Sequence[str], found: Inventory, widest: int = 1) -> None:
    """Check that a node's GPUs are there. Raises `InputError`, which names those that are.

    field: of the node, for messages. gpus: how many it has. devices: what CUDA_VISIBLE_DEVICES calls them: indices, UUIDs, of
    GPUs also how they begin, or `NO_GPU`; empty: the indices from 0 on. widest: the most GPUs that a trial may have, as CUDA
    gives a process one slice of those in CUDA_VISIBLE_DEVICES (NVIDIA's MIG user guide, "CUDA Visible Devices").
    """
    if not devices and gpus > len(found.gpus):
        there = f"at most {len(found.gpus)}, as this machine has {_listed(found)}"
        raise InputError(f"{field}.gpus", gpus, f"{there}; or {BY_NAME}")
    for number, device in enumerate(devices or map(str, range(gpus))):
        if device != NO_GPU:
            _check(f"{field}.devices[{number}]" if devices else f"{field}.devices", device, found)
    if min(widest, gpus) > 1 and (sliced := [device for device in devices if device.startswith(SLICE_PREFIX)]):
        one = "GPUs that are no slices, as CUDA gives a process one slice, and trials may have several GPUs"
        raise InputError(f"{field}.devices", sliced, f"{one}; or job.request with one GPU for a trial")


def named(device: str, found: Inventory) -> list[Gpu | MigSlice]:
    """Return the slice, or the GPUs, that CUDA_VISIBLE_DEVICES calls so: several where a UUID is cut short."""
    slices = [one for gpu in found.gpus for one in gpu.slices if one.uuid == device]
    return [*slices] or [gpu for gpu in found.gpus if _is_named(gpu, device)]


def _check(field: str, device: str, found: Inventory) -> None:
    there = named(device, found)
    if not there:
        raise InputError(field, device, f"the index or UUID of what this machine has: {_listed(found)}")
    if len(there) > 1:
        raise InputError(field, device, f"more of the UUID, as several begin so: {', '.join(one.uuid for one in there)}")
    if isinstance(there[0], Gpu) and there[0].in_mig_mode:
        raise InputError(field, device, f"the UUID of a slice, as GPU {there[0]} is in MIG mode: {_slices(there[0].slices)}")


def _is_named(gpu: Gpu, device: str) -> bool:
    if device.startswith(GPU_PREFIX):
        return len(device) > len(GPU_PREFIX) and gpu.uuid.startswith(device)
    return device == str(gpu.index)


def _listed(found: Inventory) -> str:
    return "GPU " + ", ".join(
        f"{gpu} in MIG mode with {_slices(gpu.slices)}" if gpu.in_mig_mode else str(gpu) for gpu in found.gpus
    )


def _slices(slices: Sequence[MigSlice]) -> str:
    return ", ".join(f"{one.uuid} ({one.name})" for one in slices) or "no slice yet: make one with nvidia-smi mig"
