"""The client: what it sends, in which order, and that training neither waits for it nor fails by it."""

import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest

from beamer.client import RUN_VARIABLE, Client, lease, outbox, refusals
from beamer.client.forking import RUNNING
from beamer.client.transport import Answer, Transport
from beamer.client.urls import controller_urls
from beamer.errors import InputError
from beamer.ports import HTTP_PORT
from beamer.studies.model import Role, Rung, Worker
from tests.support.fake_controller import PATIENCE_S, FakeBeamer, refusal, warnings

TRIAL = "/v1/studies/s/trials/t"
LEAVE = "/v1/studies/s/members/M/leave"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Take the environment's run away, and its agent; return where an agent's socket may be."""
    monkeypatch.delenv(RUN_VARIABLE, raising=False)
    monkeypatch.setenv(lease.AGENT_VARIABLE, str(tmp_path / "agent.sock"))
    return tmp_path / "agent.sock"


@pytest.fixture
def beamer() -> Iterator[FakeBeamer]:
    fake = FakeBeamer()
    yield fake
    fake.stop()


@pytest.fixture
def client(beamer: FakeBeamer) -> Iterator[Client]:
    client = Client(beamer.url, timeout_s=PATIENCE_S)
    yield client
    client.close(PATIENCE_S)


@pytest.fixture
def absent(own_port: int) -> Iterator[Client]:
    """A client whose controller is away."""
    client = Client(f"http://127.0.0.1:{own_port}")
    yield client
    client.close(0.0)


def test_blocks_tell_a_search_in_order(beamer: FakeBeamer, client: Client) -> None:
    with client.study("s", run="one", weight=2.0, rungs=[Rung("r", 1, 3)]) as study:
        with study.stage("r") as stage, study.trial("t", budget=9) as trial:
            stage.add(trial, step=3)
            workers = [Worker(0, "h1"), Worker(1, "h2", Role.SERVER)]
            name = trial.start(workers, sync_bytes=10, collective="parameter-server", compute_s=0.1)
            trial.attach(0, pid=77)
            assert client.flush(PATIENCE_S)
            trial.progress(3, loss=0.5)
            trial.pause()
            trial.milestone(9)
            trial.start(["h2"], attempt="two")
        study.declare(weight=3.0, barriers=False)
    assert client.flush(PATIENCE_S)
    placed = [{"rank": 0, "host": "h1", "role": "worker"}, {"rank": 1, "host": "h2", "role": "server"}]
    profile = {"sync_bytes": 10, "collective": "parameter-server", "compute_s": 0.1, "overlap": 0.0}
    unknown = {"sync_bytes": None, "collective": "ring", "compute_s": None, "overlap": 0.0}
    assert beamer.received == [
        ("/v1/studies/s", {"run": "one", "weight": 2.0, "rungs": [{"name": "r", "trials": 1, "step": 3}]}),
        ("/v1/studies/s/stages/r", {}),
        (TRIAL, {"budget": 9}),
        (f"{TRIAL}/target", {"step": 3, "stage": "r"}),
        (f"{TRIAL}/attempts/{name}", {"workers": placed, **profile}),
        (f"{TRIAL}/workers/0", {"pid": 77, "start": ANY, "namespace": ANY}),
        (f"{TRIAL}/progress", {"step": 3, "loss": 0.5}),
        (f"{TRIAL}/attempts/{name}/end", {"reason": "paused"}),
        (f"{TRIAL}/target", {"step": 9}),
        (f"{TRIAL}/attempts/two", {"workers": [{"rank": 0, "host": "h2", "role": "worker"}], **unknown}),
        (f"{TRIAL}/status", {"status": "finished"}),
        ("/v1/studies/s/stages/r/seal", None),
        ("/v1/studies/s", {"run": "one", "weight": 3.0, "barriers": False}),
        (LEAVE, None),
    ]
    assert set(beamer.runs) == {"one"}


@pytest.mark.parametrize(("error", "status"), [(ZeroDivisionError, "failed"), (KeyboardInterrupt, "killed")])
def test_leaving_by_an_exception_ends_the_trial_and_leaves_the_study(
    beamer: FakeBeamer, client: Client, error: type[BaseException], status: str
) -> None:
    with pytest.raises(error), client.study("s") as study, study.stage("r"), study.trial("t"):
        raise error
    assert client.flush(PATIENCE_S)
    assert beamer.received[-2:] == [(f"{TRIAL}/status", {"status": status}), ("/v1/studies/s/stages/r/seal", None)]


def test_a_process_has_one_run_and_another_process_another(beamer: FakeBeamer, client: Client) -> None:
    first, second = client.study("never-ended"), client.study("nor-this")  # another run begins where one has ended
    assert first.run == second.run
    script = "from beamer.client import Client\nprint(Client().study('never-ended').run)\n"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.strip() not in ("", first.run)


def test_the_environment_names_the_run_that_processes_share(
    beamer: FakeBeamer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_VARIABLE, "shared")
    assert client.study("s").run == "shared"
    client.trial("s", "t").finish()
    client.trial("s", "t", run="mine").finish()
    assert client.study("s", run="mine").run == "mine"
    assert client.flush(PATIENCE_S)
    assert beamer.runs == ["shared", "shared", "mine", "mine"]


def test_one_unknown_name_takes_nothing_else_with_it_at_the_end(
    beamer: FakeBeamer, client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", PATIENCE_S)
    beamer.answer = lambda method, path: (404, refusal("trial: got 'T'")) if "/trials/T/" in path else (200, {})
    client.trial("s", "T").milestone(5)
    client.trial("s", "t").finish()
    client.close(PATIENCE_S)
    assert beamer.paths()[-1] == f"{TRIAL}/status"
    assert warnings(caplog) == ["Beamer refused s/T/target: trial: got 'T'"]


def test_a_worker_reports_on_a_trial_that_another_process_registered(beamer: FakeBeamer, client: Client) -> None:
    trial = client.trial("s", "t")
    trial.attach(1)
    trial.detach(1)
    trial.pause()
    trial.fail()
    assert client.flush(PATIENCE_S)
    own = lease.describe_process()
    assert beamer.received == [
        (f"{TRIAL}/workers/1", {"pid": os.getpid(), "start": own.start, "namespace": own.namespace}),
        (f"{TRIAL}/workers/1/detach", {"start": own.start}),
        (f"{TRIAL}/pause", None),
        (f"{TRIAL}/status", {"status": "failed"}),
    ]
    assert beamer.runs == [None] * 4


def test_without_an_agent_one_warning_says_what_is_missing(
    client: Client, surroundings: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "tu":
        for rank in range(2):
            client.trial("s", name).attach(rank)
    assert client.flush(PATIENCE_S)
    [logged] = warnings(caplog)
    assert str(surroundings) in logged
    assert "killed" in logged


@contextmanager
def agent(path: Path) -> Iterator[list[tuple[dict[str, Any], threading.Event]]]:
    """Play a host's agent: yield what workers asked for, and what is set when their connections end."""
    asked: list[tuple[dict[str, Any], threading.Event]] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, connection.makefile("rb") as lines:
                    ended = threading.Event()
                    asked.append((json.loads(lines.readline()), ended))
                    connection.sendall(b'{"attached": true, "agent": "h1", "protocol": 2}\n')
                    lines.readline()
                    ended.set()

        threading.Thread(target=serve, daemon=True).start()
        yield asked
        listener.shutdown(socket.SHUT_RDWR)


