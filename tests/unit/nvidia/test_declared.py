"""Which declared GPUs are served, and in which words others are refused."""

import pytest

from beamer.errors import InputError
from beamer.nvidia.declared import check_declared
from beamer.nvidia.inventory import Gpu, Inventory, MigSlice

WHOLE = Inventory((Gpu(0, "GPU-aaaa-1", "NVIDIA L4", 24, 24), Gpu(1, "GPU-aabb-2", "NVIDIA L4", 24, 24)))
SLICES = (MigSlice("MIG-1111", "MIG 1g.18gb", 16, 16), MigSlice("MIG-2222", "MIG 2g.35gb", 32, 32))
SLICED = Inventory((WHOLE.gpus[0], Gpu(1, "GPU-cccc-3", "NVIDIA H200", 140, 140, True, SLICES)))
UNSLICED = Inventory((Gpu(0, "GPU-cccc-3", "NVIDIA H200", 140, 140, True),))
BY_NAME = "devices with a name for each, one of them several times where trials share a GPU, or '-1' for a slot without a GPU"
H200 = "1 (GPU-cccc-3, NVIDIA H200)"
NAMED = "MIG-1111 (MIG 1g.18gb), MIG-2222 (MIG 2g.35gb)"


@pytest.mark.parametrize(
    ("gpus", "devices", "found"),
    [
        (2, (), WHOLE),
        (0, (), WHOLE),
        (2, ("1", "0"), WHOLE),
        (2, ("GPU-aaaa-1", "GPU-aabb-2"), WHOLE),
        (1, ("GPU-aab",), WHOLE),
        (3, ("0", "0", "-1"), WHOLE),
        (4, ("-1",) * 4, WHOLE),
        (1, (), SLICED),
        (3, ("0", "MIG-2222", "MIG-1111"), SLICED),
    ],
)
def test_what_is_there_is_served(gpus: int, devices: tuple[str, ...], found: Inventory) -> None:
    check_declared("nodes[0]", gpus, devices, found)


@pytest.mark.parametrize(
    ("gpus", "devices", "found", "message"),
    [
        (
            3, (), WHOLE,
            "n.gpus: got 3, expected at most 2, as this machine has GPU 0 (GPU-aaaa-1, NVIDIA L4), 1 (GPU-aabb-2, NVIDIA L4); "
            f"or {BY_NAME}",
        ),
        (
            2, ("0", "7"), WHOLE,
            "n.devices[1]: got '7', expected the index or UUID of what this machine has: GPU 0 (GPU-aaaa-1, NVIDIA L4), "
            "1 (GPU-aabb-2, NVIDIA L4)",
        ),
        (
            1, ("GPU-eeee",), SLICED,
            "n.devices[0]: got 'GPU-eeee', expected the index or UUID of what this machine has: GPU 0 (GPU-aaaa-1, NVIDIA L4), "
            f"{H200} in MIG mode with {NAMED}",
        ),
        (
            1, ("MIG-3333",), WHOLE,
            "n.devices[0]: got 'MIG-3333', expected the index or UUID of what this machine has: GPU 0 (GPU-aaaa-1, NVIDIA L4), "
            "1 (GPU-aabb-2, NVIDIA L4)",
        ),
        (
            1, ("GPU-aa",), WHOLE,
            "n.devices[0]: got 'GPU-aa', expected more of the UUID, as several begin so: GPU-aaaa-1, GPU-aabb-2",
        ),
        (2, (), SLICED, f"n.devices: got '1', expected the UUID of a slice, as GPU {H200} is in MIG mode: {NAMED}"),
        (1, ("1",), SLICED, f"n.devices[0]: got '1', expected the UUID of a slice, as GPU {H200} is in MIG mode: {NAMED}"),
        (
            1, ("GPU-cccc-3",), SLICED,
            f"n.devices[0]: got 'GPU-cccc-3', expected the UUID of a slice, as GPU {H200} is in MIG mode: {NAMED}",
        ),
        (
            1, (), UNSLICED,
            "n.devices: got '0', expected the UUID of a slice, as GPU 0 (GPU-cccc-3, NVIDIA H200) is in MIG mode: "
            "no slice yet: make one with nvidia-smi mig",
        ),
    ],
)  # fmt: skip
def test_what_is_not_there_is_refused(gpus: int, devices: tuple[str, ...], found: Inventory, message: str) -> None:
    with pytest.raises(InputError) as refused:
        check_declared("n", gpus, devices, found)
    assert str(refused.value) == message


def test_a_trial_has_one_slice_at_most() -> None:
    check_declared("n", 1, ("MIG-1111",), SLICED, widest=2)  # Its other GPU is on another node.
    check_declared("n", 2, ("0", "GPU-aabb-2"), WHOLE, widest=2)
    with pytest.raises(InputError) as refused:
        check_declared("n", 2, ("MIG-1111", "MIG-2222"), SLICED, widest=2)
    one = "GPUs that are no slices, as CUDA gives a process one slice, and trials may have several GPUs"
    assert str(refused.value) == (
        f"n.devices: got ['MIG-1111', 'MIG-2222'], expected {one}; or job.request with one GPU for a trial"
    )
