"""An agent's socket as a trainer sees it: who answers there, and in which namespaces."""

import asyncio
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from beamer.doctor import agent_socket
from beamer.doctor.agent_socket import (
    AgentSocket,
    Namespaces,
    judge_agent,
    judge_network_namespace,
    judge_pid_namespace,
    own_namespaces,
    read_agent,
)
from beamer.doctor.findings import CheckVerdict
from hostagent.workers.attach import AttachServer, listening

OWN = Namespaces(pid=1, network=2)
ABSENT = AgentSocket("/run/agent.sock", "there is no such socket", "start it")
HIDDEN = AgentSocket("/run/agent.sock")


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="beamer-") as directory:  # The path of a socket has to be short.
        yield Path(directory) / "agent.sock"


@contextmanager
def agent(path: Path) -> Iterator[AttachServer]:
    """Serve an agent's socket."""
    loop, changes = asyncio.new_event_loop(), list[None]()
    server = AttachServer("h1", lambda: changes.append(None))
    with listening(path) as sock:
        serving = loop.create_task(server.serve(sock))
        thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.wait([serving])))
        thread.start()
        try:
            yield server
        finally:
            loop.call_soon_threadsafe(serving.cancel)
            thread.join()
            loop.close()
    assert not changes, "a worker has attached"


def test_an_agent_that_answers_is_found_and_no_worker_attaches(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_socket, "_PATIENCE_S", 60.0)
    with agent(path) as server:
        found = read_agent(str(path))
        assert server.leases == ()
    own = own_namespaces()
    assert found == AgentSocket(str(path), "", "", os.getpid(), own.pid, own.network)
    assert own.pid > 0
    assert own.network > 0
    assert [one.verdict for one in judge_agent(found)] == [CheckVerdict.OK]


def test_a_socket_that_is_absent_dead_or_somebody_elses_is_no_agent(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no such socket" in read_agent(str(path)).failure
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
    assert "any more" in read_agent(str(path)).failure
    path.unlink()
    monkeypatch.setattr(agent_socket, "_PATIENCE_S", 0.1)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()
        silent = read_agent(str(path))
        assert "does not answer within" in silent.failure
    (found,) = judge_agent(silent)
    assert (found.verdict, found.fix) == (CheckVerdict.FAULT, silent.fix)


@pytest.mark.parametrize("said", [b'{"hello": 1}\n', b"[]\n", b"SSH\n", b""])
def test_another_service_is_no_agent(path: Path, said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_socket, "_PATIENCE_S", 60.0)  # Its answer must come, also on a busy machine.
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()

        def answer() -> None:
            peer, _ = sock.accept()
            with peer:
                peer.recv(100)
                peer.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        found = read_agent(str(path))
        thread.join()
    assert "does not answer as an agent" in found.failure


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (ABSENT, CheckVerdict.NOT_CHECKED),
        (HIDDEN, CheckVerdict.NOT_CHECKED),
        (AgentSocket("/run/agent.sock", pid=7), CheckVerdict.NOT_CHECKED),
        (AgentSocket("/run/agent.sock", pid=7, pid_namespace=1), CheckVerdict.OK),
        (AgentSocket("/run/agent.sock", pid=7, pid_namespace=9), CheckVerdict.FAULT),
    ],
)
def test_the_agents_process_namespace_is_compared(found: AgentSocket, verdict: CheckVerdict) -> None:
    assert [one.verdict for one in judge_pid_namespace(found, OWN)] == [verdict]


@pytest.mark.parametrize(
    ("found", "is_host_here", "verdict"),
    [
        (ABSENT, True, CheckVerdict.NOT_CHECKED),
        (HIDDEN, True, CheckVerdict.OK),
        (HIDDEN, False, CheckVerdict.NOT_CHECKED),
        (AgentSocket("/run/agent.sock", pid=7, network_namespace=2), False, CheckVerdict.OK),
        (AgentSocket("/run/agent.sock", pid=7, network_namespace=9), True, CheckVerdict.FAULT),
    ],
)
def test_the_agents_network_namespace_is_compared(found: AgentSocket, is_host_here: bool, verdict: CheckVerdict) -> None:
    assert [one.verdict for one in judge_network_namespace(found, OWN, is_host_here)] == [verdict]
