"""Whatever ends an emulation, nothing of it stays; and cleaning touches nothing else."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from beamer.errors import EmulationError
from tests.emulation.conftest import SMALL
from tests.emulation.leftovers import NAMESPACES, RUNS, Leftovers, interfaces, launched, leftovers
from tests.support.tiers import long
from topologies.emulation.exchange import RunConfig
from topologies.emulation.supervisor import emulated_run

pytestmark = [pytest.mark.emulation, pytest.mark.alone]

HOSTS = 4
INT, TERM = signal.SIGINT, signal.SIGTERM

# How far a run has come, by what the machine shows of it.
MOMENTS: dict[str, Callable[[str], bool]] = {
    "recorded": lambda name: True,
    "namespace": lambda name: (NAMESPACES / f"beamer-{name}").exists(),
    "switches": lambda name: (RUNS / name / "ovs" / "ovs-vswitchd.pid").exists(),
    "controller": lambda name: (RUNS / name / "beamer-controller.log").exists(),
    "training": lambda name: launched(name) > HOSTS,
}


class Emulation:
    """A `beamer emulate` of this test, identified by the process that its run file names."""

    def __init__(self, temporary: Path) -> None:
        self.temporary = temporary
        self.process = subprocess.Popen(
            [sys.executable, "-m", "beamer.cli", "emulate", str(SMALL), "--policies", "beamer"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(temporary)},
            start_new_session=True,
        )
        self.name = ""

    def wait_until(self, moment: str, patience_s: float = 90.0) -> Leftovers:
        """Wait until the run has come to `moment`; return what there is of it then."""
        deadline = time.monotonic() + patience_s
        while not (self._recorded() and MOMENTS[moment](self.name)):
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline, f"the run did not come to {moment!r}"
            time.sleep(0.05)
        return leftovers(self.name)

    def end(self) -> str:
        """Wait for the command's end and return what it printed."""
        return self.process.communicate(timeout=60)[0]

    def _recorded(self) -> bool:
        owner = f'"owner": {self.process.pid},'
        for path in () if self.name else RUNS.glob("*.json"):
            try:
                self.name = path.stem if owner in path.read_text() else ""
            except FileNotFoundError:  # somebody else's, gone since
                continue
            if self.name:
                break
        return bool(self.name)

    def assert_gone(self, before: Leftovers) -> None:
        """Assert that nothing is left of the run of which `before` was seen."""
        assert not leftovers(self.name, before.namespaces)
        assert not list(self.temporary.iterdir())


@pytest.fixture
def emulation(tmp_path: Path) -> Iterator[Emulation]:
    """An emulation that has just been started; the machine's own interfaces are the same after it."""
    before = interfaces()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    started = Emulation(temporary)
    yield started
    if started.process.poll() is None:
        started.process.terminate()
        started.process.communicate(timeout=60)
    assert interfaces() == before


def _clean() -> str:
    command = [sys.executable, "-m", "beamer.cli", "clean"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@contextmanager
def _bystander() -> Iterator[None]:
    """A namespace with a queue and a process in it that look like a run's, but that no run file names."""
    name = f"beamer-t{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    process = subprocess.Popen(["ip", "netns", "exec", name, "sleep", "300"], env={**os.environ, "BEAMER_RUN": name})
    try:
        subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "lo", "root", "htb"], check=True)
        yield
        assert process.poll() is None, "cleaning ended somebody else's process"
        queues = ["ip", "netns", "exec", name, "tc", "qdisc", "show", "dev", "lo"]
        assert "htb" in subprocess.run(queues, capture_output=True, text=True, check=True).stdout
    finally:
        process.kill()
        process.wait()
        subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.parametrize(
    ("signs", "moment"),
    [
        ((INT, TERM, INT), "training"),
        *long(((INT,), "recorded"), ((TERM,), "namespace"), ((INT,), "switches"), ((TERM,), "controller")),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(sign.name for sign in value),
)
def test_a_signal_at_any_moment_leaves_nothing(emulation: Emulation, signs: tuple[signal.Signals, ...], moment: str) -> None:
    before = emulation.wait_until(moment)
    assert before
    for sign in signs:  # those that follow the first arrive while everything is being removed
        emulation.process.send_signal(sign)
        time.sleep(0.05)
    output = emulation.end()
    assert emulation.process.returncode in {128 + sign for sign in signs}, output
    assert "Traceback" not in output
    emulation.assert_gone(before)


@pytest.mark.parametrize("moment", ["training", *long("namespace")])
def test_clean_repairs_after_sigkill_and_touches_nothing_else(emulation: Emulation, moment: str) -> None:
    with _bystander():
        before = emulation.wait_until(moment)
        alive = _clean()
        assert f"run {emulation.name} belongs to process {emulation.process.pid}" in alive
        assert emulation.process.poll() is None, "cleaning ended a run that its owner looks after"
        before = leftovers(emulation.name, before.namespaces)
        assert before.files
        emulation.process.kill()
        emulation.end()
        assert leftovers(emulation.name).files == before.files
        assert f"removed run {emulation.name}" in _clean()
        emulation.assert_gone(before)
        assert emulation.name not in _clean()


def test_a_run_whose_main_process_dies_ends_with_one_line_and_leaves_nothing(emulation: Emulation) -> None:
    before = emulation.wait_until("controller")
    os.kill(_main_process(emulation), signal.SIGKILL)
    output = emulation.end()
    assert emulation.process.returncode == 1
    assert "beamer: the run's main process ended" in output
    assert "Traceback" not in output
    emulation.assert_gone(before)


def test_a_part_that_cannot_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"t{os.getpid()}"
    monkeypatch.setattr("topologies.emulation.supervisor.secrets.token_hex", lambda _: name)
    with (
        pytest.raises(EmulationError, match="beamer-controller ended with status 2"),
        emulated_run(RunConfig(SMALL, "no-such-policy")),
    ):
        pass
    assert not leftovers(name)


def _main_process(emulation: Emulation) -> int:
    """Return the only child of the command: what that has just forked still has its command line, but not its parent."""
    parent = f"PPid:\t{emulation.process.pid}\n"
    for pid in leftovers(emulation.name).processes:
        with suppress(OSError):  # one that has ended since
            if parent in Path(f"/proc/{pid}/status").read_text():
                return pid
    raise AssertionError("the run has no main process")
