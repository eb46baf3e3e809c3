"""The client: what it sends, in which order, and that training neither waits for it nor fails by it."""

import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import numpy as np
import pytest

from beamer.client import Client, outbox
from beamer.errors import InputError
from beamer.studies.model import Role, Rung, Worker

JOB = "/v1/studies/s/stages/r/jobs/j"
PATIENCE_S = 30.0  # for what must come; nothing is measured by it


class FakeBeamer:
    """A controller that keeps what it receives and answers as `answer` returns: a status and a body, by method and path."""

    def __init__(self, port: int = 0) -> None:
        self.received: list[tuple[str, Any]] = []
        self.answer: Callable[[str, str], tuple[int, Any]] = lambda method, path: (200, {})
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, answer = fake.answer("PUT", self.path)
                if status == 200:
                    fake.received.append((self.path, json.loads(body) if body else None))
                self._respond(status, answer)

            def do_GET(self) -> None:
                self._respond(*fake.answer("GET", self.path))

            def _respond(self, status: int, answer: Any) -> None:
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def paths(self) -> list[str]:
        return [path for path, _ in self.received]

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


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
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def absent(free_port: int) -> Iterator[Client]:
    """A client whose controller is away."""
    client = Client(f"http://127.0.0.1:{free_port}")
    yield client
    client.close(0.0)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def refusal(message: str) -> dict[str, Any]:
    return {"error": {"field": "f", "value": None, "expected": "e", "message": message}}


def test_blocks_tell_a_search_in_order(beamer: FakeBeamer, client: Client) -> None:
    with client.study("s", weight=2.0, rungs=[Rung("r", 1, 3)]) as study, study.stage("r") as stage:
        workers = [Worker(0, "h1"), Worker(1, "h2", Role.SERVER)]
        with stage.job("j", workers=workers, iterations=3, sync_bytes=10, collective="parameter-server", compute_s=0.1) as job:
            job.attach(0, pid=77)
            assert client.flush(PATIENCE_S)
            job.progress(3)
    assert client.flush(PATIENCE_S)
    assert beamer.received == [
        ("/v1/studies/s", {"weight": 2.0, "rungs": [{"name": "r", "jobs": 1, "iterations": 3}]}),
        ("/v1/studies/s/stages/r", {}),
        (
            JOB,
            {
                "workers": [{"rank": 0, "host": "h1", "role": "worker"}, {"rank": 1, "host": "h2", "role": "server"}],
                "iterations": 3,
                "sync_bytes": 10,
                "collective": "parameter-server",
                "compute_s": 0.1,
                "overlap": 0.0,
            },
        ),
        (f"{JOB}/workers/0", {"pid": 77}),
        (f"{JOB}/progress/3", None),
        (f"{JOB}/status", {"status": "finished"}),
        ("/v1/studies/s/stages/r/seal", None),
    ]


def test_leaving_a_job_by_an_exception_kills_it(beamer: FakeBeamer, client: Client) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        client.study("s") as study,
        study.stage("r") as stage,
        stage.job("j", workers=["h1", "h2"], iterations=3, sync_bytes=10),
    ):
        raise ZeroDivisionError
    assert client.flush(PATIENCE_S)
    assert beamer.received[-2:] == [(f"{JOB}/status", {"status": "killed"}), ("/v1/studies/s/stages/r/seal", None)]


def test_hosts_alone_are_workers_ranked_by_position(beamer: FakeBeamer, client: Client) -> None:
    client.study("s").stage("r").job("j", workers=["h1", "h2"], iterations=3, sync_bytes=10)
    assert client.flush(PATIENCE_S)
    assert [(w["rank"], w["host"]) for w in beamer.received[-1][1]["workers"]] == [(0, "h1"), (1, "h2")]


def test_a_worker_reports_on_a_job_that_another_process_registered(beamer: FakeBeamer, client: Client) -> None:
    job = client.job("s", "r", "j")
    job.attach(1)
    job.kill()
    assert client.flush(PATIENCE_S)
    assert beamer.received == [(f"{JOB}/workers/1", {"pid": os.getpid()}), (f"{JOB}/status", {"status": "killed"})]


def test_numbers_of_numpy_are_numbers(beamer: FakeBeamer, client: Client) -> None:
    iterations, sync_bytes, compute_s, done = (np.int64(3), np.int32(10), np.float32(0.5), np.int64(2))
    stage: Any = client.study("s").stage("r")
    job = stage.job("j", workers=["h1"], iterations=iterations, sync_bytes=sync_bytes, compute_s=compute_s)
    job.progress(done)
    assert client.flush(PATIENCE_S)
    assert beamer.received[-2][1]["iterations"] == 3
    assert beamer.received[-2][1]["compute_s"] == 0.5
    assert beamer.received[-1][0] == f"{JOB}/progress/2"


