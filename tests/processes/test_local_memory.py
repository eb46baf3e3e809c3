"""GPU memory of suspended jobs moved to the host: on a stand-in of NVIDIA's driver, with processes that hold memory there."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from beamer.engines.local import LaunchSpec, LocalEngine, LocalNode
from beamer.engines.local.eviction import DeviceMemory
from beamer.engines.local.memory_mode import MemoryMode
from beamer.engines.local.supervisor.messages import Resume, SupervisorRequest
from beamer.engines.local.supervisors import Supervisors
from beamer.errors import EngineError, InputError
from beamer.gpu.engine import Placement, RunState
from beamer.gpu.model import Costs
from beamer.process_stat import own_namespace
from beamer.schedule.machine_gpus import INITIAL_NAMESPACE
from beamer.testing.trainer import Options, State
from eval.engines.undisturbed import undisturbed_digests
from tests.processes.site import ONE_THREAD, Site, on, read, until
from tests.processes.test_local_engine import check_steps
from tests.processes.test_schedule import RATES, TIMEOUT_S, ScheduleCommand
from tests.support.checkout import ROOT
from tests.support.nvidia.cuda_program import BUSY
from tests.support.nvidia.cuda_standin import (
    GIB,
    INVALID_VALUE,
    NOT_READY,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    Standin,
    standin,
)
from tests.support.nvidia.standin import build

ENDLESS = 10**6
TAKES_S = 0.5
CALLS = ("lock", "checkpoint", "restore", "unlock")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Standin:
    made = standin(tmp_path / "driver", monkeypatch)
    made.device(0, 16 * GIB)
    return made


def program(site: Site, job: str, iterations: int, size: int = 6 * GIB, *arguments: str) -> Path:
    """Have a job run the trainer with memory on a GPU; return its trace."""
    trace = site.root / f"{job}.trace"
    command = (sys.executable, "-m", "tests.support.nvidia.cuda_program", str(size), "--iterations", str(iterations))
    files = ("--trace", str(trace), "--gate", str(site.root / f"{job}.gate"))
    site.specs[job] = LaunchSpec((*command, *files, *arguments), cwd=str(ROOT), env=ONE_THREAD, batch_size=64)
    return trace


def suspends(site: Site, engine: LocalEngine, job: str) -> None:
    engine.suspend(job)
    site.until_state(engine, job, RunState.SUSPENDED)


def test_a_search_in_turns_fits_where_its_trials_together_do_not(site: Site, group: str, driver: Standin) -> None:
    jobs = [f"job{number}" for number in range(3)]
    traces = {job: program(site, job, 60) for job in jobs}
    engine = site.engine(memory=MemoryMode.HOST)
    for at in (30, 60):
        for job in jobs:
            site.hold(job, at)
            engine.start(job, on("localhost"))
            site.until_step(engine, job, beyond=at - 1)
            if at < 60:
                suspends(site, engine, job)
                assert driver.held(0) == 0
            else:
                assert site.until_state(engine, job, RunState.FINISHED, RunState.FAILED).state is RunState.FINISHED
    for job in jobs:
        assert check_steps(traces[job], Options(iterations=60)) == [1] * 60
        costs = site.costs[job]
        assert costs.suspend_s > 0
        assert costs.resume_s > 0
        assert costs.restart_s == 0
    assert {result for _, _, result in driver.calls} == {0}
    assert [call for _, call, _ in driver.calls].count("checkpoint") == len(jobs)


def continues(site: Site, engine: LocalEngine, trace: Path, iterations: int) -> None:
    """Let a job run to its end, and check every step of it."""
    site.release("job")
    engine.start("job", on("localhost"))
    assert site.until_state(engine, "job", RunState.FINISHED, RunState.FAILED).state is RunState.FINISHED
    assert check_steps(trace, Options(iterations=iterations)) == [1] * iterations


def started(site: Site, suspended: bool) -> tuple[LocalEngine, Path]:
    """Return an engine with a job that stands at a gate, or that was suspended there, and the job's trace."""
    trace = program(site, "job", 20)
    site.hold("job", 10)
    engine = site.engine(memory=MemoryMode.HOST)
    engine.start("job", on("localhost"))
    site.until_step(engine, "job", beyond=9)
    if suspended:
        suspends(site, engine, "job")
    return engine, trace


