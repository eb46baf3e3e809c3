"""`beamer run` as a process: what the command gets and how it ends, and what a real controller knows afterwards."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from beamer.protocol_version import PROTOCOL_VERSION
from beamer.studies.model import StudyStatus, TrialStatus
from beamer.studies.records import TrialRecord
from controller.runtime import Runtime
from tests.support.checkout import ROOT
from tests.support.served_controller import Served, served
from tests.support.tiers import long
from topologies import single

PATIENCE_S = 60.0  # for what must come; nothing is measured by it
ABSENT = "http://127.0.0.1:1"  # nobody listens there
WAITS = "import signal, sys; print('ready', flush=True); signal.pause()"


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(single.build(hosts=2), tmp_path_factory.mktemp("controller") / "journal.db") as running:
        yield running


def environment(url: str, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BEAMER_")}
    none = str(ROOT / "no-agent.sock")  # an agent of this machine is another test's
    return {**kept, "PYTHONPATH": str(ROOT), "BEAMER_URL": url, "BEAMER_AGENT": none, **more}


def command(study: str, *words: str) -> list[str]:
    """Return the command line of a run, whose words are its options, `--` and what is run."""
    return [sys.executable, "-m", "beamer.cli", "run", "--study", study, *words]


def run(url: str, study: str, *words: str, **more: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(command(study, *words), env=environment(url, **more), capture_output=True, timeout=PATIENCE_S)


@contextmanager
def running(url: str, study: str, *words: str, **more: str) -> "Iterator[subprocess.Popen[bytes]]":
    """Start a run that prints a line when its command is ready, and wait for that."""
    with subprocess.Popen(
        command(study, *words), env=environment(url, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def trials(controller: Served, study: str) -> dict[str, TrialRecord]:
    """Return the trials of a study's present run, by name."""
    return controller.ask(lambda runtime: dict(runtime.tracker.studies[study].trials))


def test_a_command_is_a_trial_of_its_study(controller: Served) -> None:
    words = ("--trial", "t", "--workers", "h1", "--milestone", "5", "--milestone", "9", "--budget", "20")
    ended = run(controller.url, "one", *words, "--", sys.executable, "-c", "print('out')")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"out\n", b"")
    study = controller.ask(lambda runtime: runtime.tracker.studies["one"])
    trial = study.trials["t"]
    assert (study.barriers, trial.status, trial.budget) == (False, TrialStatus.FINISHED, 20)
    assert [target.step for target in trial.targets] == [5, 9]
    assert [worker.host for worker in trial.attempt.workers] == ["h1"]


def test_without_an_agent_the_controller_is_told_the_commands_process(controller: Served) -> None:
    code = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    words = ("--trial", "t", "--workers", "h1", "--", sys.executable, "-c", code)
    with subprocess.Popen(command("no-agent", *words), env=environment(controller.url), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())

        def attached(runtime: Runtime) -> bool:
            study = runtime.tracker.studies.get("no-agent")
            attempt = study.trials["t"].attempt if study is not None and "t" in study.trials else None
            return attempt is not None and bool(attempt.processes)

        assert controller.until(attached)
        assert trials(controller, "no-agent")["t"].attempt.processes[0].pid == pid
        process.terminate()


@pytest.mark.parametrize(
    ("code", "status"),
    [("", TrialStatus.FINISHED), ("raise SystemExit(7)", TrialStatus.FAILED), ("os.abort()", TrialStatus.FAILED)],
)
def test_it_ends_as_its_command_ends(controller: Served, code: str, status: TrialStatus) -> None:
    alone = subprocess.run([sys.executable, "-c", f"import os\n{code}"], capture_output=True, timeout=PATIENCE_S)
    study = f"ends-{status}-{alone.returncode % 256}"
    ended = run(controller.url, study, "--trial", "t", "--workers", "h1", "--", sys.executable, "-c", f"import os\n{code}")
    assert (ended.returncode, ended.stdout, ended.stderr) == (alone.returncode, alone.stdout, alone.stderr)
    assert trials(controller, study)["t"].status is status


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT])
def test_a_signal_that_it_is_sent_reaches_the_command(controller: Served, number: signal.Signals) -> None:
    study = f"signal-{number.name}"
    code = (
        f"import resource, signal; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); signal.signal({int(number)}, 0); {WAITS}"
    )
    with running(controller.url, study, "--trial", "t", "--workers", "h1", "--", sys.executable, "-c", code) as process:
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == -number
    stopped = number in (signal.SIGINT, signal.SIGTERM)
    assert trials(controller, study)["t"].status is (TrialStatus.KILLED if stopped else TrialStatus.FAILED)


