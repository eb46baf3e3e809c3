"""`beamer run --progress`, on pipes and terminals, and what shells and terminals see of it with and without."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamer.studies.model import TrialStatus
from tests.processes.test_run_command import ABSENT, PATIENCE_S, command, environment, run, trials
from tests.support.served_controller import Served, served
from tests.support.terminals import Terminal
from topologies import single

PRINTED = Path(__file__).parents[1] / "unit" / "engines" / "local" / "printed"
CAT = "import os, sys; data = open(sys.argv[1], 'rb').read(); os.write(1, data)"


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(single.build(hosts=2), tmp_path_factory.mktemp("controller") / "journal.db") as running:
        yield running


@pytest.mark.parametrize(
    ("name", "progress", "step", "loss"),
    [("tqdm", "tqdm", 60, 0.249), ("hf", "hf", 48, 0.01645), ("tqdm-bare", "tqdm", 40, None)],
)
def test_progress_is_reported_and_the_output_is_the_same(
    controller: Served, name: str, progress: str, step: int, loss: float | None
) -> None:
    file = PRINTED / f"{name}.pipe.txt"
    words = ("--trial", "t", "--workers", "h1", "--progress", progress, "--", sys.executable, "-c", CAT, str(file))
    ended = run(controller.url, f"reads-{name}", *words)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, file.read_bytes(), b"")
    trial = trials(controller, f"reads-{name}")["t"]
    assert (trial.done, trial.loss, trial.status) == (step, loss, TrialStatus.FINISHED)


def test_a_pattern_of_the_users_is_read_and_milestones_are_reached(controller: Served) -> None:
    code = "import sys\nfor i in range(1, 8): print(f'<{i}> {1 / i}', file=sys.stderr)"
    words = ("--trial", "t", "--workers", "h1", "--milestone", "5", "--progress", r"<(?P<iteration>\d+)> (?P<loss>\S+)")
    ended = run(controller.url, "pattern", *words, "--", sys.executable, "-c", code)
    assert ended.stderr.count(b"\n") == 7
    trial = trials(controller, "pattern")["t"]
    assert (trial.done, trial.loss) == (7, 1 / 7)
    assert trial.targets[0].reached_s is not None


@pytest.mark.parametrize("progress", [(), ("--progress", "plain")])
def test_outputs_are_the_commands_byte_for_byte(progress: tuple[str, ...]) -> None:
    code = "import os\nfor _ in range(100):\n os.write(1, bytes(range(256)) * 64)\n os.write(2, b'e')\nos._exit(9)"
    ended = run(ABSENT, "s", "--trial", "t", *progress, "--", sys.executable, "-c", code)
    assert (ended.returncode, ended.stdout) == (9, bytes(range(256)) * 6400)
    assert ended.stderr.count(b"e") >= 100


@pytest.mark.parametrize("progress", [(), ("--progress", "plain")])
def test_both_outputs_to_one_file_keep_their_order(tmp_path: Path, progress: tuple[str, ...]) -> None:
    code = "import os\nfor i in range(500): os.write(1 + i % 2, b'%d\\n' % i)"
    with open(tmp_path / "out", "wb") as file:
        words = command("s", "--trial", "t", *progress, "--", sys.executable, "-c", code)
        subprocess.run(words, env=environment(ABSENT), stdout=file, stderr=file, timeout=PATIENCE_S, check=True)
    numbers = [line for line in (tmp_path / "out").read_text().splitlines() if line.isdigit()]
    assert numbers == [str(i) for i in range(500)]


@pytest.mark.parametrize("progress", [(), ("--progress", "tqdm")])
def test_a_command_ends_when_nobody_reads_its_output(progress: tuple[str, ...]) -> None:
    words = command("s", "--trial", "t", *progress, "--", "yes")
    with subprocess.Popen(words, env=environment(ABSENT), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.read(1000)
        process.stdout.close()
        assert process.wait(PATIENCE_S) == -signal.SIGPIPE


@pytest.mark.parametrize("progress", [(), ("--progress", "tqdm")])
def test_a_terminal_stays_one(progress: tuple[str, ...]) -> None:
    code = (
        "import os, signal, sys\nprint(*map(os.isatty, range(3)), flush=True)\n"
        "signal.signal(signal.SIGWINCH, lambda *_: print(*os.get_terminal_size(1), flush=True))\n"
        "print('ready', flush=True)\nprint(sys.stdin.readline())"
    )
    with Terminal(command("s", "--trial", "t", *progress, "--", sys.executable, "-c", code), environment(ABSENT)) as terminal:
        assert terminal.until("ready")
        assert "True True True" in terminal.read
        terminal.resize(20, 66)
        assert terminal.until("66 20")
        terminal.press("typed\n")
        assert terminal.ended() == 0
        assert terminal.read.count("typed\r\n") == 2  # as it is echoed, and as the command prints it


@pytest.mark.parametrize("progress", [(), ("--progress", "tqdm")])
def test_an_interrupt_from_the_terminal_arrives_once(controller: Served, progress: tuple[str, ...]) -> None:
    study = f"interrupt-{len(progress)}"
    code = (
        "import signal, time\nseen = []\nsignal.signal(2, lambda *_: seen.append(1))\nprint('ready', flush=True)\n"
        "while not seen: time.sleep(0.01)\ntime.sleep(0.5)\nprint('seen', len(seen), flush=True)\nraise SystemExit(3)"
    )
    words = command(study, "--trial", "t", "--workers", "h1", *progress, "--", sys.executable, "-c", code)
    with Terminal(words, environment(controller.url)) as terminal:
        assert terminal.until("ready")
        terminal.press("\x03")
        assert terminal.until("seen 1")
        assert terminal.ended() == 3
    assert trials(controller, study)["t"].status is TrialStatus.KILLED


COUNTS = (
    "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [15])\nprint('ready', flush=True)\nsignal.sigwait([15])\n"
    "print('again' if signal.sigtimedwait([15], 1.0) else 'once', flush=True)"
)


@pytest.mark.parametrize("to_group", [False, True])
def test_a_signal_arrives_once_whether_it_is_sent_to_the_group_or_to_the_process(to_group: bool) -> None:
    words = command("s", "--trial", "t", "--", sys.executable, "-c", COUNTS)
    with subprocess.Popen(words, env=environment(ABSENT), stdout=subprocess.PIPE, process_group=0) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        (os.killpg if to_group else os.kill)(process.pid, signal.SIGTERM)
        assert process.stdout.readline() == b"once\n"
        assert process.wait(PATIENCE_S) == 0


def test_a_signal_to_all_processes_of_its_name_arrives() -> None:
    words = command("by-name", "--trial", "t", "--", sys.executable, "-c", COUNTS)
    with subprocess.Popen(words, env=environment(ABSENT), stdout=subprocess.PIPE, process_group=0) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        named = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and b"by-name" in cmdline(pid)]
        for pid in named:
            os.kill(pid, signal.SIGTERM)
        assert process.stdout.readline() == b"once\n"
        assert process.wait(PATIENCE_S) == 0


def cmdline(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # The process has ended.
        return b""


@pytest.mark.parametrize("progress", ["", "--progress tqdm"])
def test_a_shell_stops_and_continues_it_as_a_job(progress: str) -> None:
    code = "import time\nprint('ready', flush=True)\nfor i in range(3000): time.sleep(0.01)"
    run_it = f'{sys.executable} -m beamer.cli run --study s --trial t {progress} -- {sys.executable} -c "$CODE"'
    env = environment(ABSENT, CODE=code, PS1="$ ", PS2="", RUN=run_it)
    with Terminal(["bash", "--norc", "--noprofile", "-i"], env) as terminal:
        terminal.press('eval "$RUN"; echo "status: $?"\n')
        assert terminal.until("ready")
        terminal.press("\x1a")
        assert terminal.until("Stopped")
        terminal.press("jobs; fg\n")
        assert terminal.until("fg\r\n")
        time.sleep(0.5)
        terminal.press("\x03")
        assert terminal.until("KeyboardInterrupt")
        terminal.press('echo "after: $?"; exit\n')
        assert terminal.until("after: 130")
        terminal.ended()


@pytest.mark.parametrize("number", [signal.SIGCONT, signal.SIGWINCH])
def test_what_a_group_is_told_is_not_told_again(number: signal.Signals) -> None:
    code = COUNTS.replace("15", str(int(number)))
    words = command("s", "--trial", "t", "--", sys.executable, "-c", code)
    with subprocess.Popen(words, env=environment(ABSENT), stdout=subprocess.PIPE, process_group=0) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        os.killpg(process.pid, number)
        assert process.stdout.readline() == b"once\n"
        assert process.wait(PATIENCE_S) == 0


def test_a_slow_reader_gets_all_that_the_command_has_printed() -> None:
    words = command("s", "--trial", "t", "--progress", "plain", "--", sys.executable, "-c", "print('x' * 120_000)")
    with subprocess.Popen(words, env=environment(ABSENT), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        time.sleep(4)
        assert len(process.stdout.read()) == 120_001
        assert process.wait(PATIENCE_S) == 0


def test_an_interrupt_ends_the_wait_for_a_reader_that_does_not_read() -> None:
    words = command("s", "--trial", "t", "--progress", "plain", "--", sys.executable, "-c", "print('x' * 120_000)")
    with subprocess.Popen(words, env=environment(ABSENT), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        time.sleep(3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def test_what_outlives_the_command_is_not_waited_for() -> None:
    words = command("s", "--trial", "t", "--progress", "plain", "--", "sh", "-c", "sleep 50 & echo $!")
    with subprocess.Popen(words, env=environment(ABSENT), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert process.wait(PATIENCE_S / 2) == 0
        os.kill(pid, signal.SIGTERM)


def test_json_that_is_no_step_is_named_once_and_hides_no_progress(controller: Served) -> None:
    lines = ('{"samples": 640, "loss": 1}', '{"iteration": 1e300, "loss": 1}', '{"iteration": 2.5, "loss": 1}')
    code = "\n".join(f"print({line!r})" for line in (*lines, '{"iteration": 3, "loss": 0.5}'))
    words = ("--trial", "t", "--workers", "h1", "--progress", "json", "--", sys.executable, "-c", code)
    ended = run(controller.url, "no-steps", *words)
    assert ended.stderr.count(b"\n") == 1
    assert b"samples" in ended.stderr
    trial = trials(controller, "no-steps")["t"]
    assert (trial.done, trial.loss) == (3, 0.5)
