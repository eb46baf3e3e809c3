"""What NVML says of GPUs and processes, by a stand-in of it that is compiled; and what is said where it says nothing."""

import subprocess
import sys
from types import ModuleType

import pytest

from beamer.nvidia.inventory import Gpu, Inventory, Lack, MigSlice, NoGpus
from beamer.nvidia.nvml import Nvml, open_nvml
from tests.support.checkout import ROOT
from tests.support.nvidia import standin
from tests.support.nvidia.standin import Described

GIB = 2**30
TWO = (
    "driver 580.159",
    f"gpu GPU-aaaa-1 {80 * GIB} {70 * GIB} NVIDIA H200",
    f"gpu GPU-bbbb-2 {24 * GIB} {24 * GIB} NVIDIA L4",
)
SLICED = (
    f"gpu GPU-cccc-3 {140 * GIB} {140 * GIB} NVIDIA H200",
    "mig",
    f"slice MIG-1111 {16 * GIB} {16 * GIB} NVIDIA H200 MIG 1g.18gb",
    "slice -",
    f"slice MIG-2222 {32 * GIB} {30 * GIB} NVIDIA H200 MIG 2g.35gb",
)


def opened() -> Nvml:
    nvml = open_nvml()
    assert isinstance(nvml, Nvml)
    return nvml


def test_gpus_are_those_of_the_driver(described: Described) -> None:
    described(*TWO)
    with opened() as nvml:
        assert nvml.inventory() == Inventory(
            (
                Gpu(0, "GPU-aaaa-1", "NVIDIA H200", 80 * GIB, 70 * GIB, runs_mps=False),
                Gpu(1, "GPU-bbbb-2", "NVIDIA L4", 24 * GIB, 24 * GIB, runs_mps=False),
            ),
            "580.159",
        )


def test_slices_are_those_of_a_gpu_in_mig_mode(described: Described) -> None:
    described(*TWO, *SLICED)
    with opened() as nvml:
        found = nvml.inventory()
    assert isinstance(found, Inventory)
    assert [gpu.in_mig_mode for gpu in found.gpus] == [False, False, True]
    assert found.gpus[2].slices == (
        MigSlice("MIG-1111", "NVIDIA H200 MIG 1g.18gb", 16 * GIB, 16 * GIB),
        MigSlice("MIG-2222", "NVIDIA H200 MIG 2g.35gb", 32 * GIB, 30 * GIB),
    )


def test_what_processes_hold_is_by_process_and_by_gpu_or_slice(described: Described) -> None:
    described(
        *TWO, *SLICED,
        "process 10 GPU-aaaa-1 500", "process 10 GPU-bbbb-2 20", "process 11 GPU-aaaa-1 7", "process 12 MIG-2222 9",
        "process 13 GPU-aaaa-1 -",
    )  # fmt: skip
    with opened() as nvml:
        assert nvml.held_bytes() == {
            10: {"GPU-aaaa-1": 500, "GPU-bbbb-2": 20}, 11: {"GPU-aaaa-1": 7}, 12: {"MIG-2222": 9},
        }  # fmt: skip


def test_what_processes_hold_is_read_anew_each_time(described: Described) -> None:
    path = described(*TWO)
    with opened() as nvml:
        assert nvml.held_bytes() == {}
        path.write_text("\n".join((*TWO, *(f"process {pid} GPU-bbbb-2 {pid}" for pid in range(10, 40)))))
        assert nvml.held_bytes() == {pid: {"GPU-bbbb-2": pid} for pid in range(10, 40)}


def test_clients_of_mps_are_seen_and_no_process_counts_twice(described: Described) -> None:
    described(*TWO, "process 10 GPU-aaaa-1 500", "mps 10 GPU-aaaa-1 500", "mps 11 GPU-aaaa-1 30")
    with opened() as nvml:
        assert nvml.held_bytes() == {10: {"GPU-aaaa-1": 500}, 11: {"GPU-aaaa-1": 30}}
        found = nvml.inventory()
    assert isinstance(found, Inventory)
    assert [gpu.runs_mps for gpu in found.gpus] == [True, False]