def test_a_command_may_go_on_after_a_signal(controller: Served) -> None:
    code = "import signal; signal.pthread_sigmask(0, [10]); print('ready', flush=True); signal.sigwait([10]); print('again')"
    with running(controller.url, "goes-on", "--trial", "t", "--workers", "h1", "--", sys.executable, "-c", code) as process:
        process.send_signal(signal.SIGUSR1)
        assert process.stdout is not None
        assert process.stdout.readline() == b"again\n"
        assert process.wait(PATIENCE_S) == 0
    assert trials(controller, "goes-on")["t"].status is TrialStatus.FINISHED


def test_a_lease_is_of_the_trial_that_is_found_later(controller: Served, tmp_path: Path) -> None:
    asked: list[dict[str, object]] = []
    with agent(tmp_path / "agent.sock", asked) as path, slowed(controller, 0.2) as url:
        words = ("--trial", "t", "--workers", "h1", "--", "sleep", "4")
        with running(controller.url, "leased", "--trial", "a", "--workers", "h1", "--", sys.executable, "-c", WAITS) as other:
            assert controller.until(lambda runtime: "leased" in runtime.tracker.studies)
            run(controller.url, "leased", "--trial", "t", "--workers", "h1", "--", "true")
            assert run(url, "leased", *words, BEAMER_AGENT=path).returncode == 0
            other.terminate()
            other.wait(PATIENCE_S)
    assert [(one["trial"], one.get("run")) for one in asked] == [("t", None), ("t.2", "run")]
    assert trials(controller, "leased")["t.2"].status is TrialStatus.FINISHED


@contextmanager
def agent(path: Path, asked: list[dict[str, object]]) -> Iterator[str]:
    """Yield where an agent listens that takes every lease and notes what it was asked for."""

    def serve() -> None:
        with suppress(OSError):  # It is shut down.
            while True:
                lease = listening.accept()[0]
                leases.append(lease)
                asked.append(json.loads(lease.makefile().readline()))
                lease.sendall(b'{"attached": true, "agent": "one", "protocol": %d}\n' % PROTOCOL_VERSION)

    leases: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield str(path)
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_S)
            for lease in leases:
                lease.close()


def test_the_command_is_told_who_it_is(controller: Served) -> None:
    code = "import json, os; print(json.dumps({n: v for n, v in os.environ.items() if n.startswith('BEAMER_')}))"
    ended = run(controller.url, "told", "--workers", "h1", "--", sys.executable, "-c", code)
    told = json.loads(ended.stdout)
    study = controller.ask(lambda runtime: runtime.tracker.studies["told"])
    assert told["BEAMER_STUDY"] == "told"
    assert told["BEAMER_RUN"] == study.run
    assert told["BEAMER_URL"] == controller.url
    assert list(study.trials) == [told["BEAMER_TRIAL"]]
    assert ended.stderr.decode() == f"beamer run: trial {told['BEAMER_TRIAL']} of study told\n"


def test_a_program_that_uses_the_client_takes_part_in_the_same_trial(controller: Served) -> None:
    code = (
        "import os; from beamer.client import Client\n"
        "with Client() as client: client.trial(os.environ['BEAMER_STUDY'], os.environ['BEAMER_TRIAL']).progress(3, 0.5)"
    )
    run(controller.url, "takes-part", "--trial", "t", "--workers", "h1", "--", sys.executable, "-c", code)
    trial = trials(controller, "takes-part")["t"]
    assert (trial.done, trial.loss, trial.status) == (3, 0.5, TrialStatus.FINISHED)


def test_commands_of_a_study_share_its_run_and_a_name_that_is_taken_gets_a_number(controller: Served) -> None:
    with running(controller.url, "shared", "--trial", "a", "--workers", "h1", "--", sys.executable, "-c", WAITS) as first:
        controller.until(lambda runtime: "shared" in runtime.tracker.studies)
        for _ in range(2):
            run(controller.url, "shared", "--trial", "b", "--workers", "h2", "--", "false")
        statuses = {name: trial.status for name, trial in trials(controller, "shared").items()}
        assert statuses == {"a": TrialStatus.RUNNING, "b": TrialStatus.FAILED, "b.2": TrialStatus.FAILED}
        first.terminate()
        first.wait(PATIENCE_S)


