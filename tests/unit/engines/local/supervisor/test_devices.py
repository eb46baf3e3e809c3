"""Who has opened a GPU's device, by files that stand for one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from beamer.engines.local.supervisor.devices import GPU_DEVICES, says_out_of_memory, uses_gpu
from tests.processes.site import until


def test_a_process_that_has_a_device_open_is_found_among_others(tmp_path: Path) -> None:
    device = tmp_path / "nvidia0"
    device.touch()
    program = f"file = open({str(device)!r}); print('open', flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == "open\n"
        assert uses_gpu([os.getpid(), process.pid], (str(tmp_path / "nvidia"),))
        assert not uses_gpu([os.getpid(), process.pid], (str(tmp_path / "kfd"),))
        process.stdin.write("\n")
    assert not uses_gpu([process.pid], (str(tmp_path),)), "it has ended"


def test_a_descendant_counts_for_its_ancestors(tmp_path: Path) -> None:
    device = tmp_path / "nvidia0"
    device.touch()
    program = f"sleep 1000 < {device} & echo begun; wait"
    with subprocess.Popen(["sh", "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "begun\n"
            until(lambda: uses_gpu([process.pid], (str(device),)))
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_device_files_of_drivers_are_known_by_name() -> None:
    for path in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm", "/dev/kfd", "/dev/dri/renderD128"):
        assert path.startswith(GPU_DEVICES)
    assert not "/dev/null".startswith(GPU_DEVICES)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of", True),
        ("RuntimeError: CUDA out of memory. Tried to allocate", True),
        ("torch.cuda.OutOfMemoryError: HIP out of memory.", True),
        (
            "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 bytes.",
            True,
        ),
        ("CUDA error: CUDA_ERROR_OUT_OF_MEMORY: out of memory", True),
        ("java.lang.OutOfMemoryError: Java heap space", False),
        ("MemoryError: out of memory", False),
        ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered", False),
    ],
)
def test_a_gpu_without_memory_is_told_from_other_ends(words: str, expected: bool) -> None:
    assert says_out_of_memory(words) is expected
