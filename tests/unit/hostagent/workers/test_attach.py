"""Attaching at an agent's socket, with real processes and the client's own side of it."""

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beamer.client import lease as client
from beamer.client.lease import AgentLease, attach, describe_process
from beamer.errors import InputError
from beamer.network.protocol import WorkerLease
from beamer.studies.model import MAX_RANK, Process
from hostagent.workers import attach as module
from hostagent.workers.attach import AttachServer, listening, parse_request
from hostagent.workers.procfs import Procfs

REQUEST = {"study": "s", "trial": "t", "rank": 0}
# Attaches over a socket of its own and waits. `fork`: a child holds the connection open as well.
WORKER = """
import json, os, socket, sys, time
line = socket.socket(socket.AF_UNIX); line.connect(sys.argv[1])
line.sendall(json.dumps({"study": "s", "trial": "t", "rank": int(sys.argv[2])}).encode() + b"\\n")
print(line.recv(4096).decode().strip(), flush=True)
if sys.argv[3:] == ["fork"] and os.fork() == 0: time.sleep(60)
print(line.recv(4096).decode().strip(), flush=True)
time.sleep(60)
"""


class Served:
    """An agent's attach socket, served by a thread until it is stopped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.changes = 0
        self.server: AttachServer
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._ready.wait()

    @property
    def leases(self) -> tuple[WorkerLease, ...]:
        return self.server.leases

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join()

    def _run(self) -> None:
        async def serve() -> None:
            self._task = asyncio.current_task()
            self.server = AttachServer("h1", self._changed)
            with listening(self.path) as sock:
                self._ready.set()
                await self.server.serve(sock)

        with contextlib.suppress(asyncio.CancelledError), asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(serve())

    def _changed(self) -> None:
        self.changes += 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "agent.sock"


@pytest.fixture
def served(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(client, "CONNECT_S", 20.0)  # a machine may be overloaded
    made = Served(path)
    yield made
    made.stop()


def eventually(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(0.01)


def talk(path: Path, line: bytes) -> dict[str, object]:
    """Send a line, close the sending half, and return the answer."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(20)
        sock.connect(str(path))
        with contextlib.suppress(BrokenPipeError):  # an agent that has heard enough answers and closes
            sock.sendall(line)
        answer = sock.makefile().readline()
        return dict(json.loads(answer)) if answer else {}


def own(rank: int = 0, run: str | None = None) -> WorkerLease:
    status = Procfs().status(os.getpid())
    assert status is not None
    process = Process(os.getpid(), status.start, os.stat("/proc/self/ns/pid").st_ino, os.geteuid(), leased=True)
    return WorkerLease(study="s", trial="t", rank=rank, run=run, process=process)