def test_what_cannot_be_sent_is_logged_and_the_rest_is_sent(
    beamer: FakeBeamer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.study("a/stages/b")
    client.study("endless", weight=float("nan"))
    client.study("odd", weight=object())  # type: ignore[arg-type]
    client.study("s")
    assert client.flush(PATIENCE_S)
    assert beamer.paths() == ["/v1/studies/s"]
    logged = warnings(caplog)
    assert ["a/stages/b" in logged[0], "endless" in logged[1], "odd" in logged[2]] == [True] * 3
    assert len(logged) == 3


def test_a_refusal_is_one_warning_with_its_message(
    beamer: FakeBeamer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    beamer.answer = lambda method, path: (422, refusal("iteration: got 7")) if "progress" in path else (200, {})
    job = client.job("s", "r", "j")
    for iteration in (7, 8, 9):
        job.progress(iteration)
        assert client.flush(PATIENCE_S)
    job.finish()
    assert client.flush(PATIENCE_S)
    assert warnings(caplog) == ["Beamer refused s/r/j/progress/7: iteration: got 7"]
    assert beamer.paths() == [f"{JOB}/status"]


def test_an_answer_that_is_not_beamers_is_a_refusal(
    beamer: FakeBeamer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    beamer.answer = lambda method, path: (500, ["broken"])
    client.study("s")
    assert client.flush(PATIENCE_S)
    assert warnings(caplog) == ["Beamer refused s: HTTP 500"]


def test_waits_for_another_process_to_register_the_job(
    beamer: FakeBeamer, client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 0.001)
    unknown = iter([(404, refusal("job: got 'j'"))] * 3)
    beamer.answer = lambda method, path: next(unknown, (200, {}))
    job = client.job("s", "r", "j")
    job.attach(0)
    job.finish()
    assert client.flush(PATIENCE_S)
    assert beamer.paths() == [f"{JOB}/workers/0", f"{JOB}/status"]
    assert warnings(caplog) == []


def test_gives_up_on_a_job_that_nobody_registers(
    beamer: FakeBeamer, client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 0.001)
    asked: list[str] = []

    def answer(method: str, path: str) -> tuple[int, Any]:
        asked.append(path)
        return (404, refusal("job: got 'j'")) if path.startswith(JOB) else (200, {})

    beamer.answer = answer
    job = client.job("s", "r", "j")
    job.attach(0)
    job.finish()
    client.study("other")
    assert client.flush(PATIENCE_S)
    assert asked == [f"{JOB}/workers/0"] * (1 + outbox.UNKNOWN_TRIES) + [f"{JOB}/status", "/v1/studies/other"]
    assert warnings(caplog) == ["Beamer refused s/r/j/workers/0: job: got 'j'"]


def test_training_does_not_wait_for_an_answer_and_only_newest_progress_waits(
    beamer: FakeBeamer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, entered = threading.Event(), threading.Event()
    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", _held(httpx.HTTPTransport.handle_request, entered, release))
    job = client.job("s", "r", "j")
    job.attach(0, pid=1)
    assert entered.wait(PATIENCE_S)
    for iteration in range(10_000):
        job.progress(iteration)
    job.finish()
    assert beamer.received == []
    release.set()
    assert client.flush(PATIENCE_S)
    assert beamer.paths() == [f"{JOB}/workers/0", f"{JOB}/progress/9999", f"{JOB}/status"]


def _held(
    handle: Callable[..., httpx.Response], entered: threading.Event, release: threading.Event
) -> Callable[..., httpx.Response]:
    def held(transport: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        assert threading.current_thread() is not threading.main_thread()
        entered.set()
        assert release.wait(PATIENCE_S)
        return handle(transport, request)

    return held


def test_says_once_that_beamer_is_away_and_tells_all_when_it_is_back(
    absent: Client, free_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with absent.study("s") as study, study.stage("r"):
        pass
    assert not absent.flush(0.5)
    assert len(warnings(caplog)) == 1
    late = FakeBeamer(free_port)
    assert absent.flush(PATIENCE_S)
    late.stop()
    assert late.paths() == ["/v1/studies/s", "/v1/studies/s/stages/r", "/v1/studies/s/stages/r/seal"]
    assert [(r.name, r.levelno) for r in caplog.records] == [
        ("beamer.client", logging.WARNING),
        ("beamer.client", logging.INFO),
    ]
    assert "again" in caplog.messages[-1]


def test_newer_progress_overtakes_what_could_not_be_sent(absent: Client, free_port: int) -> None:
    job = absent.job("s", "r", "j")
    job.progress(1)
    assert not absent.flush(0.3)
    job.progress(2)
    late = FakeBeamer(free_port)
    assert absent.flush(PATIENCE_S)
    late.stop()
    assert late.paths() == [f"{JOB}/progress/2"]


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
    handle = httpx.HTTPTransport.handle_request
    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", _held(handle, entered, release))
    client.study("parents")  # in flight at the fork
    assert entered.wait(PATIENCE_S)
    client.study("parents-next")  # waiting at the fork
    child = os.fork()
    if child == 0:
        monkeypatch.undo()
        client.job("s", "r", "j").attach(0, pid=5)
        os._exit(0 if client.flush(PATIENCE_S) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert beamer.paths() == ["/v1/studies/warm", f"{JOB}/workers/0"]
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


def test_a_process_ends_without_beamer(free_port: int) -> None:
    ended = _run_script(f"http://127.0.0.1:{free_port}")
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
    assert ["can't start new thread" in logged for logged in warnings(caplog)] == [True]
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


@pytest.mark.parametrize("url", ["127.0.0.1:8265", "ftp://host", "http://", "http://host:port"])
def test_refuses_a_url_that_cannot_be(url: str) -> None:
    with pytest.raises(InputError, match="url: got"):
        Client(url)


def test_refuses_a_timeout_that_cannot_be() -> None:
    with pytest.raises(InputError, match="timeout_s"):
        Client(timeout_s=0.0)
