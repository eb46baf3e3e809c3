"""Run-queue delay: what is added up, by part of a run, and that the kernel's real counts are read."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from topologies.emulation import run_queue
from topologies.emulation.run_queue import DelayMeter, ProcessorTime, Thread

# A busy loop on one processor, and a process that has one for its child.
BUSY = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True)\nwhile True: pass"
PARENT = "import subprocess, sys; print(flush=True); subprocess.run([sys.executable, *sys.argv[1:]])"

counted = pytest.mark.skipif(not run_queue.is_counted(), reason="this kernel does not count run-queue delay")


class Counts:
    """Stands for the kernel: the counts that a reading returns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: dict[Thread, ProcessorTime] = {}
        monkeypatch.setattr(run_queue, "read", lambda pid: {t: time for t, time in self.of.items() if t[0] == pid})


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    return Counts(monkeypatch)


def test_the_share_is_of_the_time_with_work() -> None:
    assert ProcessorTime(300, 100).waiting_share == 0.25
    assert ProcessorTime(0, 0).waiting_share == 0.0
    assert ProcessorTime(0, 5).waiting_share == 1.0


def test_what_was_before_the_first_sample_is_left_out(counts: Counts) -> None:
    meter, own = DelayMeter(lambda: {os.getpid(): "part"}), os.getpid()
    counts.of = {(own, 1): ProcessorTime(1000, 1000)}
    meter.sample()
    assert meter.totals == {}
    counts.of = {(own, 1): ProcessorTime(1030, 1010), (own, 2): ProcessorTime(5, 1)}
    meter.sample()
    assert meter.totals == {"part": ProcessorTime(35, 11)}


def test_a_thread_that_has_ended_keeps_what_it_had_and_its_id_may_return(counts: Counts) -> None:
    meter, own = DelayMeter(lambda: {os.getpid(): "part"}), os.getpid()
    meter.sample()
    for now in ({(own, 1): ProcessorTime(50, 20)}, {}, {(own, 1): ProcessorTime(3, 4)}):
        counts.of = now
        meter.sample()
    assert meter.totals == {"part": ProcessorTime(53, 24)}
    counts.of = {(own, 1): ProcessorTime(1, 1)}  # another thread already, the counts say
    meter.sample()
    assert meter.totals == {"part": ProcessorTime(54, 25)}


def test_a_part_that_is_started_again_is_measured_from_its_start(counts: Counts) -> None:
    parts = {os.getpid(): "part"}
    meter = DelayMeter(lambda: parts)
    meter.sample()
    counts.of = {(os.getpid(), 1): ProcessorTime(50, 20)}
    meter.sample()
    with subprocess.Popen(["sleep", "60"]) as restarted:
        parts = {restarted.pid: "part"}
        counts.of = {(restarted.pid, 1): ProcessorTime(7, 3)}
        meter.sample()
        restarted.kill()
    assert meter.totals == {"part": ProcessorTime(57, 23)}


@contextmanager
def _busy(cpu: int, *before: str) -> Iterator[int]:
    command = [sys.executable, *before, "-c", BUSY, str(cpu)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@counted
def test_processes_that_share_a_processor_wait_about_as_long_as_they_run() -> None:
    cpu = min(os.sched_getaffinity(0))
    with ExitStack() as stack:
        pids = [stack.enter_context(_busy(cpu, *before)) for before in ((), (), ("-c", PARENT))]
        meter = DelayMeter(lambda: {pids[0]: "one", pids[2]: "forked"})
        for _ in range(4):
            meter.sample()
            time.sleep(0.3)
    for part in ("one", "forked"):  # each of the three has a third of the processor, or less
        assert meter.totals[part].running_ns > 0
        assert 0.4 < meter.totals[part].waiting_share < 1


@counted
def test_a_process_that_sleeps_neither_runs_nor_waits() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        while not re.search(r"^Name:\tsleep\n(?:.*\n)*State:\tS", Path(f"/proc/{process.pid}/status").read_text("utf-8")):
            time.sleep(0.01)
        meter = DelayMeter(lambda: {process.pid: "sleeping"})
        for _ in range(3):
            meter.sample()
            time.sleep(0.1)
        process.kill()
    assert meter.totals.get("sleeping", ProcessorTime()) == ProcessorTime()


def test_a_process_that_is_gone_has_no_counts() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    assert run_queue.read(process.pid) == {}
