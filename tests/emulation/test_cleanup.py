"""Whatever ends an emulation, nothing of it stays; and cleaning touches nothing else."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulation.conftest import SMALL
from topologies.emulation.runfile import RUNS

pytestmark = pytest.mark.emulation


def _traces() -> tuple[set[str], set[str], set[str], set[str]]:
    """Return namespaces, interfaces, processes of runs and run files that exist now."""
    namespaces = {path.name for path in Path("/run/netns").glob("beamer-*")} if Path("/run/netns").exists() else set()
    interfaces = set(os.listdir("/sys/class/net"))
    processes = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if b"BEAMER_RUN=" in (entry / "environ").read_bytes():
                    processes.add(entry.name)
            except OSError:
                continue
    files = {path.name for path in RUNS.iterdir()} if RUNS.exists() else set()
    return namespaces, interfaces, processes, files


def _emulate() -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "beamer.cli", "emulate", str(SMALL), "--policies", "beamer"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)


def _await_run(before: set[str], process: "subprocess.Popen[str]") -> str:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        for path in RUNS.glob("*.json"):
            if path.name not in before:
                return path.stem
        time.sleep(0.01)
    raise AssertionError(f"no run was recorded: {process.communicate()[0]}")


@pytest.fixture
def bystander() -> Iterator[str]:
    """A namespace and a process in it that belong to somebody else."""
    subprocess.run(["ip", "netns", "add", "bystander-t"], check=True)
    process = subprocess.Popen(["ip", "netns", "exec", "bystander-t", "sleep", "120"])
    yield "bystander-t"
    assert process.poll() is None, "cleaning ended somebody else's process"
    process.terminate()
    process.wait()
    subprocess.run(["ip", "netns", "del", "bystander-t"], check=True)


@pytest.mark.parametrize(("sign", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("after_s", [0.0, 0.4, 1.5, 4.0, 9.0])
def test_a_signal_at_any_moment_leaves_nothing(sign: signal.Signals, status: int, after_s: float) -> None:
    before = _traces()
    process = _emulate()
    _await_run(before[3], process)
    time.sleep(after_s)
    process.send_signal(sign)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == status, output
    assert _traces() == before


def test_clean_repairs_after_sigkill_and_touches_nothing_else(bystander: str) -> None:
    before = _traces()
    process = _emulate()
    name = _await_run(before[3], process)
    time.sleep(4)
    process.kill()
    process.communicate(timeout=10)
    assert _traces() != before
    cleaned = subprocess.run(
        [sys.executable, "-m", "beamer.cli", "clean"], capture_output=True, text=True, timeout=60, check=True
    )
    assert f"removed run {name}" in cleaned.stdout
    assert _traces() == before
    assert (Path("/run/netns") / bystander).exists()


def test_clean_leaves_a_living_run_alone() -> None:
    before = _traces()
    process = _emulate()
    name = _await_run(before[3], process)
    cleaned = subprocess.run(
        [sys.executable, "-m", "beamer.cli", "clean"], capture_output=True, text=True, timeout=60, check=True
    )
    assert f"run {name} belongs to process {process.pid}" in cleaned.stdout
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert _traces() == before
