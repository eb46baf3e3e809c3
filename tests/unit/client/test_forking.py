"""The client in a process that forks at any moment: both processes go on, each with a client that sends its own requests."""

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from beamer.client.forking import Gate
from tests.support.fake_controller import PATIENCE_S, FakeBeamer

# Forks while a name is being resolved. `lock`: a name service's module holds a lock meanwhile, which the child inherits.
RESOLVING = """
import contextlib, os, socket, sys, threading, time
lock = threading.Lock() if sys.argv[2] == "lock" else contextlib.nullcontext()
entered = threading.Event()
resolve = socket.getaddrinfo
def resolve_slowly(*args, **options):
    with lock:
        entered.set()
        time.sleep(float(sys.argv[3]))
        return resolve(*args, **options)
socket.getaddrinfo = resolve_slowly
from beamer.client import Client
client = Client(sys.argv[1], timeout_s=2.0)
client.study("parent")
assert entered.wait(30)
child = os.fork()
if child == 0:
    client.study("child")
    grandchild = os.fork()
    if grandchild == 0:
        client.study("grandchild")
        os._exit(0 if client.flush(30) else 3)
    sent = client.flush(30)
    _, status = os.waitpid(grandchild, 0)
    os._exit(os.waitstatus_to_exitcode(status) or (0 if sent else 2))
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), client.flush(30))
"""

# Forks at random moments while requests flow, each child being killed if it does not end.
FLOWING = """
import os, random, sys, threading, time
from beamer.client import Client
rng = random.Random(7)
client = Client(sys.argv[1], timeout_s=20.0)
stop = threading.Event()
def flow():
    for i in range(100_000):
        if stop.wait(0.0005):
            return
        client.study(f"parent{i}")
thread = threading.Thread(target=flow)
thread.start()
failed = []
for number in range(40):
    time.sleep(rng.uniform(0, 0.01))
    child = os.fork()
    if child == 0:
        client.study(f"child{number}a")
        client.study(f"child{number}b")
        os._exit(0 if client.flush(60) else 1)
    deadline = time.monotonic() + 90
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None and time.monotonic() < deadline:
        time.sleep(0.001)
    if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        os.kill(child, 9)
    failed += [number] if os.waitpid(child, 0)[1] else []
stop.set()
thread.join()
print(failed, client.flush(90))
"""


# Forks while the sender logs through a handler that has a lock of its own, as a stream's buffer has.
LOGGING = """
import logging, os, sys, threading, time
from beamer.client import Client
lock = threading.Lock()
logged = threading.Event()
class Slow(logging.Handler):
    def emit(self, record):
        with lock:
            logged.set()
            time.sleep(0.03)
logging.getLogger("beamer.client").addHandler(Slow())
failed = 0
for number in range(10):
    logged.clear()
    client = Client("http://127.0.0.1:9", timeout_s=5.0)
    client.study("s")
    assert logged.wait(20)
    child = os.fork()
    if child == 0:
        threading.Timer(30.0, os._exit, (1,)).start()
        logging.getLogger("beamer.client").warning("the child's")
        os._exit(0)
    failed += os.waitpid(child, 0)[1] != 0
    client.close(0)
print(failed)
"""

# Counts the sockets that a forked child has.
CONNECTED = """
import os, sys
from beamer.client import Client
client = Client(sys.argv[1], timeout_s=20.0)
client.study("s")
assert client.flush(20)
def sockets():
    listed = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return [path for path in listed if os.path.islink(path) and os.readlink(path).startswith("socket:")]
held = sockets()
child = os.fork()
if child == 0:
    os._exit(len(sockets()))
print(len(held), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
client.study("t")
assert client.flush(20)
"""


@pytest.fixture
def beamer() -> Iterator[FakeBeamer]:
    fake = FakeBeamer()
    yield fake
    fake.stop()


def run(script: str, beamer: FakeBeamer, *args: str) -> str:
    url = beamer.url.replace("127.0.0.1", "localhost")
    ended = subprocess.run([sys.executable, "-c", script, url, *args], capture_output=True, text=True, check=False, timeout=180)
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr
    return ended.stdout.strip()


@pytest.mark.parametrize("resolves_s", ["0.005", "0.5", "4.0"])
@pytest.mark.parametrize("lock", ["lock", "no"])
def test_a_fork_while_a_name_is_resolved(beamer: FakeBeamer, lock: str, resolves_s: str) -> None:
    assert run(RESOLVING, beamer, lock, resolves_s) == "0 True"
    assert sorted(beamer.paths()) == ["/v1/studies/child", "/v1/studies/grandchild", "/v1/studies/parent"]


def test_forks_at_random_moments_while_requests_flow(beamer: FakeBeamer) -> None:
    assert run(FLOWING, beamer) == "[] True"
    paths = Counter(path.rpartition("/")[2] for path in beamer.paths())
    children = {name for name in paths if name.startswith("child")}
    assert children == {f"child{number}{letter}" for number in range(40) for letter in "ab"}
    parents = [name for name in paths if name.startswith("parent")]
    assert len(parents) > 40, "nothing flowed"
    assert sorted(parents, key=lambda name: int(name[6:])) == [f"parent{i}" for i in range(len(parents))]
    assert set(paths.values()) == {1}, "something was sent twice"


def test_a_child_may_log_whatever_the_sender_logged_at_the_fork(beamer: FakeBeamer) -> None:
    assert run(LOGGING, beamer) == "0"


def test_a_childs_connections_are_its_own(beamer: FakeBeamer) -> None:
    assert run(CONNECTED, beamer) == "1 0"


@pytest.fixture
def gate() -> Gate:
    return Gate(patience_s=PATIENCE_S)


def forked(gate: Gate) -> bool:
    """Fork; return whether the child finds the gate free and was not interrupted."""
    child = os.fork()
    if child == 0:
        with gate.inside():
            os._exit(1 if gate.interrupted else 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_fork_waits_until_a_thread_is_outside(gate: Gate) -> None:
    inside, left = threading.Event(), threading.Event()

    def hold() -> None:
        with gate.inside():
            inside.set()
            time.sleep(0.2)
            left.set()
            with gate.outside():
                time.sleep(0.5)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(PATIENCE_S)
    assert forked(gate)
    assert left.is_set(), "it was not waited for"
    thread.join()
    assert forked(gate)


def test_a_fork_that_lost_its_patience_is_known_to_all_descendants() -> None:
    gate = Gate(patience_s=0.01)
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with gate.inside():
            inside.set()
            assert leave.wait(PATIENCE_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(PATIENCE_S)
    child = os.fork()
    if child == 0:
        os._exit(0 if gate.interrupted and not forked(gate) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    leave.set()
    thread.join()
    assert forked(gate), "the parent's gate is as it was"


def test_several_threads_are_inside_at_once(gate: Gate) -> None:
    met = threading.Barrier(2, timeout=PATIENCE_S)

    def meet() -> None:
        with gate.inside():
            met.wait()

    thread = threading.Thread(target=meet)
    thread.start()
    meet()
    thread.join()
    assert not met.broken


def test_a_thread_that_is_inside_may_fork_itself(gate: Gate) -> None:
    with gate.inside():
        child = os.fork()
        if child == 0:
            with gate.outside():
                pass
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert forked(gate)
