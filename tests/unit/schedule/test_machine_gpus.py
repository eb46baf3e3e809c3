"""What a search knows of this machine's GPUs: what it refuses, says or leaves unsaid, and whose memory is whose."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest

from beamer.engines.local import LocalNode, Ssh
from beamer.engines.local.eviction import DeviceMemory
from beamer.errors import InputError
from beamer.gpu.engine import Observed, RunState
from beamer.process_stat import own_namespace, process_stat
from beamer.schedule import machine_gpus
from beamer.schedule.command import MEMORY_STEP, in_steps
from beamer.schedule.file import load, shipped
from beamer.schedule.machine_gpus import INITIAL_NAMESPACE, INTERVAL_S, MAX_SHARE, HeldMemory, MachineGpus, find_gpus
from beamer.schedule.report import memory_line
from beamer.studies.model import Process
from tests.support.nvidia.standin import Described

GPU = "gpu GPU-aaaa-1 1000 900 NVIDIA L4"
SLOTS = LocalNode("n", 4)
INDICES = LocalNode("n", 2, devices=("5", "2"))
UUIDS = LocalNode("n", 1, devices=("GPU-aaaa",))
NOT_CHECKED = "the GPUs of nodes are not checked: "
NO_PACKAGE = "the package nvidia-ml-py is not installed: pip install 'beamer-scheduler[nvidia]'"
NO_LIBRARY = "no driver of NVIDIA's is installed (libnvidia-ml.so.1 is not found)"


@pytest.fixture
def child() -> Iterator[int]:
    """Return a process below this one."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid


def seen(pid: int, node: str = "n", start: int | None = None, namespace: int | None = None) -> Observed:
    """Return a running job whose ranks are below a process; start and namespace are that process's own by default."""
    found = process_stat(f"/proc/{pid}/stat")
    assert found is not None
    space = own_namespace() if namespace is None else namespace
    return Observed(RunState.RUNNING, processes={node: Process(pid, found.started if start is None else start, space)})