def test_a_worker_attaches_through_its_agent_and_detaches_before_it_lets_go(
    beamer: FakeBeamer, client: Client, surroundings: Path, caplog: pytest.LogCaptureFixture
) -> None:
    held: list[bool] = []
    with agent(surroundings) as asked:

        def answer(method: str, path: str) -> tuple[int, Any]:
            held.append(not asked[0][1].is_set())
            return 200, {}

        beamer.answer = answer
        with client.trial("s", "t", run="one").attach(rank=1):
            assert beamer.received == []
        assert client.flush(PATIENCE_S)
        assert asked[0][0] == {"study": "s", "trial": "t", "rank": 1, "run": "one", "protocol": 2}
        assert asked[0][1].wait(PATIENCE_S)
    assert beamer.paths() == [f"{TRIAL}/workers/1/detach"]
    assert held == [True]
    assert warnings(caplog) == []


def test_a_worker_that_fails_lets_go_without_detaching(beamer: FakeBeamer, client: Client, surroundings: Path) -> None:
    with agent(surroundings) as asked:
        with pytest.raises(ZeroDivisionError), client.trial("s", "t").attach(rank=0):
            raise ZeroDivisionError
        assert asked[0][1].wait(PATIENCE_S)
        assert client.flush(PATIENCE_S)
    assert beamer.received == []


