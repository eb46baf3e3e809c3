"""Real workers that attach to a real agent, as processes, in containers, as other users; and processes that are not workers."""

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from beamer.network.protocol import Connections, Counters, LocalWorker, WorkerId, WorkerLease, Workers
from beamer.studies.model import Process
from hostagent.marks.diagnostics import Diagnostics
from hostagent.marks.socket_marks import UNMARKED, Mark
from hostagent.workers.procfs import Procfs
from tests.netns.bench import Bench, eventually, mark_of

pytestmark = pytest.mark.netns

NOBODY = 65534
# Attaches if it is told as whom, connects, says so, and does what it is told. What it imports is imported as root: another user
# may not be able to read it.
TRAINER = """
import json, os, socket, sys, time
rank, uid = sys.argv[1:]
if rank:
    from beamer.client import lease
    lease.CONNECT_S = 20.0  # a machine may be overloaded
if int(uid): os.setuid(int(uid))
def say(*what): print(json.dumps(what), flush=True)
def connected():
    line = socket.socket()
    line.connect(("10.77.0.2", 5000))
    return line, line.getsockname()[1]
lease = lease.attach("s", "t", int(rank)) if rank else None
line, port = connected()
say(port, lease is not None, os.getpid(), os.stat("/proc/self/ns/pid").st_ino)
for command in sys.stdin:
    match command.split():
        case ["child", uid]:
            if os.fork() == 0:
                if int(uid): os.setuid(int(uid))
                other, port = connected()
                say(port)
                time.sleep(600)
        case ["hand-over"]:
            if os.fork() == 0:
                say("handed over")
                time.sleep(600)
            line.close()
        case ["detach"]:
            lease.close()
            say("detached")
        case ["send", count]:
            line.sendall(bytes(int(count)))
            say("sent")
"""


class Trainer:
    """A process that connects and, if it has a rank, attaches."""

    def __init__(
        self,
        bench: Bench,
        agent: Path,
        rank: int | None = 0,
        *,
        uid: int = 0,
        prefix: tuple[str, ...] = (),
        cgroup: Path | None = None,
        pid: int | None = None,
    ) -> None:
        """Start it, in a control group if there is one, with process id `pid` if that is free."""
        bench.wait_for_sinks()
        arguments = ("-c", TRAINER, "" if rank is None else str(rank), str(uid))
        if pid is not None:
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        waiting = ("sh", "-c", 'read go; exec "$@"', "sh") if cgroup else ()
        self.process = bench.start(bench.here, *arguments, prefix=(*waiting, *prefix), BEAMER_AGENT=str(agent))
        if cgroup is not None:
            (cgroup / "cgroup.procs").write_text(str(self.process.pid))
            assert self.process.stdin
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        self.port, self.attached, self.pid_inside, self.namespace = self.heard()
        self.pid = self.process.pid

    def heard(self) -> list[int]:
        assert self.process.stdout
        return list(json.loads(self.process.stdout.readline()))

    def tell(self, command: str) -> list[int]:
        """Send a command and return the answer."""
        assert self.process.stdin
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return self.heard()

    def described(self) -> Process:
        """Return the process as it would describe itself over HTTP."""
        status = Procfs().status(self.pid)
        assert status is not None
        return Process(self.pid, status.start, self.namespace)