def test_a_process_is_who_the_kernel_says_for_as_long_as_it_is_connected(served: Served, path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o666
    one, two = attach("s", "t", 0, path=str(path)), attach("s", "t", 1, "2", path=str(path))
    assert one is not None
    assert two is not None
    assert one.attached
    assert one.agent == "h1"
    assert served.leases == (own(), own(1, "2")), "one process may be several workers"
    changes = served.changes
    one.close()
    one.close()
    eventually(lambda: served.leases == (own(1, "2"),))
    assert not one.attached
    two.close()
    eventually(lambda: served.changes == changes + 2)
    assert served.leases == ()


@pytest.mark.parametrize("more", [(), ("fork",)])
def test_the_lease_of_a_killed_process_ends_at_once(served: Served, path: Path, more: tuple[str, ...]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, str(path), "0", *more], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as worker:
        assert worker.stdout
        assert "attached" in worker.stdout.readline()
        assert [lease.process.pid for lease in served.leases] == [worker.pid]
        try:
            worker.kill()
            eventually(lambda: served.leases == ())
        finally:
            os.killpg(worker.pid, signal.SIGKILL)


def test_the_newest_process_of_a_worker_replaces_the_older(
    served: Served, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    older = attach("s", "t", 0, path=str(path))
    assert older is not None
    with subprocess.Popen([sys.executable, "-c", WORKER, str(path), "0"], stdout=subprocess.PIPE, text=True) as newer:
        assert newer.stdout
        newer.stdout.readline()
        assert [lease.process.pid for lease in served.leases] == [newer.pid]
        eventually(lambda: not older.attached)
        eventually(lambda: f"process {newer.pid} has attached" in caplog.text)
        time.sleep(3 * client.FIRST_PAUSE_S)
        assert [lease.process.pid for lease in served.leases] == [newer.pid], "the older one does not come back"
        newer.kill()


def test_no_other_user_takes_a_worker_over(served: Served, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = attach("s", "t", 0, path=str(path))
    assert kept is not None
    credentials = module._CREDENTIALS

    class Other:
        size = credentials.size

        def unpack(self, data: bytes) -> tuple[int, int, int]:
            return credentials.unpack(data)[0], 12345, 12345

    monkeypatch.setattr(module, "_CREDENTIALS", Other())
    assert "no other user's" in str(talk(path, json.dumps(REQUEST).encode() + b"\n")["error"])
    assert kept.attached
    assert served.leases == (own(),)
    kept.close()


@pytest.mark.parametrize(("pid", "named"), [(0, "cannot see"), (1, "process 1")])
def test_a_process_that_can_be_no_worker_is_refused(
    served: Served, path: Path, monkeypatch: pytest.MonkeyPatch, pid: int, named: str
) -> None:
    credentials = module._CREDENTIALS

    class Shifted:
        size = credentials.size

        def unpack(self, _: bytes) -> tuple[int, int, int]:
            return pid, 0, 0

    monkeypatch.setattr(module, "_CREDENTIALS", Shifted())
    assert named in str(talk(path, json.dumps(REQUEST).encode() + b"\n")["error"])
    assert served.leases == ()


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b"nonsense\n", "line"),
        (b"[1]\n", "line"),
        (b"[" * 3000 + b"\n", "line"),
        (b"\xff\xfe\n", "line"),
        (b"x" * 5000 + b"\n", "at most 4096 bytes"),
        (b"x" * 50_000, "at most 4096 bytes"),
        (json.dumps({"study": "s", "trial": "t"}).encode() + b"\n", "rank"),
        (json.dumps(REQUEST | {"rank": -1}).encode() + b"\n", "rank"),
        (json.dumps(REQUEST | {"rank": "0"}).encode() + b"\n", "rank"),
        (json.dumps(REQUEST | {"rank": MAX_RANK + 1}).encode() + b"\n", "rank"),
        (json.dumps(REQUEST | {"study": "a\nb"}).encode() + b"\n", "study"),
        (json.dumps(REQUEST | {"run": ""}).encode() + b"\n", "run"),
        (json.dumps(REQUEST | {"pid": 5}).encode() + b"\n", "pid"),
    ],
)
def test_a_line_that_is_no_request_is_answered_with_what_is_wrong(served: Served, path: Path, line: bytes, named: str) -> None:
    assert str(talk(path, line)["error"]).find(named) >= 0
    assert served.leases == ()