def begins(engine: LocalEngine, call: str) -> None:
    if call in ("lock", "checkpoint"):
        engine.suspend("job")
    else:
        engine.start("job", on("localhost"))


def mover(site: Site) -> int:
    """Return the process that moves memory."""
    found = [pid for pid in site.supervisors() if b"checkpoint_process" in read(pid, "cmdline")]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("call", CALLS)
def test_a_move_goes_on_when_the_process_that_makes_it_is_killed(call: str, site: Site, driver: Standin) -> None:
    engine, trace = started(site, call in ("restore", "unlock"))
    driver.say(f"pause-{call}")
    begins(engine, call)
    until(lambda: driver.has(f"reached-{call}"), "the call")
    os.kill(mover(site), signal.SIGKILL)
    driver.unsay(f"pause-{call}")
    wanted, state = (RunState.SUSPENDED, "checkpointed") if call in ("lock", "checkpoint") else (RunState.RUNNING, "running")
    site.until_state(engine, "job", wanted)
    until(lambda: [one.state for one in driver.processes.values()] == [state], "the memory to be in its place")
    continues(site, engine, trace, 20)


@pytest.mark.parametrize("call", ["lock", "restore"])
def test_what_kills_every_process_that_moves_memory_ends_with_it_on_the_gpu(call: str, site: Site, driver: Standin) -> None:
    engine, trace = started(site, call == "restore")
    driver.say(f"crash-{call}")
    begins(engine, call)
    until(lambda: not driver.has(f"crash-{call}"), "the first to die")
    driver.say(f"crash-{call}")
    until(lambda: not driver.has(f"crash-{call}"), "the second to die")
    site.until_state(engine, "job", RunState.PARKED if call == "lock" else RunState.RUNNING)
    continues(site, engine, trace, 20)


# An engine that makes a call for the job, and is killed after it.
ENGINE = """
import sys, time
from pathlib import Path
from beamer.engines.local import LaunchSpec, LocalCluster, LocalEngine
from beamer.engines.local.memory_mode import MemoryMode
from beamer.gpu.engine import Placement

engine = LocalEngine(LocalCluster.here(8), Path(sys.argv[1]), {}.__getitem__, memory=MemoryMode.HOST)
if sys.argv[2] == "suspend":
    engine.suspend("job", 60.0)
else:
    engine.start("job", Placement((("localhost", 0),)), 60.0)
while True:
    engine.report()
    time.sleep(0.02)
"""


@pytest.mark.parametrize("call", CALLS)
def test_a_move_goes_on_when_its_engine_is_killed(call: str, site: Site, driver: Standin) -> None:
    leaves = call in ("lock", "checkpoint")
    engine, trace = started(site, not leaves)
    engine.close()
    site.engines.remove(engine)
    driver.say(f"pause-{call}")
    with subprocess.Popen([sys.executable, "-c", ENGINE, site.root / "jobs", "suspend" if leaves else "start"]) as other:
        until(lambda: driver.has(f"reached-{call}"), "the call")
        other.kill()
    driver.unsay(f"pause-{call}")
    engine = site.engine(memory=MemoryMode.HOST)
    site.until_state(engine, "job", RunState.SUSPENDED if leaves else RunState.RUNNING)
    state = "checkpointed" if leaves else "running"
    until(lambda: [one.state for one in driver.processes.values()] == [state], "the memory to be in its place")
    continues(site, engine, trace, 20)