def test_a_server_of_mps_without_clients_is_known_by_its_name(described: Described, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beamer.nvidia.nvml._program", {10: "nvidia-cuda-mps", 11: "python"}.__getitem__)
    described(*TWO, "process 10 GPU-aaaa-1 500", "process 11 GPU-bbbb-2 500")
    with opened() as nvml:
        found = nvml.inventory()
    assert isinstance(found, Inventory)
    assert [gpu.runs_mps for gpu in found.gpus] == [True, False]


@pytest.mark.parametrize(("branch", "is_told"), [(470, True), (460, False), (440, False)])
def test_older_drivers_say_less(branch: int, is_told: bool, described: Described, caplog: pytest.LogCaptureFixture) -> None:
    described(*TWO, "process 10 GPU-aaaa-1 500", branch=branch)
    with opened() as nvml:
        found = nvml.inventory()
        assert isinstance(found, Inventory)
        assert [gpu.uuid for gpu in found.gpus] == ["GPU-aaaa-1", "GPU-bbbb-2"]
        assert [gpu.runs_mps for gpu in found.gpus] == ([False, False] if is_told else [None, None])
        assert nvml.held_bytes() == nvml.held_bytes() == ({10: {"GPU-aaaa-1": 500}} if is_told else {})
    old = "the driver, 580.159, is too old for the installed nvidia-ml-py: install a newer driver"
    said = [f"what processes hold on {uuid} is not known: {old}" for uuid in ("GPU-aaaa-1", "GPU-bbbb-2")]
    assert caplog.messages == ([] if is_told else said), "each once"


@pytest.mark.parametrize(
    ("function", "code", "said"),
    [
        ("nvmlDeviceGetComputeRunningProcesses_v3", 4, "GPU-aaaa-1 is not known: NVML fails (Insufficient Permissions)"),
        ("nvmlDeviceGetCount_v2", 15, "GPUs is not known: NVML fails (GPU is lost)"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_of_processes_is_said_once(
    function: str, code: int, said: str, described: Described, caplog: pytest.LogCaptureFixture
) -> None:
    described(TWO[1], "process 10 GPU-aaaa-1 500", f"fail {function} {code}")
    with opened() as nvml:
        assert nvml.held_bytes() == nvml.held_bytes() == {}
    assert caplog.messages == [f"what processes hold on {said}: see nvidia-smi"]


def test_a_gpu_without_some_answers_is_known_all_the_same(described: Described) -> None:
    described(TWO[1], *(f"fail nvmlDeviceGet{name} 3" for name in ("MemoryInfo", "Name", "MigMode")))
    with opened() as nvml:
        assert nvml.inventory() == Inventory((Gpu(0, "GPU-aaaa-1", "unnamed", None, None, runs_mps=False),), "580.0")


@pytest.mark.parametrize(
    ("lines", "branch", "expected"),
    [
        (TWO, 390, NoGpus(Lack.NEWER_DRIVER, "the driver is too old for the installed nvidia-ml-py: install a newer driver")),
        (("fail nvmlInitWithFlags 9",), 580, NoGpus(Lack.DRIVER, "the kernel has not loaded the driver: see nvidia-smi")),
        (
            ("fail nvmlInitWithFlags 18",),
            580,
            NoGpus(Lack.ANSWER, "NVML fails (RM has detected an NVML/RM version mismatch.): see nvidia-smi"),
        ),
    ],
)
def test_a_driver_that_cannot_be_asked_says_why(
    lines: tuple[str, ...], branch: int, expected: NoGpus, described: Described
) -> None:
    described(*lines, branch=branch)
    assert open_nvml() == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((), NoGpus(Lack.GPU, "the driver has no GPU")),
        ((TWO[1], "fail nvmlDeviceGetUUID 15"), NoGpus(Lack.ANSWER, "NVML fails (GPU is lost): see nvidia-smi")),
    ],
)
def test_gpus_that_are_not_known_have_a_reason(lines: tuple[str, ...], expected: NoGpus, described: Described) -> None:
    described(*lines)
    with opened() as nvml:
        assert nvml.inventory() == expected


def test_without_the_package_the_reason_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    how = "the package nvidia-ml-py is not installed: pip install 'beamer-scheduler[nvidia]'"
    assert open_nvml() == NoGpus(Lack.PACKAGE, how)


def test_a_former_package_of_the_same_name_is_said_and_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    former = ModuleType("pynvml")  # Such as pynvml 11, which libraries for training bring along.
    vars(former).update(NVMLError=RuntimeError, nvmlInit=lambda: pytest.fail("it is used"))
    monkeypatch.setitem(sys.modules, "pynvml", former)
    found = open_nvml()
    assert isinstance(found, NoGpus)
    assert found.lack is Lack.PACKAGE
    assert found.reason.startswith("the module pynvml is not that of nvidia-ml-py 12.535.108 or newer: pip uninstall pynvml")


def test_a_gpu_that_is_lost_leaves_the_others_known(
    described: Described, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    described(*TWO, "process 10 GPU-aaaa-1 500", "process 10 GPU-bbbb-2 20")
    handle_of = pynvml.nvmlDeviceGetHandleByIndex

    def handle(index: int) -> object:
        return handle_of(index) if index else pynvml._nvmlCheckReturn(pynvml.NVML_ERROR_GPU_IS_LOST)

    with opened() as nvml:
        monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", handle)
        assert nvml.held_bytes() == nvml.held_bytes() == {10: {"GPU-bbbb-2": 20}}
    assert caplog.messages == ["what processes hold on GPU 0 is not known: NVML fails (GPU is lost): see nvidia-smi"]


def test_without_a_library_the_reason_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pynvml = pytest.importorskip("pynvml")
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", lambda name: exec("raise OSError(name)"))
    assert open_nvml() == NoGpus(Lack.LIBRARY, "no driver of NVIDIA's is installed (libnvidia-ml.so.1 is not found)")


def test_the_library_is_found_as_the_driver_s_is(described: Described, libraries: object) -> None:
    path = described(*TWO)
    code = "from beamer.nvidia.nvml import open_nvml; print(*(gpu.uuid for gpu in open_nvml().inventory().gpus))"
    library = standin.build(path.parent / "own")
    env = {"LD_LIBRARY_PATH": str(library.parent), "NVML_STANDIN": str(path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("GPU-aaaa-1 GPU-bbbb-2\n", "")


def test_importing_it_imports_nothing_of_nvidia_s() -> None:
    code = "import sys, beamer.nvidia.nvml; print('pynvml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("False\n", "")