@pytest.mark.parametrize(("node", "is_said"), [(SLOTS, False), (INDICES, False), (UUIDS, True)])
def test_without_the_package_nothing_is_said_unless_uuids_are_declared(
    node: LocalNode, is_said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert find_gpus([node], 1) == MachineGpus(NOT_CHECKED + NO_PACKAGE if is_said else "")


@pytest.mark.parametrize(("node", "is_said"), [(SLOTS, False), (INDICES, True), (UUIDS, True)])
def test_without_a_driver_slots_are_slots(node: LocalNode, is_said: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: pynvml._nvmlCheckReturn(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    assert find_gpus([node], 1) == MachineGpus(NOT_CHECKED + NO_LIBRARY if is_said else "")


@pytest.mark.parametrize(
    ("lines", "branch", "why"),
    [
        ((), 580, "the driver has no GPU"),
        (("fail nvmlInitWithFlags 9",), 580, "the kernel has not loaded the driver: see nvidia-smi"),
        ((GPU,), 390, "the driver is too old for the installed nvidia-ml-py: install a newer driver"),
    ],
)
@pytest.mark.parametrize("node", [SLOTS, INDICES, UUIDS])
def test_a_driver_that_says_nothing_is_said(
    lines: tuple[str, ...], branch: int, why: str, node: LocalNode, described: Described
) -> None:
    described(*lines, branch=branch)
    assert find_gpus([node], 1) == MachineGpus(NOT_CHECKED + why)


def test_nothing_is_asked_where_no_node_of_this_machine_has_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_gpus, "open_nvml", lambda: pytest.fail("it is asked"))
    assert (
        find_gpus(
            [
                LocalNode("far", 8, devices=("GPU-eeee",) * 8, launcher=Ssh("far")),
                LocalNode("n", 0),
                LocalNode("slots", 2, devices=("-1", "-1")),
            ],
            1,
        )
        == MachineGpus()
    )


def test_each_node_of_this_machine_is_checked(described: Described) -> None:
    described(GPU)
    far = LocalNode("far", 8, launcher=Ssh("far"))
    with pytest.raises(InputError, match=r"^nodes\[2\]\.devices\[0\]: got '1', expected the index or UUID of what"):
        find_gpus([far, LocalNode("m", 1), LocalNode("n", 1, devices=("1",))], 1)
    found = find_gpus([far, LocalNode("m", 1), LocalNode("n", 1)], 1)
    assert (found.remark, set(found.nodes)) == ("", {"m", "n"})
    found.close()
    assert found.held_bytes({"s/a": seen(os.getpid())}) == {}


def test_the_shipped_search_runs_on_any_machine(described: Described) -> None:
    described(GPU)
    search = load(shipped())
    search.engine.find_gpus(1).close()


def test_memory_is_of_the_job_below_whose_process_it_is(
    described: Described, child: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_gpus, "INITIAL_NAMESPACE", own_namespace())
    described(GPU, f"process {child} GPU-aaaa-1 300", f"process {os.getpid()} GPU-aaaa-1 20", "process 1 GPU-aaaa-1 4")
    gpus = find_gpus([LocalNode("n", 1)], 1)
    assert gpus.held_bytes({"s/a": seen(os.getpid())}) == {"s/a": 320}
    assert gpus.held_bytes({"s/a": seen(child)}) == {"s/a": 300}
    assert gpus.held_bytes({"s/a": seen(child), "s/b": seen(os.getpid())}) == {"s/a": 300, "s/b": 20}, "the nearest one's"
    assert gpus.held_bytes({"s/a": seen(child, start=0)}) == {"s/a": 300}, "when it started is not known"
    for other in (seen(child, start=1), seen(child, node="far"), seen(child, namespace=1), Observed(RunState.RUNNING)):
        assert gpus.held_bytes({"s/a": other}) == {}
    gpus.close()


def test_in_a_container_a_process_has_to_have_a_gpu_open(
    described: Described, child: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    described(GPU, f"process {child} GPU-aaaa-1 300")
    gpus = find_gpus([LocalNode("n", 1)], 1)
    monkeypatch.setattr(machine_gpus, "INITIAL_NAMESPACE", 1)
    for is_open in (False, True):
        monkeypatch.setattr(machine_gpus, "uses_gpu", lambda pids, opens=is_open: opens and pids == [child])
        assert gpus.held_bytes({"s/a": seen(os.getpid())}) == ({"s/a": 300} if is_open else {})
    gpus.close()


def test_memory_of_gpus_and_slices_is_by_what_programs_call_them(described: Described, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_gpus, "INITIAL_NAMESPACE", own_namespace())
    path = described(
        GPU, "process 7 GPU-aaaa-1 30", "process 8 GPU-aaaa-1 -",
        "gpu GPU-bbbb-2 500 500 NVIDIA H200", "mig", "slice MIG-1 100 90 NVIDIA H200 MIG 1g.18gb", "process 9 MIG-1 10",
    )  # fmt: skip
    gpus = find_gpus([LocalNode("n", 1), LocalNode("m", 3, devices=("GPU-aa", "MIG-1", "-1"))], 1)
    of_gpu = DeviceMemory(1000, 900, {7: 30}, "NVIDIA L4")
    assert gpus.read() == {"0": of_gpu, "GPU-aa": of_gpu, "MIG-1": DeviceMemory(100, 90, {9: 10})}
    path.write_text("fail nvmlDeviceGetCount_v2 999\n")
    assert gpus.read() == {}, "nothing is known of a driver that fails"
    gpus.close()
    assert gpus.read() == MachineGpus().read() == {}


@pytest.mark.parametrize("name", ["gpu_memory", "host_memory"])
def test_a_bound_of_memory_needs_to_know_what_trials_hold(name: str, described: Described) -> None:
    described()
    bound: dict[str, int] = {name: 1000}
    expected = rf"^nodes\[1\]\.{name}: got 1000, expected 0, as what trials hold there is not known: "
    with pytest.raises(InputError, match=expected + "the GPUs of nodes are not checked: the driver has no GPU"):
        find_gpus([LocalNode("m", 1), LocalNode("n", 1, **bound)], 1)
    described(GPU)
    with pytest.raises(InputError, match=expected + "the node has no GPU of NVIDIA's, or is another machine"):
        find_gpus([LocalNode("m", 1), LocalNode("n", 1, launcher=Ssh("far"), **bound)], 1)
    find_gpus([LocalNode("m", 1), LocalNode("n", 1, **bound)], 1).close()


def test_no_more_memory_is_shared_than_a_gpu_has(described: Described) -> None:
    described(GPU, "gpu GPU-bbbb-2 500 500 NVIDIA L4")
    with pytest.raises(
        InputError, match=r"^nodes\[0\]\.gpu_memory: got 501, expected at most 500, what its GPU with the least"
    ):
        find_gpus([LocalNode("n", 2, gpu_memory=501)], 1)


def test_the_kernel_s_number_of_the_machine_s_own_namespace() -> None:
    assert INITIAL_NAMESPACE == 4026531836


class Answers(MachineGpus):
    """Says what it is given, one after the other, each after so many seconds."""

    def __init__(self, answers: list[dict[str, int]], takes_s: float = 0.0) -> None:
        super().__init__()
        self.answers = answers
        self.takes_s = takes_s
        self.now_s = 0.0

    def held_bytes(self, seen: Mapping[str, Observed]) -> dict[str, int]:
        self.now_s += self.takes_s
        return self.answers.pop(0)


def test_the_most_that_was_held_is_kept_and_looked_at_from_time_to_time() -> None:
    gpus = Answers([{"s/a": 5}, {"s/a": 9, "s/b": 1}, {"s/a": 2}])
    memory, lasts = HeldMemory(gpus), []
    for gpus.now_s in (0.0, 0.5 * INTERVAL_S, INTERVAL_S, 2 * INTERVAL_S):
        memory.look({}, lambda: gpus.now_s)
        lasts.append(memory.last)
    assert lasts == [{"s/a": 5}, {"s/a": 5}, {"s/a": 9, "s/b": 1}, {"s/a": 2}]
    assert memory.most == {"s/a": 9, "s/b": 1}


def test_a_driver_that_is_slow_is_asked_less_often() -> None:
    gpus = Answers([{"s/a": count} for count in range(3)], takes_s=INTERVAL_S)
    memory = HeldMemory(gpus)
    memory.look({}, lambda: gpus.now_s)
    due_s = INTERVAL_S + INTERVAL_S / MAX_SHARE
    for gpus.now_s, count in ((0.9 * due_s, 0), (due_s, 1)):
        memory.look({}, lambda: gpus.now_s)
        assert memory.last == {"s/a": count}


def test_the_line_about_memory_names_who_holds_the_most_first() -> None:
    held = {"s/a": 2**30, "s/b": 3 * 2**30, "s/c": 2**30}
    assert memory_line(held, {"s/c"}) == "GPU memory: b 3.0 GiB, a 1.0 GiB, c 1.0 GiB (suspended)"


def test_a_controller_is_told_in_steps_and_of_no_trial_that_it_holds_nothing() -> None:
    held = {"s/a": 1, "s/b": MEMORY_STEP, "s/c": MEMORY_STEP + 1}
    assert in_steps(held) == {"s/a": MEMORY_STEP, "s/b": MEMORY_STEP, "s/c": 2 * MEMORY_STEP}