@pytest.mark.parametrize("call", CALLS)
def test_a_supervisor_that_is_killed_in_a_move_leaves_nothing_locked(call: str, site: Site, driver: Standin) -> None:
    engine, _ = started(site, call in ("restore", "unlock"))
    driver.say(f"pause-{call}")
    begins(engine, call)
    until(lambda: driver.has(f"reached-{call}"), "the call")
    supervisors = [pid for pid in site.supervisors() if b"engines.local.supervisor" in read(pid, "cmdline")]
    os.kill(supervisors[0], signal.SIGKILL)
    until(lambda: not driver.processes, "the ranks to die with it")
    driver.unsay(f"pause-{call}")
    assert "supervisor died" in site.until_state(engine, "job", RunState.PARKED).exit
    site.release("job")
    engine.start("job", on("localhost"))
    site.until_state(engine, "job", RunState.FINISHED)
    final = State.load(next(site.root.glob("jobs/*/checkpoint")))
    assert final.digest() == undisturbed_digests(Options(iterations=20), [1] * 20)[-1]


@pytest.mark.parametrize(
    ("said", "value", "reason"),
    [
        ("refuse-checkpoint", NOT_SUPPORTED, "refuses to checkpoint a process: CUDA_ERROR_NOT_SUPPORTED"),
        ("old-driver", "", "NVIDIA's driver here cannot checkpoint processes"),
        ("refuse-init", 100, "CUDA_ERROR_NO_DEVICE"),
    ],
)
def test_what_the_driver_refuses_is_parked_and_said_once(
    said: str, value: object, reason: str, site: Site, driver: Standin, capfd: pytest.CaptureFixture[str]
) -> None:
    logging.basicConfig(force=True)
    driver.say(said, value)
    engine, trace = started(site, False)
    for at in (14, 18):
        engine.suspend("job")
        site.until_state(engine, "job", RunState.PARKED)
        assert not driver.processes
        site.hold("job", at)
        engine.start("job", on("localhost"))
        site.until_step(engine, "job", beyond=at - 1)
    continues(site, engine, trace, 20)
    assert capfd.readouterr().err.count(reason) == 1


def test_a_lock_that_is_refused_leaves_the_job_as_it_was_until_it_is_parked(site: Site, driver: Standin) -> None:
    driver.say("refuse-lock", NOT_READY)
    engine, trace = started(site, False)
    engine.suspend("job")
    site.until_state(engine, "job", RunState.PARKED)
    driver.unsay("refuse-lock")
    engine.start("job", on("localhost"))
    site.until_state(engine, "job", RunState.RUNNING)
    until(lambda: driver.held(0), "the program to have memory")
    suspends(site, engine, "job")  # It is tried again, as the refusal may have been for once.
    assert driver.held(0) == 0
    continues(site, engine, trace, 20)


def test_memory_stays_on_the_host_while_there_is_no_room(site: Site, driver: Standin) -> None:
    engine, trace = started(site, True)
    program(site, "other", ENDLESS, 12 * GIB)
    engine.start("other", on("localhost"))
    until(lambda: driver.held(0), "the other one to have memory")
    engine.start("job", on("localhost"))
    until(lambda: OUT_OF_MEMORY in {result for _, _, result in driver.calls}, "the driver to refuse")
    site.until_state(engine, "job", RunState.SUSPENDED)
    engine.stop("other")
    engine.start("job", on("localhost"))
    until(lambda: driver.held(0) == 6 * GIB, "the memory to be back")
    continues(site, engine, trace, 20)


def test_a_job_whose_memory_is_on_the_host_is_parked_at_an_iteration_boundary(site: Site, driver: Standin) -> None:
    engine, trace = started(site, True)
    engine.resize("job", None)
    site.until_state(engine, "job", RunState.PARKED)
    assert not driver.processes
    continues(site, engine, trace, 20)


def test_a_job_whose_memory_is_on_the_host_is_stopped_at_once(site: Site, driver: Standin) -> None:
    engine, _ = started(site, True)
    engine.stop("job")
    assert not driver.processes