def test_commands_that_are_started_together_are_trials_of_one_run(controller: Served) -> None:
    for begun in ("run", "run.2"):
        words = [command("together", "--trial", f"t{i}", "--workers", "h1", "--", "sleep", "1.5") for i in range(4)]
        processes = [subprocess.Popen(one, env=environment(controller.url), stderr=subprocess.PIPE) for one in words]
        for process in processes:
            assert process.communicate(timeout=PATIENCE_S)[1] == b""
            assert process.returncode == 0
        study = controller.ask(lambda runtime: runtime.tracker.studies["together"])
        assert (study.run, study.status) == (begun, StudyStatus.ENDED)
        assert {name: trial.status for name, trial in study.trials.items()} == dict.fromkeys(
            ("t0", "t1", "t2", "t3"), TrialStatus.FINISHED
        )


def test_bytes_and_exit_codes_are_the_commands_without_a_controller() -> None:
    code = "import os, sys; data = sys.stdin.buffer.read(); os.write(1, data[::-1]); os.write(2, b'err'); os._exit(3)"
    data = bytes(range(256)) * 1000
    ended = subprocess.run(
        command("s", "--trial", "t", "--", sys.executable, "-c", code),
        env=environment(ABSENT), input=data, capture_output=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (3, data[::-1])
    assert ended.stderr.startswith(b"err") or ended.stderr.endswith(b"err")
    assert ended.stderr.replace(b"err", b"").count(b"\n") == 1
    assert b"does not answer" in ended.stderr


def test_a_controller_that_comes_later_is_told_then(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ("--trial", "t", "--workers", "h1", "--", sys.executable, "-c", WAITS)
    with running(f"http://127.0.0.1:{port}", "later", *words) as process:
        with served(single.build(hosts=2), tmp_path / "journal.db", port=port) as controller:
            assert controller.until(lambda runtime: bool(getattr(runtime.tracker.studies.get("later"), "trials", None)))
            process.terminate()
            assert process.wait(PATIENCE_S) == -signal.SIGTERM
            assert trials(controller, "later")["t"].status is TrialStatus.KILLED
        assert process.stderr is not None
        assert process.stderr.read().count(b"\n") <= 1


def test_a_controller_that_takes_long_to_answer_is_told(controller: Served) -> None:
    with slowed(controller, 0.2) as url:
        ended = run(url, "slow", "--trial", "t", "--workers", "h1", "--", "sleep", "4")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert trials(controller, "slow")["t"].status is TrialStatus.FINISHED


@contextmanager
def slowed(controller: Served, delay_s: float) -> Iterator[str]:
    """Yield the URL of a proxy before the controller that hands each piece on later than it came."""

    async def hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await asyncio.sleep(delay_s)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection(*controller.address)
        await asyncio.gather(hand_on(reader, behind_writer), hand_on(behind_reader, writer))

    async def serve() -> asyncio.Server:
        return await asyncio.start_server(connected, "127.0.0.1", 0)

    server = asyncio.run_coroutine_threadsafe(serve(), controller.loop).result(PATIENCE_S)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        controller.loop.call_soon_threadsafe(server.close)


def test_a_controller_that_hangs_changes_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        ended = run(url, "s", "--trial", "t", "--", sys.executable, "-c", "print('out'); raise SystemExit(4)")
    assert (ended.returncode, ended.stdout) == (4, b"out\n")
    assert ended.stderr.count(b"\n") == 1


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("/", 126)])
def test_what_cannot_be_run_ends_as_under_env(controller: Served, program: str, code: int) -> None:
    ended = run(controller.url, "not-run", "--trial", "t", "--workers", "h1", "--", program)
    assert ended.returncode == subprocess.run(["env", program], capture_output=True).returncode == code
    assert ended.stderr.decode().startswith(f"beamer run: {program}: ")
    assert controller.ask(lambda runtime: "not-run" not in runtime.tracker.studies)


def test_wrong_options_are_refused_before_anything_runs(tmp_path: Path) -> None:
    made = tmp_path / "made"
    for words in (("--bad", "1"), ("--rank", "1"), ("--milestone", "0"), ("--workers", "a,b")):
        ended = run(ABSENT, "s", *words, "--", "touch", str(made))
        assert (ended.returncode, ended.stdout) == (2, b"")
        assert words[0].encode() in ended.stderr or b"--trial" in ended.stderr
    assert not made.exists()