def test_a_second_line_ends_the_lease(served: Served, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        answers = sock.makefile()
        sock.sendall(json.dumps(REQUEST).encode() + b"\n")
        assert json.loads(answers.readline()) == {"attached": True, "agent": "h1"}
        sock.sendall(b"more\n")
        assert "line" in json.loads(answers.readline())["error"]
    eventually(lambda: served.leases == ())


def test_one_that_says_nothing_is_not_waited_for(served: Served, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_PATIENCE_S", 0.05)
    assert "within" in str(talk(path, b'{"study"')["error"])


def test_connections_are_bounded_for_each_user(served: Served, path: Path) -> None:
    kept = attach("s", "t", 0, path=str(path))
    assert kept is not None
    served.server._most_connections = module._FULL_USERS
    assert "too many" in str(talk(path, json.dumps(REQUEST).encode() + b"\n")["error"])
    kept.close()
    eventually(lambda: talk(path, json.dumps(REQUEST).encode() + b"\n").get("attached"))


def test_a_few_users_do_not_keep_the_others_out(served: Served, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.MAX_CONNECTIONS >= 8 * module.MAX_PER_USER
    credentials = module._CREDENTIALS
    uid = 1

    class Other:
        size = credentials.size

        def unpack(self, data: bytes) -> tuple[int, int, int]:
            return credentials.unpack(data)[0], uid, uid

    monkeypatch.setattr(module, "_CREDENTIALS", Other())
    with contextlib.ExitStack() as stack:
        held = []
        for rank in range(4):
            uid = 1 + rank // 2
            held.append(attach("s", f"t{rank}", 0, path=str(path)))
            assert held[-1] is not None
            stack.callback(held[-1].close)
            served.server._most_connections = 2 * module._FULL_USERS
        assert "too many" in str(talk(path, json.dumps(REQUEST).encode() + b"\n")["error"])
        uid = 3
        assert talk(path, json.dumps(REQUEST).encode() + b"\n").get("attached")


def flood(path: Path, stack: contextlib.ExitStack, count: int, line: Callable[[int], bytes]) -> list[socket.socket]:
    """Open `count` connections that say a line each and are kept open."""
    opened = []
    for number in range(count):
        sock = stack.enter_context(socket.socket(socket.AF_UNIX))
        sock.connect(str(path))  # waits where the queue of those that are to be accepted is full
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # closed by an agent that has enough of this user's
            sock.sendall(line(number))
        opened.append(sock)
    return opened


def request(number: int) -> bytes:
    return json.dumps(REQUEST | {"rank": number}).encode() + b"\n"


def first_byte(number: int) -> bytes:
    return b"{"


@pytest.mark.parametrize("line", [request, first_byte], ids=["leases", "half of a line"])
def test_a_flood_from_one_user_keeps_no_other_out_and_ends_with_it(
    served: Served, path: Path, monkeypatch: pytest.MonkeyPatch, line: Callable[[int], bytes]
) -> None:
    credentials = module._CREDENTIALS
    uid = 1

    class Other:
        size = credentials.size

        def unpack(self, data: bytes) -> tuple[int, int, int]:
            return credentials.unpack(data)[0], uid, uid

    monkeypatch.setattr(module, "_CREDENTIALS", Other())
    served.server._most_connections = 20 * module._FULL_USERS  # as with few descriptors, so that the flood is short
    with contextlib.ExitStack() as stack:
        opened = flood(path, stack, 400, line)
        opened[-1].settimeout(20)
        assert b"too many" in opened[-1].recv(4096)
        eventually(lambda: served.server._connections[1] == 20)
        uid = 2
        other = attach("s", "other", 0, path=str(path))
        assert other is not None
        stack.callback(other.close)
        assert len(served.leases) == 1 + (20 if line is request else 0)
    eventually(lambda: served.leases == ())
    eventually(lambda: not served.server._connections)
    uid = 1
    eventually(lambda: talk(path, json.dumps(REQUEST).encode() + b"\n").get("attached"))


def test_an_agent_without_descriptors_says_so_and_goes_on(served: Served, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(module, "_SO_PEERPIDFD", 9999)
        patch.setattr(os, "pidfd_open", exhausted)
        error = str(talk(path, json.dumps(REQUEST).encode() + b"\n")["error"])
        assert "Too many open files" in error
        assert "later" in error
    assert talk(path, json.dumps(REQUEST).encode() + b"\n").get("attached")


# Serves with few descriptors allowed.
FEW_DESCRIPTORS = """
import asyncio, resource, sys
from pathlib import Path
from hostagent.workers.attach import AttachServer, listening
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
with listening(Path(sys.argv[1])) as sock:
    print("listening", flush=True)
    asyncio.run(AttachServer("h1", lambda: None).serve(sock))
"""


def test_an_agent_that_runs_out_of_descriptors_recovers(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FEW_DESCRIPTORS, str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as agent:
        try:
            assert agent.stdout
            agent.stdout.readline()
            with contextlib.ExitStack() as stack:
                flood(path, stack, 100, first_byte)
            eventually(lambda: talk(path, json.dumps(REQUEST).encode() + b"\n").get("attached"))
            assert agent.poll() is None
        finally:
            agent.kill()


@pytest.mark.parametrize(("hard", "most"), [(resource.RLIM_INFINITY, module.MAX_CONNECTIONS), (4096, 1792), (64, 16)])
def test_connections_are_no_more_than_descriptors_allow(
    path: Path, monkeypatch: pytest.MonkeyPatch, hard: int, most: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    served = Served(path)
    lease = attach("s", "t", 0, path=str(path))
    served.stop()
    assert lease is not None
    lease.close()
    assert served.server._most_connections == most


def test_a_path_has_one_agent_and_is_free_after_it(served: Served, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOCK_PATIENCE_S", 0.05)
    with pytest.raises(InputError, match=r"attach: .*no other agent listens"), listening(path):
        pass
    kept = attach("s", "t", 0, path=str(path))
    assert kept is not None, "the first one still listens"
    kept.close()
    served.stop()
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))  # as a killed agent leaves it
    with listening(path):
        assert path.is_socket()
    assert list(path.parent.iterdir()) == [], "neither a socket nor a lock is left"


def test_a_lock_that_its_holder_removed_meanwhile_is_no_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock
    removed: list[int] = []

    def remove_first(descriptor: int, operation: int) -> None:  # as if its holder ended between opening and locking
        if not removed:
            lock = Path(f"{path}.lock")
            removed.append(lock.stat().st_ino)
            lock.rename(path.parent / "removed")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    monkeypatch.setattr(module, "_LOCK_PATIENCE_S", 0.05)
    with listening(path):
        assert removed
        assert Path(f"{path}.lock").exists()
        with pytest.raises(InputError, match="no other agent listens"), listening(path):
            pass
        assert path.is_socket()


def test_what_is_no_socket_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("somebody's")
    with pytest.raises(InputError, match="attach"), listening(path):
        pass
    assert path.read_text() == "somebody's"
    for impossible in (path / "below", path.parent / ("long" * 40)):
        with pytest.raises(InputError, match="attach"), listening(impossible):
            pass


def test_without_an_agent_there_is_no_lease(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    began = time.monotonic()
    assert attach("s", "t", 0, path=str(path)) is None
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    assert attach("s", "t", 0, path=str(path)) is None
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{path}2")
        silent.listen()
        assert attach("s", "t", 0, path=f"{path}2") is None
    assert time.monotonic() - began < 10 * client.CONNECT_S
    assert caplog.text == "", "the caller says what is missing"


def test_the_variable_names_the_agent(served: Served, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(client.AGENT_VARIABLE, str(path))
    lease = attach("s", "t", 0)
    assert lease is not None
    lease.close()


def test_a_refusal_is_logged_and_no_lease(served: Served, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert attach("s", "a\nb", 0, path=str(path)) is None
    assert "trial: got 'a\\nb'" in caplog.text
    assert attach("s", "t", object(), path=str(path)) is None  # type: ignore[arg-type]


def test_the_process_attaches_again_to_the_next_agent(served: Served, path: Path) -> None:
    lease = attach("s", "t", 0, path=str(path))
    assert lease is not None
    served.stop()
    eventually(lambda: not lease.attached)
    following = Served(path)
    try:
        eventually(lambda: lease.attached)
        assert following.leases == (own(),)
        lease.close()
        eventually(lambda: following.leases == ())
    finally:
        following.stop()


def test_a_forked_child_leaves_the_lease_to_its_parent(served: Served, path: Path) -> None:
    lease = attach("s", "t", 0, path=str(path))
    assert lease is not None
    assert lease._socket is not None
    descriptor = lease._socket.fileno()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        closed = not os.path.exists(f"/proc/self/fd/{descriptor}")
        mine = attach("s", "t", 1, path=str(path))
        os.write(writing, json.dumps([closed, lease.attached, mine is not None]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert json.loads(os.read(reading, 100)) == [True, False, True]
    os.close(reading)
    os.close(writing)
    assert lease.attached
    eventually(lambda: served.leases == (own(),))
    lease.close()
    eventually(lambda: served.leases == ())


def test_a_lease_that_was_closed_while_the_agent_was_away_stays_closed(served: Served, path: Path) -> None:
    lease = attach("s", "t", 0, path=str(path))
    assert isinstance(lease, AgentLease)
    served.stop()
    eventually(lambda: not lease.attached)
    lease.close()
    following = Served(path)
    try:
        time.sleep(4 * client.FIRST_PAUSE_S)
        assert following.leases == ()
    finally:
        following.stop()


def test_a_process_describes_itself_as_its_agent_would_find_it(tmp_path: Path) -> None:
    found = own().process
    assert describe_process() == Process(found.pid, found.start, found.namespace)
    parent = Procfs().status(os.getppid())
    assert parent is not None
    assert describe_process(os.getppid()) == Process(os.getppid(), parent.start, found.namespace)
    assert describe_process(7, tmp_path) == Process(7, 0, 0), "without /proc nothing is known"


@pytest.mark.parametrize("rank", [0, MAX_RANK])
def test_a_request_is_what_was_said(rank: int) -> None:
    request = parse_request(json.dumps(REQUEST | {"rank": rank, "run": "7"}).encode()).message
    assert request is not None
    assert (request.study, request.trial, request.rank, request.run) == ("s", "t", rank, "7")