@pytest.mark.parametrize(
    ("url", "full"),
    [
        ("h:1", "http://h:1"),
        ("h", f"http://h:{HTTP_PORT}"),
        ("[::1]", f"http://[::1]:{HTTP_PORT}"),
        ("h:1/beamer, http://i", "http://h:1/beamer http://i"),
    ],
)
def test_a_url_without_a_scheme_is_understood(url: str, full: str) -> None:
    assert " ".join(controller_urls(url)) == full


def test_numbers_without_a_fraction_are_whole(beamer: FakeBeamer, client: Client) -> None:
    trial = client.study("s").trial("t", budget=9.0)  # type: ignore[arg-type]
    trial.start("h1", sync_bytes=1e8, step=2.0)  # type: ignore[arg-type]
    trial.progress(torch_like(3.0), loss=torch_like(0.5))
    trial.milestone(np.float64(5))  # type: ignore[arg-type]
    assert client.flush(PATIENCE_S)
    assert [body for _, body in beamer.received[1:]] == [
        {"budget": 9},
        {
            "workers": [{"rank": 0, "host": "h1", "role": "worker"}],
            "sync_bytes": 100_000_000,
            "collective": "ring",
            "compute_s": None,
            "overlap": 0.0,
            "step": 2,
        },
        {"step": 3, "loss": 0.5},
        {"step": 5},
    ]


def test_names_that_tuners_make_are_escaped_for_the_wire(beamer: FakeBeamer, client: Client) -> None:
    client.study("my study/50%").trial("lr=0.1,bs=32").finish()
    assert client.flush(PATIENCE_S)
    assert beamer.paths()[-1] == "/v1/studies/my%20study%2F50%25/trials/lr%3D0.1%2Cbs%3D32/status"


def test_numbers_of_numpy_are_numbers(beamer: FakeBeamer, client: Client) -> None:
    steps, sync_bytes, compute_s, loss = (np.int64(3), np.int32(10), np.float32(0.5), np.float32(0.25))
    trial: Any = client.study("s").trial("t")
    trial.start(workers=["h1"], sync_bytes=sync_bytes, compute_s=compute_s)
    trial.progress(steps, loss)
    trial.attach(np.int64(0), pid=5)
    assert client.flush(PATIENCE_S)
    assert (beamer.received[2][1]["sync_bytes"], beamer.received[2][1]["compute_s"]) == (10, 0.5)
    assert beamer.received[3] == (f"{TRIAL}/progress", {"step": 3, "loss": 0.25})
    assert beamer.paths()[4] == f"{TRIAL}/workers/0"


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), np.float32("-inf")])
def test_a_loss_that_is_no_number_is_a_loss(beamer: FakeBeamer, client: Client, loss: float) -> None:
    client.trial("s", "t").progress(3, loss)
    assert client.flush(PATIENCE_S)
    assert beamer.received == [(f"{TRIAL}/progress", {"step": 3, "loss": str(float(loss))})]


