"""The client and an agent that is none: whatever listens at its path, the trainer does not wait, and does not fail."""

import itertools
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from beamer.client import lease
from beamer.client.lease import attach
from tests.support.fake_controller import PATIENCE_S, warnings

ATTACHED = b'{"attached": true, "agent": "h1", "protocol": 2}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.sock"


@contextmanager
def agent(path: Path, answer: Callable[[socket.socket], None]) -> Iterator[list[float]]:
    """Serve every connection by what `answer` does with it; yield when each came."""
    came: list[float] = []

    def attend(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(4096)
            answer(connection)

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection = listener.accept()[0]
                came.append(time.monotonic())
                threading.Thread(target=attend, args=(connection,), daemon=True).start()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield came
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def drip(connection: socket.socket) -> None:
    for _ in range(10_000):
        connection.sendall(b" ")
        time.sleep(0.05)


def flood(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"x" * 65536)


def hold(connection: socket.socket) -> None:
    connection.recv(4096)


def say(content: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(content)


def attach_and_hold(connection: socket.socket) -> None:
    connection.sendall(ATTACHED)
    hold(connection)


NO_ANSWERS: dict[str, Callable[[socket.socket], None]] = {
    "dripping": drip,
    "endless": flood,
    "none": hold,
    "closed": lambda connection: connection.close(),
    "garbage": say(b"\xff\x00\n"),
    "no object": say(b"7\n"),
    "nested": say(b"[" * 50_000 + b"\n"),
    "nested in an object": say(b'{"error":' * 5000 + b"1" + b"}" * 5000 + b"\n"),
    "nested as deeply as is read": say(b'{"error":' + b"[" * 900 + b"]" * 900 + b"}\n"),
    "an enormous number": say(b"9" * 50_000 + b"\n"),
}


@pytest.mark.parametrize("kind", NO_ANSWERS)
def test_what_is_no_agent_gives_no_lease(path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    found: list[object] = []
    with agent(path, NO_ANSWERS[kind]):
        # In a thread, so that one that waits for ever fails this test alone.
        thread = threading.Thread(target=lambda: found.append(attach("s", "t", 0, path=str(path))), daemon=True)
        thread.start()
        thread.join(20 * lease.CONNECT_S)
    assert found == [None]
    assert all(len(logged) < 1000 for logged in warnings(caplog))


def test_a_long_refusal_is_cut(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with agent(path, say(b'{"error": "' + b"x" * 50_000 + b'"}\n')):
        assert attach("s", "t", 0, path=str(path)) is None
    [logged] = warnings(caplog)
    assert len(logged) < 1000


def test_an_agent_that_lets_go_at_once_is_asked_ever_more_rarely(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lease, "CONNECT_S", PATIENCE_S)
    monkeypatch.setattr(lease, "FIRST_PAUSE_S", 0.01)
    caplog.set_level("INFO")
    with agent(path, say(ATTACHED)) as came:
        held = attach("s", "t", 0, path=str(path))
        assert held is not None
        deadline = time.monotonic() + PATIENCE_S
        while len(came) < 7 and time.monotonic() < deadline:
            time.sleep(0.01)
        held.close()
    pauses = [later - earlier for earlier, later in itertools.pairwise(came)]
    assert len(pauses) >= 6
    assert pauses[5] >= 0.01 * 2**5, "a pause is at least as long as it was meant to be"
    assert len(caplog.messages) == 1


def test_a_defect_ends_the_lease_alone(path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: object) -> None:
        raise AssertionError("a defect")

    monkeypatch.setattr(lease.AgentLease, "_until_ended", fail)
    monkeypatch.setattr(lease, "CONNECT_S", PATIENCE_S)
    with agent(path, attach_and_hold):
        held = attach("s", "t", 0, path=str(path))
        assert held is not None
        deadline = time.monotonic() + PATIENCE_S
        while held.attached and time.monotonic() < deadline:
            time.sleep(0.01)
    assert not held.attached
    assert [logged[:8] for logged in warnings(caplog)] == ["a defect"]


# Attaches, and forks at random moments while an agent that lets go at once is attached to over and over.
FORKING = """
import os, random, socket, sys, time
from beamer.client import lease
lease.CONNECT_S, lease.FIRST_PAUSE_S, lease.MAX_PAUSE_S = 20.0, 0.001, 0.002
held = lease.attach("s", "t", 0, path=sys.argv[1])
rng = random.Random(7)
def sockets():
    listed = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return [path for path in listed if os.path.islink(path) and os.readlink(path).startswith("socket:")]
inherited = set()
for _ in range(60):
    time.sleep(rng.uniform(0, 0.003))
    child = os.fork()
    if child == 0:
        mine = lease.attach("s", "t", 1, path=sys.argv[2])
        os._exit(len(sockets()) + 10 * (mine is None) + 20 * held.attached)
    inherited.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(inherited)
"""


def test_a_process_forks_at_any_moment_of_attaching(path: Path) -> None:
    good = path.with_name("good.sock")
    with agent(path, say(ATTACHED)) as came, agent(good, attach_and_hold):
        ended = subprocess.run(
            [sys.executable, "-c", FORKING, str(path), str(good)], capture_output=True, text=True, check=False, timeout=120
        )
    assert len(came) > 20, "it was not attached to over and over"
    assert (ended.stdout, ended.stderr) == ("{1}\n", ""), "a child holds its own lease's socket and no other"
