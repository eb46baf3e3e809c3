"""What the controller refuses, or does not know yet, delays nothing else; and what waits for it is bounded."""

import gc
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beamer.client import RUN_VARIABLE, Client, lease, outbox, refusals
from beamer.client.outbox import Outbox
from beamer.client.request import Address, PutRequest
from tests.support.fake_controller import PATIENCE_S, FakeBeamer, refusal, warnings

NOBODY = "http://127.0.0.1:9"  # where no controller listens


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(RUN_VARIABLE, "one")
    monkeypatch.setenv(lease.AGENT_VARIABLE, str(tmp_path / "agent.sock"))


@pytest.fixture
def beamer() -> Iterator[FakeBeamer]:
    fake = FakeBeamer()
    yield fake
    fake.stop()


@pytest.fixture
def client(beamer: FakeBeamer) -> Iterator[Client]:
    client = Client(beamer.url, timeout_s=PATIENCE_S)
    yield client
    client.close(0.0)


def eventually(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(0.01)


def search(client: Client, name: str) -> str:
    """Report a search of one trial; return the path of its end."""
    with client.study(name) as study, study.stage("r") as stage, study.trial("t") as trial:
        stage.add(trial, step=3)
        trial.start(["h1"])
        trial.attach(0, pid=5)
        trial.progress(3)
    return f"/v1/studies/{name}/members/M/leave"


def test_a_refused_study_delays_no_good_job(
    beamer: FakeBeamer, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 10 * PATIENCE_S)  # A request that waits for the pause does not come.
    asked: list[str] = []

    def answer(method: str, path: str) -> tuple[int, Any]:
        asked.append(path)
        if path == "/v1/studies/bad":
            return 422, refusal("rungs: got 7")
        return (404, refusal("study: got 'bad'")) if path.startswith("/v1/studies/bad/") else (200, {})

    beamer.answer = answer
    search(client, "bad")
    end = search(client, "good")
    eventually(lambda: end in beamer.paths())
    assert [path for path in asked if path.startswith("/v1/studies/bad") and "/members/" not in path] == [
        "/v1/studies/bad",
        "/v1/studies/bad/stages/r",
        "/v1/studies/bad/trials/t",
    ], "what builds on these waits for them"
    assert warnings(caplog)[0] == "Beamer refused bad: rungs: got 7"


def test_trials_that_are_not_known_yet_delay_no_other_trial_of_their_stage(
    beamer: FakeBeamer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 10 * PATIENCE_S)
    known = threading.Event()
    beamer.answer = lambda method, path: (404, refusal("trial")) if "/late/" in path and not known.is_set() else (200, {})
    study = client.study("s")
    with study.stage("r") as stage:
        stage.add("late", step=3)
        stage.add("t", step=3)
    client.trial("s", "late").milestone(4)
    client.trial("s", "t").finish()
    trials = "/v1/studies/s/trials"
    eventually(lambda: f"{trials}/t/status" in beamer.paths())
    assert not {f"{trials}/late/target", "/v1/studies/s/stages/r/seal"} & set(beamer.paths())
    known.set()
    client.close(PATIENCE_S)
    assert beamer.paths()[2:] == [
        f"{trials}/t/target",
        f"{trials}/t/status",
        f"{trials}/late/target",
        "/v1/studies/s/stages/r/seal",
        f"{trials}/late/target",
    ]


def test_a_controller_that_is_away_for_long_fills_no_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(outbox, "MAX_WAITING_REQUESTS", 100)
    client = Client(NOBODY)
    for number in range(1000):
        with client.study("s").trial(f"t{number}") as trial:
            trial.start(["h1"])
            trial.progress(number, 0.5)
    assert len(client._outbox._waiting) <= 100
    client.close(0.0)
    assert len([logged for logged in warnings(caplog) if "more than" in logged]) == 1
    assert "did not receive everything: 5000 requests" in warnings(caplog)[-1]


def test_what_is_dropped_is_done_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_WAITING_REQUESTS", 10)
    client = Client(NOBODY)
    called: list[int] = []

    def then(number: int) -> Callable[[], None]:
        return lambda: called.append(number)

    for number in range(50):
        client._outbox.put(PutRequest(Address("s", trial=f"t{number}"), ("pause",), then=then(number)))
    assert sorted(called) == list(range(10, 50))
    client.close(0.0)
    assert sorted(called) == list(range(50))


def test_what_is_remembered_of_refusals_is_bounded(
    beamer: FakeBeamer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(outbox, "UNKNOWN_TRIES", 0)
    monkeypatch.setattr(outbox, "MAX_UNKNOWN_NAMES", 5)
    monkeypatch.setattr(refusals, "MAX_KINDS", 10)
    beamer.answer = lambda method, path: (404, refusal("x" * 10_000))
    client = Client(beamer.url, timeout_s=PATIENCE_S)
    for number in range(50):
        client.trial("s", f"t{number}").finish()
    assert client.flush(PATIENCE_S)
    assert list(client._outbox._unknown) == [("s", None, f"t{number}", None) for number in range(45, 50)]
    assert len(warnings(caplog)) == 10
    assert all(len(logged) < 1000 for logged in warnings(caplog))
    client.close()


def test_nothing_waits_for_a_pause_when_closing(beamer: FakeBeamer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 10 * PATIENCE_S)
    failures = iter([(500, {})])
    beamer.answer = lambda method, path: next(failures, (200, {}))
    client = Client(beamer.url, timeout_s=PATIENCE_S)
    client.study("s")
    client.close(PATIENCE_S)
    assert beamer.paths() == ["/v1/studies/s"]


def test_a_client_that_nobody_holds_is_freed(beamer: FakeBeamer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "IDLE_S", 0.05)

    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "beamer-client"]

    client = Client(beamer.url, timeout_s=PATIENCE_S)
    for name in "ab":
        client.study(name)
        assert client.flush(PATIENCE_S)
        eventually(lambda: not threads())
    held = weakref.ref(client._outbox)
    del client
    gc.collect()
    assert held() is None
    assert beamer.paths() == ["/v1/studies/a", "/v1/studies/b"]


def test_endless_patience_is_patience(beamer: FakeBeamer) -> None:
    client = Client(beamer.url, timeout_s=PATIENCE_S)
    client.study("s")
    assert client.flush(float("inf"))
    assert client.flush(-1.0)
    client.close(float("inf"))


HANDLED = """
import signal, sys, time
from beamer.client import Client
client = Client(sys.argv[1], timeout_s=30.0)
trial = client.trial("s", "t")
handled = 0
def handle(*_):
    global handled
    handled += 1
    client.trial("s", f"t{handled}").finish()
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
deadline = time.monotonic() + 20
step = 0
while handled < 6 and time.monotonic() < deadline:
    step += 1
    trial.progress(step)
    trial.milestone(step)
    if step % 50 == 0:
        client.flush(5)
signal.setitimer(signal.ITIMER_REAL, 0)
print(step, handled, client.flush(60))
"""


def test_a_signals_handler_may_report_too(beamer: FakeBeamer) -> None:
    command = [sys.executable, "-c", HANDLED, beamer.url]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    step, handled, flushed = ended.stdout.split()
    assert flushed == "True"
    paths = beamer.paths()
    # In whichever order: a handler may be interrupted by the next one.
    assert sorted(path for path in paths if path.endswith("/status")) == sorted(
        f"/v1/studies/s/trials/t{number + 1}/status" for number in range(int(handled))
    )
    assert len([path for path in paths if path.endswith("/target")]) == int(step)
    assert int(handled) > 1


def test_closing_in_a_signals_handler_ends(beamer: FakeBeamer) -> None:
    client = Client(beamer.url, timeout_s=PATIENCE_S)
    put = Outbox._take_arrived

    def interrupted(box: Outbox) -> list[PutRequest]:
        signal.raise_signal(signal.SIGUSR1)
        return put(box)

    before = signal.signal(signal.SIGUSR1, lambda *_: client.close(0.2))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Outbox, "_take_arrived", interrupted)
            client.study("s")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert client._outbox._closed