def test_what_cannot_be_sent_is_logged_and_the_rest_is_sent(
    beamer: FakeBeamer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.study("a\nb")
    client.study("endless", weight=float("nan"))
    client.study("odd", weight=object())  # type: ignore[arg-type]
    client.trial("s", "t").start(["h1"], attempt=" one")
    client.study("s")
    assert client.flush(PATIENCE_S)
    assert beamer.paths() == ["/v1/studies/s"]
    logged = warnings(caplog)
    assert [name in line for name, line in zip(("a\nb", "endless", "odd", " one"), logged, strict=True)] == [True] * 4


def torch_like(value: float) -> Any:
    """Return what has a number as a tensor of PyTorch has it."""
    return SimpleNamespace(item=lambda: value, __float__=None) if value.is_integer() else np.float32(value)


class Several:
    """A tensor of several numbers, of which neither is one."""

    def __float__(self) -> float:
        raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")

    item = __float__


MISTAKES: dict[str, Callable[[Any], object]] = {
    "a study without a name": lambda client: client.study(None),
    "a study whose name is a list": lambda client: client.study(["s"]).end(),
    "rungs that are a number": lambda client: client.study("s", rungs=3),
    "a trial without a name": lambda client: client.trial("s", None).finish(),
    "a stage without a name": lambda client: client.study("s").stage(None).seal(),
    "a stage's trial that is none": lambda client: client.study("s").stage("r").add(None, step=1),
    "a stage's trial that is a number": lambda client: client.study("s").stage("r").remove(3),
    "no workers": lambda client: client.trial("s", "t").start(workers=None),
    "a number of workers": lambda client: client.trial("s", "t").start(workers=2),
    "an attempt whose name is a list": lambda client: client.trial("s", "t").start(["h1"], attempt=["one"]),
    "a rank that is a list": lambda client: client.trial("s", "t").attach([0], pid=5).__exit__(None, None, None),
    "a loss of several numbers": lambda client: client.trial("s", "t").progress(1, Several()),
    "no time-out of a stage": lambda client: client.wait_stage("s", "r", None),
    "a stage that is a list": lambda client: client.wait_stage("s", ["r"], 1.0),
    "no time-out of a flush": lambda client: client.flush(None),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_no_mistake_in_a_call_ends_the_trainer(
    mistake: str, beamer: FakeBeamer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """What the client can see is refused here; the rest is the controller's to refuse."""
    beamer.answer = lambda method, path: (200, {}) if path.endswith("next") else (422, refusal("what it is"))
    MISTAKES[mistake](client)
    assert client.flush(PATIENCE_S)
    assert warnings(caplog)
    client.study("next")
    assert client.flush(PATIENCE_S)
    assert beamer.paths()[-1] == "/v1/studies/next", "what comes later is sent"


@pytest.mark.parametrize("workers", [None, 2])
def test_workers_that_are_no_list_are_sent_as_they_are(beamer: FakeBeamer, client: Client, workers: Any) -> None:
    client.trial("s", "t").start(workers=workers, attempt="one")
    assert client.flush(PATIENCE_S)
    [(path, body)] = beamer.received
    assert (path, body["workers"]) == (f"{TRIAL}/attempts/one", workers)


def test_a_refusal_is_one_warning_with_its_message(
    beamer: FakeBeamer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    beamer.answer = lambda method, path: (422, refusal("step: got 7")) if "progress" in path else (200, {})
    trial = client.trial("s", "t")
    for step in (7, 8, 9):
        trial.progress(step)
        assert client.flush(PATIENCE_S)
    trial.finish()
    assert client.flush(PATIENCE_S)
    assert warnings(caplog) == ["Beamer refused s/t/progress: step: got 7"]
    assert beamer.paths() == [f"{TRIAL}/status"]


def test_different_refusals_of_one_trial_are_all_logged_within_bounds(
    beamer: FakeBeamer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    number = iter(range(1000))
    beamer.answer = lambda method, path: (422, refusal(f"reason {next(number)}"))
    trial = client.trial("s", "t")
    trial.attach(0, pid=5)
    trial.progress(1)
    trial.finish()
    assert client.flush(PATIENCE_S)
    assert [line[-8:] for line in warnings(caplog)] == ["reason 0", "reason 1", "reason 2"]
    for attempt in range(2 * refusals.MAX_REASONS):
        trial.start(["h1"], attempt=str(attempt))
    assert client.flush(PATIENCE_S)
    assert len(warnings(caplog)) == 3 + refusals.MAX_REASONS


def test_that_another_run_has_replaced_this_one_is_logged_once(
    beamer: FakeBeamer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    replaced = {"error": {"field": "run", "value": "a", "expected": "b", "message": "run: got 'a', expected b"}}
    beamer.answer = lambda method, path: (409, replaced)
    study = client.study("s", run="a")
    for name in ("t", "u"):
        study.trial(name).finish()
    study.stage("r").seal()
    assert client.flush(PATIENCE_S)
    assert warnings(caplog) == ["Beamer refused s: run: got 'a', expected b"]


def test_an_answer_that_is_not_beamers_is_a_refusal(
    beamer: FakeBeamer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    beamer.answer = lambda method, path: (400, ["broken"])
    client.study("s")
    assert client.flush(PATIENCE_S)
    assert warnings(caplog) == ["Beamer refused s: HTTP 400"]


def test_waits_for_another_process_to_register_the_trial(
    beamer: FakeBeamer, client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 0.001)
    unknown = iter([(404, refusal("trial: got 't'"))] * 3)
    beamer.answer = lambda method, path: next(unknown, (200, {}))
    trial = client.trial("s", "t")
    trial.attach(0, pid=5)
    trial.finish()
    assert client.flush(PATIENCE_S)
    assert beamer.paths() == [f"{TRIAL}/workers/0", f"{TRIAL}/status"]
    assert warnings(caplog) == []


def test_gives_up_on_a_trial_that_nobody_registers(
    beamer: FakeBeamer, client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 0.001)
    asked: list[str] = []

    def answer(method: str, path: str) -> tuple[int, Any]:
        asked.append(path)
        return (404, refusal("trial: got 't'")) if path.startswith(TRIAL) else (200, {})

    beamer.answer = answer
    trial = client.trial("s", "t")
    trial.attach(0, pid=5)
    trial.finish()
    client.study("other")
    assert client.flush(PATIENCE_S)
    asked.remove("/v1/studies/other")
    asked = [path for path in asked if "/members/" not in path]
    assert asked == [f"{TRIAL}/workers/0"] * (1 + outbox.UNKNOWN_TRIES) + [f"{TRIAL}/status"]
    assert warnings(caplog) == ["Beamer refused s/t/workers/0: trial: got 't'"]


def test_training_does_not_wait_for_an_answer_and_only_newest_progress_waits(
    beamer: FakeBeamer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, entered = threading.Event(), threading.Event()
    monkeypatch.setattr(Transport, "request", _held(Transport.request, entered, release))
    trial = client.trial("s", "t")
    trial.attach(0, pid=5)
    assert entered.wait(PATIENCE_S)
    for step in range(10_000):
        trial.progress(step, loss=0.5 if step == 9_000 else None)
    trial.finish()
    assert beamer.received == []
    release.set()
    assert client.flush(PATIENCE_S)
    assert beamer.paths() == [f"{TRIAL}/workers/0", f"{TRIAL}/progress", f"{TRIAL}/status"]
    assert beamer.received[1][1] == {"step": 9999, "loss": 0.5}, "the newest loss, of whichever step"


def _held(handle: Callable[..., Answer], entered: threading.Event, release: threading.Event) -> Callable[..., Answer]:
    def held(transport: Transport, *request: Any) -> Answer:
        assert threading.current_thread() is not threading.main_thread()
        entered.set()
        with RUNNING.outside():
            assert release.wait(PATIENCE_S)
        return handle(transport, *request)

    return held


def test_says_once_that_beamer_is_away_and_tells_all_when_it_is_back(
    absent: Client, own_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with absent.study("s") as study, study.stage("r"):
        pass
    assert not absent.flush(0.5)
    assert len(warnings(caplog)) == 1
    late = FakeBeamer(own_port)
    assert absent.flush(PATIENCE_S)
    late.stop()
    assert late.paths() == ["/v1/studies/s", "/v1/studies/s/stages/r", "/v1/studies/s/stages/r/seal", LEAVE]
    assert [(r.name, r.levelno) for r in caplog.records] == [
        ("beamer.client", logging.WARNING),
        ("beamer.client", logging.INFO),
    ]
    assert "again" in caplog.messages[-1]


def test_newer_progress_overtakes_what_could_not_be_sent(absent: Client, own_port: int) -> None:
    trial = absent.trial("s", "t")
    trial.progress(1, loss=0.5)
    assert not absent.flush(0.3)
    trial.progress(2)
    late = FakeBeamer(own_port)
    assert absent.flush(PATIENCE_S)
    late.stop()
    assert late.received == [(f"{TRIAL}/progress", {"step": 2, "loss": 0.5})]


def test_a_controller_that_is_overloaded_is_asked_again(
    beamer: FakeBeamer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    unable = iter([(503, refusal("disk full"))] * 2)
    beamer.answer = lambda method, path: next(unable, (200, {}))
    client.study("s")
    assert client.flush(PATIENCE_S)
    assert beamer.paths() == ["/v1/studies/s"]
    assert [("HTTP 503" in logged) for logged in warnings(caplog)] == [True]


def test_closing_tells_how_much_was_lost(absent: Client, caplog: pytest.LogCaptureFixture) -> None:
    absent.study("a")
    absent.study("b")
    absent.close(0.0)
    absent.close(0.0)
    assert [logged for logged in warnings(caplog) if "2 requests" in logged]
    absent.study("late")
    assert warnings(caplog)[-1] == "Beamer refused late: the client is closed"


def test_closing_delivers_and_ends_the_thread(beamer: FakeBeamer) -> None:
    with Client(beamer.url, timeout_s=PATIENCE_S) as client:
        client.study("s")
    assert beamer.paths() == ["/v1/studies/s"]
    assert not [thread for thread in threading.enumerate() if thread.name == "beamer-client"]


def test_a_forked_child_speaks_for_itself_only(beamer: FakeBeamer, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(beamer.url, timeout_s=PATIENCE_S)
    client.study("warm")
    assert client.flush(PATIENCE_S)
    release, entered = threading.Event(), threading.Event()
    monkeypatch.setattr(Transport, "request", _held(Transport.request, entered, release))
    client.study("parents")  # in flight at the fork
    assert entered.wait(PATIENCE_S)
    client.study("parents-next")  # waiting at the fork
    child = os.fork()
    if child == 0:
        monkeypatch.undo()
        client.trial("s", "t").attach(0, pid=5)
        os._exit(0 if client.flush(PATIENCE_S) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert beamer.paths() == ["/v1/studies/warm", f"{TRIAL}/workers/0"]
    release.set()
    client.close(PATIENCE_S)
    assert beamer.paths()[2:] == ["/v1/studies/parents", "/v1/studies/parents-next"]


def _run_script(url: str) -> subprocess.CompletedProcess[str]:
    code = f"from beamer.client import Client\nClient({url!r}, timeout_s=5.0).study('s')\nprint('trained')\n"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


def test_a_process_that_ends_has_its_last_words_sent(beamer: FakeBeamer) -> None:
    ended = _run_script(beamer.url)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "trained\n", "")
    assert beamer.paths() == ["/v1/studies/s"]


def test_a_process_ends_without_beamer(own_port: int) -> None:
    ended = _run_script(f"http://127.0.0.1:{own_port}")
    assert (ended.returncode, ended.stdout) == (0, "trained\n")
    assert "does not answer" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_machine_out_of_threads_trains_on(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        client.study("s")
        client.study("t")
    assert ["can't start new thread" in logged for logged in warnings(caplog)] == [True, True], "of requests, of the membership"
    client.study("u")
    assert client.flush(PATIENCE_S)


def test_waits_for_a_stage_to_be_done(beamer: FakeBeamer, client: Client) -> None:
    answers = iter([(404, refusal("stage")), (200, {"status": "open"}), (200, []), (200, {"status": "done"})])
    beamer.answer = lambda method, path: next(answers)
    assert client.wait_stage("s", "r", PATIENCE_S)
    assert next(answers, None) is None


def test_waiting_for_a_stage_ends_in_time(beamer: FakeBeamer, client: Client, absent: Client) -> None:
    beamer.answer = lambda method, path: (200, {"status": "sealed"})
    assert not client.wait_stage("s", "r", 0.05)
    assert not absent.wait_stage("s", "r", 0.05)
    assert not client.wait_stage("s/t", "r", PATIENCE_S)


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:port"])
def test_refuses_a_url_that_cannot_be(url: str) -> None:
    with pytest.raises(InputError, match="url: got"):
        Client(url)


def test_refuses_a_timeout_that_cannot_be() -> None:
    with pytest.raises(InputError, match="timeout_s"):
        Client(timeout_s=0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": ["http://a", "http://b"]}, "url: got .*expected a text; those of several controllers are separated by commas"),
        ({"url": 3}, "url: got 3"),
        ({"token": b"x"}, "token: got .*expected a text"),
        ({"timeout_s": "1"}, "timeout_s: got '1'"),
    ],
)
def test_settings_of_a_wrong_kind_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Client(**arguments)