def test_ranks_of_a_node_move_together(site: Site, driver: Standin) -> None:
    driver.device(1, 16 * GIB)
    trace = program(site, "job", 20)
    site.hold("job", 10)
    engine = site.engine(memory=MemoryMode.HOST)
    engine.start("job", on("localhost", "localhost"))
    site.until_step(engine, "job", beyond=9)
    suspends(site, engine, "job")
    assert [call for _, call, _ in driver.calls] == ["lock"] * 2 + ["checkpoint"] * 2
    site.release("job")
    engine.start("job", on("localhost", "localhost"))
    assert site.until_state(engine, "job", RunState.FINISHED, RunState.FAILED).state is RunState.FINISHED
    assert [call for _, call, _ in driver.calls][4:] == ["restore"] * 2 + ["unlock"] * 2
    assert check_steps(trace, Options(iterations=20)) == [2] * 20


class StandinMemory:
    """The memory of GPUs as the stand-in has it. chips: what they are called, by index."""

    def __init__(self, driver: Standin, gib: int = 16, chips: Sequence[str] = ("H200",)) -> None:
        self.driver = driver
        self.total = gib * GIB
        self.chips = chips

    def read(self) -> dict[str, DeviceMemory]:
        found = {}
        for index, chip in enumerate(self.chips):
            there = {pid: one for pid, one in self.driver.processes.items() if one.device == index}
            held = {pid: one.bytes for pid, one in there.items() if one.state != "checkpointed"}
            found[str(index)] = DeviceMemory(self.total, self.total - sum(held.values()), held, chip)
        return found


def starts(site: Site, engine: LocalEngine, driver: Standin, job: str) -> None:
    """Start a job as the scheduler does: again and again, until it is seen to run."""

    def runs() -> bool:
        engine.start(job, on("localhost"))
        seen = engine.report()
        site.costs |= {key: one.costs for key, one in seen.items() if one.costs}
        return job in seen and seen[job].state in (RunState.RUNNING, RunState.FINISHED)

    until(runs, f"{job} to run")