def test_it_can_be_killed_and_the_command_runs_on(controller: Served, tmp_path: Path) -> None:
    code = f"import os, signal; print(os.getpid(), flush=True); signal.sigwait([10]); open({str(tmp_path / 'on')!r}, 'w')"
    code = f"import signal; signal.pthread_sigmask(0, [10]); {code}"
    words = ("--trial", "t", "--workers", "h1", "--", sys.executable, "-c", code)
    process = subprocess.Popen(command("killed", *words), env=environment(controller.url), stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
        process.wait(PATIENCE_S)
        os.kill(pid, signal.SIGUSR1)
        deadline = time.monotonic() + PATIENCE_S
        while not (tmp_path / "on").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_an_interrupt_before_the_command_is_there_ends_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        words = command("s", "--trial", "t", "--", "touch", str(tmp_path / "made"))
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        with subprocess.Popen(words, env=environment(url), process_group=0, stderr=subprocess.PIPE) as process:
            with hanging.accept()[0]:  # The study is being read.
                os.killpg(process.pid, signal.SIGINT)
                assert process.wait(PATIENCE_S) == -signal.SIGINT
            assert process.stderr is not None
            assert process.stderr.read() == b""
    assert not (tmp_path / "made").exists()


def test_a_command_that_is_killed_itself_is_killed(controller: Served) -> None:
    words = ("--trial", "t", "--workers", "h1", "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 15)")
    assert run(controller.url, "itself", *words).returncode == -signal.SIGTERM
    assert trials(controller, "itself")["t"].status is TrialStatus.KILLED


def test_a_script_without_an_interpreter_is_run_by_the_shell(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('echo "$0" "$1"\n')
    script.chmod(0o755)
    for name in (str(script), "script"):
        more = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        ended = run(ABSENT, "s", "--trial", "t", "--", name, "one", **more)
        assert (ended.returncode, ended.stdout.decode()) == (0, f"{script} one\n")


@pytest.mark.parametrize("progress", ["", "--progress plain"])
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_outputs_stay_closed(tmp_path: Path, closed: str, progress: str) -> None:
    told = tmp_path / "told"
    seen = "[os.path.exists(f'/proc/self/fd/{i}') for i in range(3)]"
    code = f"import os; seen = {seen}; open({str(told)!r}, 'w').write(str(seen)); os.kill(os.getpid(), 9)"
    line = f'exec "$0" -m beamer.cli run --study s --trial t {progress} -- "$0" -c "$1" {closed}'
    ended = subprocess.run(
        ["sh", "-c", line, sys.executable, code], env=environment(ABSENT), capture_output=True, timeout=PATIENCE_S
    )
    assert (ended.returncode, ended.stdout) == (-9, b"")
    assert b"Traceback" not in ended.stderr
    seen_under_run = told.read_text()
    subprocess.run(["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, code], capture_output=True)
    assert seen_under_run == told.read_text()


def test_the_command_runs_without_a_process_file_system(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("no namespaces of one's own are to be had")
    line = 'mount -t tmpfs none /proc && exec "$0" -m beamer.cli run --study s --trial t -- sh -c "echo out; exit 5"'
    ended = subprocess.run(
        ["unshare", "-rm", "sh", "-c", line, sys.executable], env=environment(ABSENT), capture_output=True, timeout=PATIENCE_S
    )
    assert (ended.returncode, ended.stdout) == (5, b"out\n")
    assert b"Traceback" not in ended.stderr


TORCH_TRAINER = """
import os, sys, torch
from torch import distributed
distributed.init_process_group("gloo")
total = torch.ones(1)
for step in range(1, 4):
    distributed.all_reduce(total)
    if distributed.get_rank() == 0:
        print(f"step {step} loss {1 / step}", flush=True)
distributed.destroy_process_group()
sys.exit(int(sys.argv[1]) if int(os.environ["RANK"]) == 1 else 0)
"""


@pytest.mark.parametrize(("code", "status"), [*long((0, TrialStatus.FINISHED)), (3, TrialStatus.FAILED)])
def test_torchrun_with_two_processes(controller: Served, tmp_path: Path, code: int, status: TrialStatus) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    (tmp_path / "train.py").write_text(TORCH_TRAINER)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    words = ("--workers", "h1", "--budget", "3", "--progress", "plain", "--", *torchrun, str(tmp_path / "train.py"), str(code))
    ended = subprocess.run(
        command(f"torch-{code}", *words), env=environment(controller.url, OMP_NUM_THREADS="1"), capture_output=True, timeout=240
    )
    assert ended.returncode == (1 if code else 0), ended.stderr.decode()
    assert ended.stdout == b"".join(f"step {step} loss {1 / step}\n".encode() for step in (1, 2, 3))
    ((name, trial),) = trials(controller, f"torch-{code}").items()
    assert name.startswith("train-")
    assert (trial.status, trial.done, trial.loss) == (status, 3, 1 / 3)
