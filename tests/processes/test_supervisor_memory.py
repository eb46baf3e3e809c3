"""GPU memory that a supervisor moves: onto other GPUs, on a stand-in of NVIDIA's driver."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from beamer.engines.local.spec import LaunchSpec
from beamer.engines.local.states import MemoryPlace, RanksState
from beamer.engines.local.supervisor import control
from beamer.engines.local.supervisor.messages import (
    Accepted,
    End,
    GetStatus,
    Launch,
    Refused,
    Resume,
    Status,
    Stop,
    SupervisorAnswer,
    SupervisorRequest,
    Suspend,
)
from tests.processes.site import ONE_THREAD, of_directory, until
from tests.support.checkout import ROOT
from tests.support.nvidia.cuda_standin import GIB, OPERATING_SYSTEM, OUT_OF_MEMORY, Standin, standin
from tests.support.nvidia.standin import build

PATIENCE_S = 60.0


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Standin:
    made = standin(tmp_path / "driver", monkeypatch)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return made


class Job:
    """The supervisor of a job whose ranks wait at a gate."""

    launch: Launch

    def __init__(self, root: Path) -> None:
        self.directory = root / "supervised"
        self.gate = root / "gate"

    def ask(self, request: SupervisorRequest) -> SupervisorAnswer:
        start = control.supervisor_command(str(self.directory), "signals", sys.executable)
        return control.ask_or_start(self.directory, request, PATIENCE_S, start)

    def does(self, request: SupervisorRequest) -> None:
        assert self.ask(request) == Accepted()

    def refuses(self, request: SupervisorRequest) -> str:
        answer = self.ask(request)
        assert isinstance(answer, Refused)
        return answer.reason

    @property
    def status(self) -> Status:
        answer = self.ask(GetStatus())
        assert isinstance(answer, Status)
        return answer

    def becomes(self, state: RanksState, place: MemoryPlace) -> None:
        until(
            lambda: (self.status.run.state, self.status.run.memory.place) == (state, place), f"{state} with memory on {place}"
        )

    def launch_again(self) -> None:
        """Have it run from its checkpoint to the gate."""
        self.does(replace(self.launch, run=2, progress=self.status.run.progress))
        until(lambda: self.status.run.progress.done >= 10, "the gate")

    def is_refused_for_good(self) -> None:
        """Check that the memory of a run that runs stays on its GPU from now on."""
        self.does(Suspend(PATIENCE_S, offloads=True))
        self.becomes(RanksState.SUSPENDED, MemoryPlace.GPU)
        assert self.status.run.memory.permanent
        self.does(Resume(PATIENCE_S))

    def suspend(self) -> None:
        self.does(Suspend(PATIENCE_S, offloads=True))
        self.becomes(RanksState.SUSPENDED, MemoryPlace.HOST)


@contextmanager
def launched(root: Path, driver: Standin, devices: tuple[str, ...], grace_s: float = 60.0) -> Iterator[Job]:
    """Run a job with 6 GiB on each of these GPUs, until it stands at a gate."""
    job = Job(root)
    job.gate.write_text("10")
    program = ("-m", "tests.support.nvidia.cuda_program", str(6 * GIB), "--iterations", "20", "--gate", str(job.gate))
    spec = LaunchSpec((sys.executable, *program), cwd=str(ROOT), env=ONE_THREAD, grace_s=grace_s, batch_size=64, iterations=20)
    ranks = tuple(range(len(devices)))
    job.launch = Launch(1, spec, ranks, devices, len(ranks), "127.0.0.1", 4711, 64)
    try:
        job.does(job.launch)
        until(lambda: job.status.run.progress.done >= 10, "the gate")
        yield job
        if job.status.run.state.is_live:
            job.gate.unlink()
            until(lambda: job.status.run.state is RanksState.FINISHED, "the end")
    finally:
        job.does(End())
        until(lambda: not of_directory(root), "all processes to be gone")


def gpus(driver: Standin) -> list[int]:
    """Return the GPUs that processes have memory on, in order of ranks, as ranks are started one after another."""
    return [one.device for _, one in sorted(driver.processes.items()) if one.state == "running"]


def test_memory_comes_back_on_other_gpus_and_from_there_on_others_still(tmp_path: Path, driver: Standin) -> None:
    uuids = [driver.device(index, 16 * GIB) for index in range(4)]
    with launched(tmp_path, driver, ("0", "1")) as job:
        for wanted, found in (
            ((uuids[2], uuids[3]), [2, 3]),
            ((uuids[3], "0"), [3, 0]),  # One of them takes the place of the other one.
            ((), [3, 0]),
            ((uuids[0], "1"), [0, 1]),
        ):
            job.suspend()
            job.does(Resume(PATIENCE_S, wanted))
            job.becomes(RanksState.RUNNING, MemoryPlace.GPU)
            assert gpus(driver) == found
            job.does(Resume(PATIENCE_S, wanted))
    assert {result for _, _, result in driver.calls} == {0}


@pytest.mark.parametrize(("wanted", "found"), [(("2", "3"), [2, 3]), (("1", "0"), [1, 0]), ((), [0, 1])])
def test_what_is_refused_for_one_rank_is_known_to_have_been_elsewhere_for_the_other(
    wanted: tuple[str, ...], found: list[int], tmp_path: Path, driver: Standin
) -> None:
    for index in range(4):
        driver.device(index, 16 * GIB)
    with launched(tmp_path, driver, ("0", "1")) as job:
        job.suspend()
        with subprocess.Popen(["sleep", "1000"]) as other:
            (driver.root / "processes" / str(other.pid)).write_text(f"running 3 {12 * GIB}")
            job.does(Resume(PATIENCE_S, ("2", "3")))
            until(lambda: job.status.run.memory.refusal, "the driver to refuse")
            other.kill()
        job.becomes(RanksState.SUSPENDED, MemoryPlace.HOST)
        assert sorted(result for _, call, result in driver.calls if call == "restore") == [0, OUT_OF_MEMORY]
        job.does(Resume(PATIENCE_S, wanted))
        job.becomes(RanksState.RUNNING, MemoryPlace.GPU)
        assert gpus(driver) == found


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        (("2",), "it has GPUs 0, 1, which cannot become 2"),
        (("2", "2"), "it has GPUs 0, 1, which cannot become 2, 2"),
        (("2", "1"), "its memory is on GPUs 0, 1, or on its way"),
    ],
)
def test_memory_that_is_on_gpus_stays_on_them(devices: tuple[str, ...], reason: str, tmp_path: Path, driver: Standin) -> None:
    for index in range(3):
        driver.device(index, 16 * GIB)
    with launched(tmp_path, driver, ("0", "1")) as job:
        assert job.refuses(Resume(PATIENCE_S, devices)).startswith(reason)
        job.does(Suspend(PATIENCE_S))
        assert job.refuses(Resume(PATIENCE_S, devices)).startswith(reason)
        job.does(Resume(PATIENCE_S, ("0", "1")))


def test_what_is_to_stop_waits_for_room_no_longer_than_it_may_take_to_stop(tmp_path: Path, driver: Standin) -> None:
    driver.device(0, 16 * GIB)
    with launched(tmp_path, driver, ("0",), grace_s=1.0) as job, subprocess.Popen(["sleep", "1000"]) as other:
        job.suspend()
        (driver.root / "processes" / str(other.pid)).write_text(f"running 0 {12 * GIB}")
        job.does(Stop(PATIENCE_S))
        until(lambda: job.status.run.state is RanksState.STOPPED, "it to be given up")
        note = job.status.run.note
        assert "its memory did not come back from the host to be saved within 1 s" in note
        assert "CUDA_ERROR_OUT_OF_MEMORY" in note
        other.kill()


def test_a_move_back_may_take_longer_than_it_may_take_to_stop(tmp_path: Path, driver: Standin) -> None:
    driver.device(0, 16 * GIB)
    with launched(tmp_path, driver, ("0",), grace_s=3.0) as job:
        job.suspend()
        driver.say("seconds-restore", 5.0)
        job.does(Stop(PATIENCE_S))
        until(lambda: job.status.run.state is RanksState.STOPPED, "it to stop")
        assert job.status.run.note == ""


def test_a_gpu_that_is_not_there_is_refused_by_name(tmp_path: Path, driver: Standin) -> None:
    uuid = driver.device(0, 16 * GIB)
    with launched(tmp_path, driver, ("0",)) as job:
        job.suspend()
        job.does(Resume(PATIENCE_S, ("GPU-f",)))
        refusal = until(lambda: job.status.run.memory.refusal, "the refusal")
        assert refusal.startswith(
            f"NVIDIA's driver refuses to restore a process: 'GPU-f' is not the UUID or index of one of {uuid}"
        )
        job.becomes(RanksState.SUSPENDED, MemoryPlace.HOST)
        job.does(Resume(PATIENCE_S))
        job.becomes(RanksState.RUNNING, MemoryPlace.GPU)
        assert gpus(driver) == [0]


@pytest.mark.parametrize("call", ["lock", "checkpoint", "restore", "unlock"])
def test_a_program_that_is_killed_in_a_move_has_failed_and_leaves_nothing(call: str, tmp_path: Path, driver: Standin) -> None:
    for index in range(2):
        driver.device(index, 16 * GIB)
    with launched(tmp_path, driver, ("0", "1")) as job:
        if call in ("restore", "unlock"):
            job.suspend()
        driver.say(f"pause-{call}")
        job.does(Suspend(PATIENCE_S, offloads=True) if call in ("lock", "checkpoint") else Resume(PATIENCE_S))
        until(lambda: driver.has(f"reached-{call}"), "the call")
        os.kill(max(driver.processes), signal.SIGKILL)
        until(lambda: job.status.run.state is RanksState.FAILED, "the run to have failed")
        assert "was killed by SIGKILL" in job.status.run.exit
        assert not driver.processes
        driver.unsay(f"pause-{call}")
        assert job.status.run.memory.place is MemoryPlace.GPU


@contextmanager
def crowded(driver: Standin) -> Iterator[None]:
    """Have another process hold most of the first GPU."""
    with subprocess.Popen(["sleep", "1000"]) as other:
        (driver.root / "processes" / str(other.pid)).write_text(f"running 0 {12 * GIB}")
        try:
            yield
        finally:
            other.kill()


def restores(driver: Standin) -> list[int]:
    return [result for _, call, result in driver.calls if call == "restore"]


@pytest.mark.parametrize("devices", [(), ("0",), ("1",)])
def test_memory_is_not_brought_back_where_nvml_says_that_there_is_no_room(
    devices: tuple[str, ...], tmp_path: Path, driver: Standin
) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    build(driver.root)
    driver.say("wedges")  # A call that finds no room would be the process' last.
    for index in range(2):
        driver.device(index, 16 * GIB)
    with launched(tmp_path, driver, ("1",) if devices == ("0",) else ("0",)) as job:
        job.suspend()
        with crowded(driver):
            for _ in range(2):
                job.does(Resume(PATIENCE_S, devices))
                if devices == ("1",):
                    break
                assert "CUDA_ERROR_OUT_OF_MEMORY" in until(lambda: job.status.run.memory.refusal, "it to be refused")
                job.becomes(RanksState.SUSPENDED, MemoryPlace.HOST)
                assert restores(driver) == []
        job.does(Resume(PATIENCE_S, devices))
        job.becomes(RanksState.RUNNING, MemoryPlace.GPU)
        assert restores(driver) == [0]


def test_what_stops_waits_for_the_room_that_nvml_says(tmp_path: Path, driver: Standin) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    build(driver.root)
    driver.say("wedges")
    driver.device(0, 16 * GIB)
    with launched(tmp_path, driver, ("0",)) as job:
        job.suspend()
        with crowded(driver):
            job.does(Stop(PATIENCE_S))
            until(lambda: job.status.run.memory.refusal, "it to be refused")
        until(lambda: job.status.run.state is RanksState.STOPPED, "it to stop")
        assert job.status.run.note == ""
        assert restores(driver) == [0]


def test_two_that_stop_do_not_come_back_into_the_room_of_one(tmp_path: Path, driver: Standin) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    build(driver.root)
    driver.say("wedges")
    driver.device(0, 10 * GIB)
    roots = [tmp_path / name for name in "ab"]
    with ExitStack() as stack:
        jobs = []
        for root in roots:
            root.mkdir()
            jobs.append(stack.enter_context(launched(root, driver, ("0",))))
            jobs[-1].suspend()
        driver.say("seconds-restore", 1.0)
        for job in jobs:
            job.does(Stop(PATIENCE_S))
        until(lambda: all(job.status.run.state is RanksState.STOPPED for job in jobs), "both to stop")
        assert [job.status.run.note for job in jobs] == ["", ""]
    assert restores(driver) == [0, 0]


def test_a_run_that_the_driver_never_brings_back_continues_from_its_checkpoint(tmp_path: Path, driver: Standin) -> None:
    driver.say("wedges")
    driver.device(0, 16 * GIB)
    with launched(tmp_path, driver, ("0",)) as job:
        job.suspend()
        with crowded(driver):
            job.does(Resume(PATIENCE_S))
            until(lambda: job.status.run.memory.refusal, "it to be refused")
            job.becomes(RanksState.SUSPENDED, MemoryPlace.HOST)
        job.does(Resume(PATIENCE_S))
        until(lambda: job.status.run.state is RanksState.STOPPED, "it to be given up")
        assert "CUDA_ERROR_OPERATING_SYSTEM" in job.status.run.note
        assert job.status.run.note.endswith("it continues from its last checkpoint")
        job.launch_again()
        job.is_refused_for_good()
        assert set(restores(driver)) == {OUT_OF_MEMORY, OPERATING_SYSTEM}


def test_a_program_that_crashes_while_its_memory_is_elsewhere_continues_from_its_checkpoint(
    tmp_path: Path, driver: Standin
) -> None:
    driver.device(0, 16 * GIB)
    with launched(tmp_path, driver, ("0",)) as job:
        job.suspend()
        driver.say("pause-restore")
        job.does(Resume(PATIENCE_S))
        until(lambda: driver.has("reached-restore"), "the call")
        os.kill(max(driver.processes), signal.SIGSEGV)
        until(lambda: not job.status.run.state.is_live, "the run to end")
        assert job.status.run.state is RanksState.STOPPED
        assert "rank 0 was killed by SIGSEGV while its GPU memory was moved" in job.status.run.note
        driver.unsay("pause-restore")
        job.launch_again()
        job.is_refused_for_good()


def test_ranks_that_share_a_gpu_go_on_sharing_one(tmp_path: Path, driver: Standin) -> None:
    for index in range(2):
        driver.device(index, 16 * GIB)
    with launched(tmp_path, driver, ("0", "0")) as job:
        assert job.refuses(Resume(PATIENCE_S, ("0", "1"))).startswith("it has GPUs 0, 0, which cannot become 0, 1")
        job.does(Resume(PATIENCE_S, ("0", "0")))