@pytest.mark.parametrize("limit", [0, 16 * GIB])
def test_suspended_jobs_stay_on_the_gpu_while_what_runs_fits_beside_them(
    limit: int, site: Site, driver: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    gib = 80 if limit else 16
    driver.device(0, gib * GIB)
    jobs = [f"job{number}" for number in range(3)]
    traces = {job: program(site, job, 40) for job in jobs}
    with monkeypatch.context() as patch:
        patch.setattr(site, "nodes", (replace(site.nodes[0], gpu_memory=limit),))
        engine = site.engine(memory=MemoryMode.AUTO, gpu_memory=StandinMemory(driver, gib))
    for job in jobs:
        site.hold(job, 20)
        starts(site, engine, driver, job)
        site.until_step(engine, job, beyond=19)
        suspends(site, engine, job)
    states = [one.state for one in driver.processes.values()]
    assert sorted(states) == ["checkpointed", "running", "running"], "the first two fit, the third one does not beside them"
    for job in jobs:
        site.release(job)
        starts(site, engine, driver, job)
        assert site.until_state(engine, job, RunState.FINISHED, RunState.FAILED).state is RunState.FINISHED
        assert check_steps(traces[job], Options(iterations=40)) == [1] * 40
    assert {result for _, _, result in driver.calls} == {0}
    assert [call for _, call, _ in driver.calls] == list(CALLS), "one of them is moved, once"


def test_what_a_change_of_trials_takes_is_what_moving_their_memory_takes(site: Site, driver: Standin) -> None:
    for call in ("checkpoint", "restore"):
        driver.say(f"seconds-per-byte-{call}", TAKES_S / (6 * GIB))
    engine = site.engine(memory=MemoryMode.AUTO, gpu_memory=StandinMemory(driver, 7))

    def costs_are(hold: Callable[[], bool]) -> None:
        until(lambda: site.see(engine, "a") and hold(), "the costs of moves to be known")

    for job, known in (("a", 0), ("b", 1), ("a", 2)):  # Nothing has been moved yet, then memory to the host, and back.
        program(site, job, ENDLESS)
        starts(site, engine, driver, job)
        site.until_step(engine, job, beyond=3)
        costs_are(lambda one=job, moves=known: not moves or site.costs.get(one, Costs()).change_s >= moves * TAKES_S)
        suspends(site, engine, job)
    costs_are(lambda: site.costs["b"].change_s >= 2 * TAKES_S)  # It has never come back.
    costs_are(lambda: site.costs["a"].suspend_s >= TAKES_S > site.costs["a"].resume_s)  # Its memory is still there.


SECOND = Placement((("localhost", 1),))


def moved(site: Site, driver: Standin, *chips: str) -> tuple[LocalEngine, Path]:
    """Return an engine with a job whose memory is on the host, which came from the first of two GPUs, and its trace."""
    driver.device(1, 16 * GIB)
    trace = program(site, "job", 20)
    site.hold("job", 10)
    engine = site.engine(memory=MemoryMode.HOST, gpu_memory=StandinMemory(driver, chips=chips))
    engine.start("job", on("localhost"))
    site.until_step(engine, "job", beyond=9)
    suspends(site, engine, "job")
    return engine, trace


def finishes(site: Site, engine: LocalEngine, trace: Path) -> None:
    site.release("job")
    assert site.until_state(engine, "job", RunState.FINISHED, RunState.FAILED).state is RunState.FINISHED
    assert check_steps(trace, Options(iterations=20)) == [1] * 20


@pytest.mark.parametrize("call", ["start", "resize"])
def test_memory_on_the_host_comes_back_onto_another_gpu_of_the_chip(call: str, site: Site, driver: Standin) -> None:
    engine, trace = moved(site, driver, "H200", "H200")
    program(site, "other", ENDLESS, 12 * GIB)
    engine.start("other", on("localhost"))
    until(lambda: driver.held(0), "the other one to have memory")
    first = site.see(engine, "job").launch
    getattr(engine, call)("job", SECOND)
    seen = site.until_state(engine, "job", RunState.RUNNING)
    assert (seen.placement, seen.launch) == (SECOND, first)
    until(lambda: driver.held(1) == 6 * GIB, "the memory to be on the other GPU")
    suspends(site, engine, "job")
    assert (driver.held(1), site.see(engine, "job").placement) == (0, SECOND)
    engine.resume("job")
    until(lambda: driver.held(1) == 6 * GIB, "the memory to be back there")
    finishes(site, engine, trace)
    assert {result for _, _, result in driver.calls} == {0}


@pytest.mark.parametrize(
    ("chips", "reason"),
    [
        (("H200", "L4"), "of localhost, GPU 0 is an H200, GPU 1 an L4"),
        (("H200", ""), "GPUs 0 and 1 of localhost are not known to be of the same chip"),
    ],
)
def test_a_job_starts_from_its_checkpoint_on_a_gpu_of_another_chip(
    chips: tuple[str, str], reason: str, site: Site, driver: Standin, capfd: pytest.CaptureFixture[str]
) -> None:
    logging.basicConfig(force=True)
    engine, trace = moved(site, driver, *chips)
    first = site.see(engine, "job").launch
    engine.resize("job", SECOND)
    seen = site.until_state(engine, "job", RunState.RUNNING)
    assert (seen.placement, seen.launch) == (SECOND, first + 1)
    until(lambda: driver.held(1) == 6 * GIB, "the program to have memory there")
    finishes(site, engine, trace)
    assert capfd.readouterr().err.count(reason) == 1


def test_a_job_starts_from_its_checkpoint_where_the_driver_refuses_another_gpu(
    site: Site, driver: Standin, capfd: pytest.CaptureFixture[str]
) -> None:
    logging.basicConfig(force=True)
    engine, trace = moved(site, driver, "H200", "H200")
    driver.say("refuse-restore", INVALID_VALUE)
    engine.resize("job", SECOND)

    def stops() -> bool:
        seen = site.see(engine, "job")
        if seen.state is RunState.SUSPENDED:
            engine.resume("job")
        return seen.state is RunState.STOPPING

    until(stops, "the refusal to be seen")
    driver.unsay("refuse-restore")
    seen = site.until_state(engine, "job", RunState.RUNNING)
    assert (seen.placement, seen.launch) == (SECOND, 2)
    until(lambda: driver.held(1) == 6 * GIB, "the program to have memory there")
    finishes(site, engine, trace)
    assert "CUDA_ERROR_INVALID_VALUE" in capfd.readouterr().err


@pytest.mark.parametrize("is_asked", [False, True], ids=["recorded", "under way"])
def test_a_restore_onto_another_gpu_goes_on_with_the_next_engine(
    is_asked: bool, site: Site, driver: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, trace = moved(site, driver, "H200", "H200")
    driver.say("pause-restore")
    if is_asked:
        engine.resize("job", SECOND)
        until(lambda: driver.has("reached-restore"), "the call")
    else:
        with monkeypatch.context() as patch:
            patch.setattr(Supervisors, "ask_all", dies_at_resume(Supervisors.ask_all))
            with pytest.raises(EngineError, match="it has died"):
                engine.resize("job", SECOND)
    engine.close()
    site.engines.remove(engine)
    driver.unsay("pause-restore")
    engine = site.engine(memory=MemoryMode.HOST)  # Which chips there are is not asked any more.
    if not is_asked:
        assert site.until_state(engine, "job", RunState.SUSPENDED).placement == SECOND
        engine.start("job", SECOND)
    assert site.until_state(engine, "job", RunState.RUNNING).placement == SECOND
    until(lambda: driver.held(1) == 6 * GIB, "the memory to be on the other GPU")
    finishes(site, engine, trace)


def dies_at_resume(ask_all: Callable[..., Any]) -> Callable[..., Any]:
    """Return what asks supervisors, and fails before any is asked to resume a job."""

    def asked(self: Supervisors, requests: Mapping[str, SupervisorRequest], until: float) -> Any:
        if any(isinstance(one, Resume) for one in requests.values()):
            raise EngineError("it has died")
        return ask_all(self, requests, until)

    return asked


@pytest.mark.parametrize("memory", [MemoryMode.HOST, MemoryMode.AUTO])
def test_what_is_beyond_the_memory_of_the_host_is_parked(
    memory: MemoryMode, site: Site, driver: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.device(0, (7 if memory is MemoryMode.AUTO else 16) * GIB)
    with monkeypatch.context() as patch:
        patch.setattr(site, "nodes", (replace(site.nodes[0], host_memory=8 * GIB),))
        engine = site.engine(memory=memory, gpu_memory=StandinMemory(driver, 7 if memory is MemoryMode.AUTO else 16))
    for job in ("a", "b", "c"):
        program(site, job, ENDLESS)
        starts(site, engine, driver, job)
        site.until_step(engine, job, beyond=3)
        engine.suspend(job)
        site.until_state(engine, job, RunState.SUSPENDED, RunState.PARKED)
    states = {job: seen.state for job, seen in engine.report().items()}
    if memory is MemoryMode.HOST:
        assert states == {"a": RunState.SUSPENDED, "b": RunState.PARKED, "c": RunState.PARKED}
        assert driver.held(0) == 0
    else:
        assert states == {"a": RunState.SUSPENDED, "b": RunState.PARKED, "c": RunState.SUSPENDED}
        assert driver.held(0) == 6 * GIB
    assert [one.state for one in driver.processes.values()].count("checkpointed") == 1


@pytest.mark.parametrize("memory", [MemoryMode.GPU, MemoryMode.AUTO])
def test_a_job_without_memory_beside_suspended_ones_has_not_failed(memory: MemoryMode, site: Site, driver: Standin) -> None:
    trace = program(site, "first", 20, 12 * GIB)
    site.hold("first", 10)
    engine = site.engine(memory=memory)
    engine.start("first", on("localhost"))
    site.until_step(engine, "first", beyond=9)
    suspends(site, engine, "first")
    second = program(site, "job", 20)
    engine.start("job", on("localhost"))
    seen = site.until_state(engine, "job", RunState.PARKED, RunState.FAILED)
    what = "its GPUs had no memory left beside suspended trials: these make room, and it is launched again"
    assert (seen.state, seen.exit) == (RunState.PARKED, what)
    starts(site, engine, driver, "job")
    assert "checkpointed" in [one.state for one in driver.processes.values()]
    site.until_state(engine, "job", RunState.FINISHED)
    assert check_steps(second, Options(iterations=20)) == [1] * 20
    site.release("first")
    starts(site, engine, driver, "first")
    site.until_state(engine, "first", RunState.FINISHED)
    assert check_steps(trace, Options(iterations=20)) == [1] * 20


def test_a_job_without_memory_alone_has_failed(site: Site, driver: Standin) -> None:
    program(site, "job", 20, 17 * GIB)
    engine = site.engine()
    engine.start("job", on("localhost"))
    assert "CUDA out of memory" in site.until_state(engine, "job", RunState.PARKED, RunState.FAILED).exit
    assert engine.report()["job"].state is RunState.FAILED


def test_a_bound_of_memory_needs_the_sizes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        for name in ("host_memory", "gpu_memory"):
            patch.setattr(site, "nodes", (replace(LocalNode("localhost", 1), **{name: 8 * GIB}),))
            with pytest.raises(InputError, match=f"{name}: got"):
                site.engine()


def test_six_trials_of_a_search_take_turns_where_two_fit(
    tmp_path: Path, driver: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    build(driver.root)
    driver.say("wedges")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    search = ScheduleCommand(tmp_path)
    program = ("-m", "tests.support.nvidia.cuda_program", str(6 * GIB))
    search.search(60, 0.02, program, nodes=[{"name": "here", "gpus": 1}], memory="host", prepare=False)
    done = search.run("round-robin")
    assert done.returncode == 0, done.stderr
    until(lambda: not search.jobs(), "supervisors to leave")
    for name in RATES:
        search.check_steps(name, 60)
        assert search.figures()[name]["status"] == "finished"
    results = {call: {result for _, name, result in driver.calls if name == call} for call in CALLS}
    assert set.union(*results.values()) == {0}, "one that is to come back waits until the one that has ended is gone"


def busy_times(directory: Path) -> list[list[float]]:
    """Return when each process computed, in seconds."""
    return [[float(line) for line in path.read_text().split()] for path in directory.iterdir()]


@pytest.mark.skipif(own_namespace() != INITIAL_NAMESPACE, reason="in a container only processes with a GPU open are believed")
@pytest.mark.alone
@pytest.mark.long
def test_a_gpu_is_idle_no_longer_than_memory_moves_where_trials_of_a_search_do_not_fit(
    tmp_path: Path, driver: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    build(driver.root)
    driver.device(0, 80 * GIB)
    seconds = {"checkpoint": 6 / 1.7, "restore": 6 / 4.3}  # at the rates that were measured on an H200
    for call, takes in seconds.items():
        driver.say(f"seconds-per-byte-{call}", takes / (6 * GIB))
    (tmp_path / "busy").mkdir()
    monkeypatch.setenv(BUSY, str(tmp_path / "busy"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    search = ScheduleCommand(tmp_path)
    program = ("-m", "tests.support.nvidia.cuda_program", str(6 * GIB))
    nodes = [{"name": "here", "gpus": 1, "gpu_memory": "16GiB"}]
    search.search(260, 0.0, program, nodes=nodes, memory="auto", prepare=False, poll_s=0.02)
    search.hold(60)
    running = search.start("round-robin", "--set", "quantum_s=7")
    until(search.started, "all to have taken a step")
    search.release()
    output = running.communicate(timeout=TIMEOUT_S)[0]
    assert running.returncode == 0, output
    until(lambda: not search.jobs(), "supervisors to leave")
    for name in RATES:
        search.check_steps(name, 260)
    times = busy_times(tmp_path / "busy")
    begun = max(one[0] for one in times)  # From then on nothing is started any more.
    busy = sum(later - sooner for one in times for sooner, later in pairwise(one) if sooner >= begun and later - sooner < 0.5)
    idle = max(map(max, times)) - begun - busy
    moved = {call: [at for at in driver.ends(call) if at > begun] for call in seconds}
    assert min(map(len, moved.values())) >= 3, "trials take turns"
    assert idle < 1.15 * sum(seconds[call] * len(ends) for call, ends in moved.items())