@pytest.fixture
def agent_socket() -> Iterator[Path]:
    """Return a path that every user can reach."""
    with tempfile.TemporaryDirectory(prefix="beamer-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory) / "agent.sock"


def agent(bench: Bench, at: Path, *, prefix: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    return bench.agent("--attach", str(at), prefix=prefix)


def lease_of(bench: Bench, pid: int, after: int = 0) -> WorkerLease:
    """Wait until the agent has reported the lease of a process."""

    def leases(report: Workers) -> list[WorkerLease]:
        return [lease for lease in report.leases if lease.process.pid == pid]

    return leases(bench.controller.wait(Workers, lambda m: bool(leases(m)), after))[0]


def local(process: Process, klass: int = 3, job: str = "s/t", rank: int = 0) -> LocalWorker:
    return LocalWorker(job=job, rank=rank, process=process, klass=klass)


def marks(bench: Bench) -> dict[int, Mark]:
    """Return the marks of the connections to the sink over there, by local port."""

    def read() -> dict[int, Mark]:
        diagnostics = Diagnostics()
        try:
            return {s.ends[1]: s.mark for s in diagnostics.tcp_sockets().values() if s.ends[2:] == ("10.77.0.2", 5000)}
        finally:
            diagnostics.close()

    return bench.here.call(read)


def marked(bench: Bench, *trainers: Trainer | int) -> set[int]:
    """Wait until the connections of `trainers` are marked."""
    ports = {trainer if isinstance(trainer, int) else trainer.port for trainer in trainers}
    eventually(lambda: {port for port, mark in marks(bench).items() if mark != UNMARKED} >= ports)
    return ports


def only_marked(bench: Bench) -> set[int]:
    return {port for port, mark in marks(bench).items() if mark != UNMARKED}


def settle(bench: Bench) -> None:
    """Wait for two more reports of counters: whatever an agent does has been done then."""
    for _ in range(2):
        bench.controller.wait(Counters, after=len(bench.controller.received))


@pytest.mark.parametrize("uid", [0, NOBODY])
def test_an_attached_process_is_marked_and_detached_it_is_not(bench: Bench, agent_socket: Path, uid: int) -> None:
    agent(bench, agent_socket)
    trainer = Trainer(bench, agent_socket, uid=uid)
    Trainer(bench, agent_socket, rank=None, uid=uid)
    assert trainer.attached
    lease = lease_of(bench, trainer.pid)
    assert (lease.study, lease.trial, lease.rank) == ("s", "t", 0)
    assert lease.process == Process(trainer.pid, trainer.described().start, trainer.namespace, uid, leased=True)
    applied = bench.controller.applied(bench.assign(1, local(lease.process)))
    assert applied.error is None
    marked(bench, trainer)
    settle(bench)
    assert only_marked(bench) == {trainer.port}
    after = len(bench.controller.received)
    trainer.tell("detach")
    bench.controller.wait(Workers, lambda m: not m.leases, after)
    assert only_marked(bench) == {trainer.port}, "the controller has not said that the attempt has ended"
    assert bench.controller.applied(bench.assign(2)).changes == 1
    assert only_marked(bench) == set(), "the connection is still open"
    assert trainer.port in marks(bench)


def test_a_killed_worker_is_reported_before_anybody_reaps_it(bench: Bench, agent_socket: Path) -> None:
    agent(bench, agent_socket)
    trainer = Trainer(bench, agent_socket)
    lease = lease_of(bench, trainer.pid)
    bench.controller.applied(bench.assign(1, local(lease.process)))
    marked(bench, trainer)
    after = len(bench.controller.received)
    os.kill(trainer.pid, signal.SIGKILL)
    bench.controller.wait(Workers, lambda m: not m.leases, after)
    bench.controller.wait(Workers, lambda m: m.gone == (WorkerId(job="s/t", rank=0),), after)
    bench.controller.wait(Connections, lambda m: m.connections == (), after)


def test_a_worker_attaches_again_to_the_next_agent_and_keeps_its_marks(bench: Bench, agent_socket: Path) -> None:
    first = agent(bench, agent_socket)
    trainer = Trainer(bench, agent_socket)
    lease = lease_of(bench, trainer.pid)
    bench.controller.applied(bench.assign(1, local(lease.process)))
    marked(bench, trainer)
    first.kill()
    first.wait()
    after = len(bench.controller.received)
    agent(bench, agent_socket)
    assert lease_of(bench, trainer.pid, after) == lease
    settle(bench)
    assert only_marked(bench) == {trainer.port}


def test_a_new_process_with_the_old_ones_id_is_a_bystander(bench: Bench, agent_socket: Path) -> None:
    agent(bench, agent_socket)
    trainer = Trainer(bench, agent_socket, rank=None)
    bystander = Trainer(bench, agent_socket, rank=None)
    real = trainer.described()
    wrong = local(Process(bystander.pid, real.start - 1, real.namespace), job="s/wrong")
    bench.controller.applied(bench.assign(1, wrong, local(real)))
    bench.controller.wait(Workers, lambda m: m.gone == (WorkerId(job="s/wrong", rank=0),))
    marked(bench, trainer)

    trainer.process.kill()
    trainer.process.wait()
    reused = None
    deadline = time.monotonic() + 60
    while reused is None:
        assert time.monotonic() < deadline, f"process id {real.pid} was not given again"
        tried = Trainer(bench, agent_socket, rank=None, pid=real.pid)
        if tried.pid == real.pid:
            reused = tried
        else:
            tried.process.kill()
    settle(bench)
    assert only_marked(bench) == set()
    bench.controller.wait(Workers, lambda m: len(m.gone) == 2)


def test_who_names_another_namespaces_process_is_refused_and_nobody_else(bench: Bench, agent_socket: Path) -> None:
    agent(bench, agent_socket)
    good = Trainer(bench, agent_socket, rank=None)
    contained = Trainer(bench, agent_socket, rank=None, prefix=("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"))
    assert contained.pid_inside == 1
    init = local(Process(1), job="s/init")
    inside = local(Process(1, contained.described().start, contained.namespace), job="s/inside")
    other = local(Process(good.pid, good.described().start, contained.namespace), job="s/other")
    applied = bench.controller.applied(bench.assign(1, init, inside, other, local(good.described())))
    assert applied.error is None
    marked(bench, good)
    settle(bench)
    assert only_marked(bench) == {good.port}
    seen = bench.controller.wait(Workers, lambda m: len(m.refused) == 3)
    reasons = {worker.job: reason for worker, reason in seen.refused}
    assert "process 1" in reasons["s/init"]
    assert "process 1" in reasons["s/inside"]
    assert "attach through the agent" in reasons["s/other"]


def test_a_container_attaches_through_the_socket_and_is_its_control_group(
    bench: Bench, agent_socket: Path, cgroup: Path
) -> None:
    agent(bench, agent_socket)
    bystander = Trainer(bench, agent_socket, rank=None)
    # The container's first process is a shell, so that the worker's own tree is not the whole container.
    contain = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", '"$@"; true', "sh")
    trainer = Trainer(bench, agent_socket, prefix=contain, cgroup=cgroup)
    assert trainer.attached
    assert trainer.pid_inside > 1
    (lease,) = bench.controller.wait(Workers, lambda m: bool(m.leases)).leases
    assert lease.process.pid != trainer.pid_inside
    assert lease.process.namespace == Procfs().own_namespace
    namespace = f"/proc/{lease.process.pid}/ns/pid"
    join = ("nsenter", f"--pid={namespace}")
    # Of the container, below nobody of it; of its process namespace alone; of its control group alone; another user's.
    neighbour = Trainer(bench, agent_socket, rank=None, prefix=join, cgroup=cgroup)
    outside = Trainer(bench, agent_socket, rank=None, prefix=join)
    guest = Trainer(bench, agent_socket, rank=None, cgroup=cgroup)
    stranger = Trainer(bench, agent_socket, rank=None, uid=NOBODY, prefix=join, cgroup=cgroup)
    assert bench.controller.applied(bench.assign(1, local(lease.process))).error is None
    ports = marked(bench, trainer, neighbour)
    settle(bench)
    assert only_marked(bench) == ports
    assert marks(bench).keys() >= {t.port for t in (bystander, outside, guest, stranger)}
    bench.controller.applied(bench.assign(2))
    assert only_marked(bench) == set()


def test_no_other_users_process_in_the_tree_is_marked(bench: Bench, agent_socket: Path) -> None:
    agent(bench, agent_socket)
    trainer = Trainer(bench, agent_socket)
    (same,), (other,) = trainer.tell("child 0"), trainer.tell(f"child {NOBODY}")
    lease = lease_of(bench, trainer.pid)
    bench.controller.applied(bench.assign(1, local(lease.process)))
    marked(bench, trainer, same)
    settle(bench)
    assert only_marked(bench) == {trainer.port, same}
    assert other in marks(bench)
    seen = bench.controller.wait(Connections, lambda m: len(m.connections) == 2)
    assert {c.local_port for c in seen.connections} == {trainer.port, same}

    thief = local(replace(lease.process, uid=NOBODY), job="s/thief")
    bench.controller.applied(bench.assign(2, thief))
    assert only_marked(bench) == set()
    seen_workers = bench.controller.wait(Workers, lambda m: bool(m.refused))
    assert "user" in seen_workers.refused[0][1]


def test_marks_come_off_a_connection_that_only_a_child_still_holds(bench: Bench, agent_socket: Path) -> None:
    agent(bench, agent_socket)
    trainer = Trainer(bench, agent_socket)
    bench.controller.applied(bench.assign(1, local(lease_of(bench, trainer.pid).process)))
    marked(bench, trainer)
    trainer.tell("hand-over")
    assert bench.controller.applied(bench.assign(2)).changes == 1
    assert marks(bench)[trainer.port] == UNMARKED


def test_a_promoted_trial_keeps_its_marks_without_a_gap(bench: Bench, agent_socket: Path) -> None:
    agent(bench, agent_socket)
    trainer = Trainer(bench, agent_socket)
    process = lease_of(bench, trainer.pid).process
    bench.controller.applied(bench.assign(1, local(process, 5)))
    marked(bench, trainer)
    seen: set[Mark] = set()
    over = threading.Event()

    def sample() -> None:
        while not over.is_set():
            seen.add(marks(bench)[trainer.port])

    sampling = threading.Thread(target=sample)
    sampling.start()
    try:
        for generation, klass in enumerate((5, 2, 4, 0), 2):
            bench.controller.applied(bench.assign(generation, local(process, klass)))
            eventually(lambda klass=klass: marks(bench)[trainer.port] == mark_of(klass))
    finally:
        over.set()
        sampling.join()
    # Between the two calls that set a mark the kernel's own priority shows: of its codepoint there is always one.
    assert {mark.dscp for mark in seen} <= {mark_of(klass).dscp for klass in (5, 2, 4, 0)}


def test_what_a_killed_agent_left_marked_is_unmarked_by_the_next_if_its_attempt_has_ended(
    bench: Bench, agent_socket: Path
) -> None:
    first = agent(bench, agent_socket)
    ended, running = Trainer(bench, agent_socket), Trainer(bench, agent_socket, rank=1)
    left = lease_of(bench, running.pid).process
    bench.controller.applied(bench.assign(1, local(lease_of(bench, ended.pid).process), local(left, job="s/u", rank=1)))
    marked(bench, ended, running)
    first.kill()
    first.wait()
    bench.controller.assign(bench.assign(2, local(left, job="s/u", rank=1)))
    assert only_marked(bench) == {ended.port, running.port}
    agent(bench, agent_socket)
    eventually(lambda: only_marked(bench) == {running.port})


def test_what_a_worker_sends_is_reported_with_the_counters(bench: Bench, agent_socket: Path) -> None:
    agent(bench, agent_socket)
    trainer = Trainer(bench, agent_socket)
    bench.controller.applied(bench.assign(1, local(lease_of(bench, trainer.pid).process)))
    marked(bench, trainer)
    trainer.tell("send 123456")
    seen = bench.controller.wait(Counters, lambda m: any(w.sent_bytes >= 123456 for w in m.workers))
    assert [(w.job, w.rank, w.sent_bytes) for w in seen.workers] == [("s/t", 0, 123456)]


def test_an_agent_that_may_not_reach_a_process_says_so_and_marks_the_others(bench: Bench, agent_socket: Path) -> None:
    without = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")
    agent(bench, agent_socket, prefix=without)
    reachable = Trainer(bench, agent_socket, prefix=without)  # one that may do no more than the agent
    other = Trainer(bench, agent_socket, rank=1, uid=NOBODY)
    workers = [local(lease_of(bench, trainer.pid).process, rank=rank) for rank, trainer in enumerate((reachable, other))]
    assert bench.controller.applied(bench.assign(1, *workers)).error is None
    seen = bench.controller.wait(Workers, lambda m: bool(m.refused))
    assert [worker.rank for worker, _ in seen.refused] == [1]
    assert "CAP_SYS_PTRACE" in seen.refused[0][1]
    marked(bench, reachable)
    settle(bench)
    assert only_marked(bench) == {reachable.port}
    assert other.port in marks(bench)
