"""Which process belongs to whom, over real processes and over a /proc that a test writes."""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamer.network.protocol import LocalWorker
from beamer.studies.model import Process
from hostagent.workers.members import LISTINGS, MAX_UNLISTED, ProcessTrees, WorkerProcesses
from hostagent.workers.procfs import Procfs

OWN, CONTAINER = 4026531836, 4026532000
NETWORK = 4026531840
UID = os.getuid()
# Starts a child, prints its process id, and exits when a line comes, leaving the child behind.
ORPHANING = "import subprocess, sys; c = subprocess.Popen(['sleep', '60']); print(c.pid, flush=True); sys.stdin.readline()"


class FakeProc:
    """A directory that reads like /proc; the agent is in namespaces OWN and NETWORK and control group /agent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.uids: dict[int, int] = {}
        self.ended = itertools.count()
        self.add("self", 0, 1, cgroup="/agent")
        self.add("thread-self", 0, 1)

    def add(
        self,
        pid: int | str,
        parent: int,
        start: int,
        *,
        namespace: int = OWN,
        network: int = NETWORK,
        cgroup: str = "/",
        state: str = "S",
        threads: int = 1,
    ) -> None:
        """Start a process, in place of another of its id."""
        self.end(pid)
        entry = self.path / str(pid)
        (entry / "ns").mkdir(parents=True)
        (entry / "ns" / "pid").symlink_to(f"pid:[{namespace}]")
        (entry / "ns" / "net").symlink_to(f"net:[{network}]")
        (entry / "cgroup").write_text(f"4:memory:/\n0::{cgroup}\n")
        (entry / "stat").write_text(f"{pid} (a ) b) {state} {parent} {'0 ' * 15}{threads} 0 {start} 0 0\n")

    def end(self, pid: int | str) -> None:
        entry = self.path / str(pid)
        if entry.exists():  # aside, so that its inode number is not given again
            entry.rename(self.path / f"ended-{next(self.ended)}")

    def read(self) -> Procfs:
        fake = self

        class Owned(Procfs):
            def uid(self, pid: int) -> int | None:
                found = super().uid(pid)
                return found if found is None else fake.uids.get(pid, found)

        return Owned(self.path)


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    made = FakeProc(tmp_path)
    made.add(1, 0, 1)
    return made


def worker(
    pid: int, start: int = 10, *, job: str = "s/a", rank: int = 0, namespace: int = OWN, uid: int | None = None
) -> LocalWorker:
    return LocalWorker(job=job, rank=rank, process=Process(pid, start, namespace, uid), klass=0)


def watching(proc: FakeProc, *workers: LocalWorker) -> WorkerProcesses:
    made = WorkerProcesses(proc.read())
    made.assign(workers)
    return made


def owners(processes: WorkerProcesses) -> dict[int, str]:
    return {member.pid: member.worker.job for member in processes.members()}


def test_a_process_belongs_to_its_nearest_registered_ancestor() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ORPHANING], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout
        assert parent.stdin
        child = int(parent.stdout.readline())
        trees: ProcessTrees[str] = ProcessTrees()

        def members(**roots: int) -> dict[int, str]:
            trees.refresh()
            return dict(trees.members({pid: name for name, pid in roots.items()}))

        try:
            assert members(worker=parent.pid) == {parent.pid: "worker", child: "worker"}
            nested = members(outer=os.getpid(), worker=parent.pid)
            assert nested[os.getpid()] == "outer"
            assert nested[child] == "worker"
            assert members(outer=os.getpid())[child] == "outer"
            assert members() == {}
            members(worker=parent.pid)
            parent.stdin.write("\n")
            parent.stdin.close()
            parent.wait()
            trees.refresh()
            assert trees.members({}, ["worker"]) == {child: "worker"}, "an orphan stays its worker's"
        finally:
            os.kill(child, 9)


def test_what_an_orphan_starts_is_the_workers_too(proc: FakeProc) -> None:
    proc.add(100, 1, 10)
    proc.add(101, 100, 11)
    processes = watching(proc, worker(100, 10))
    assert owners(processes) == {100: "s/a", 101: "s/a"}
    proc.end(100)
    proc.add(102, 101, 20)
    assert owners(processes) == {101: "s/a", 102: "s/a"}
    assert processes.gone == (("s/a", 0),)
    processes.assign(())
    assert owners(processes) == {}
    assert processes.gone == ()


def test_a_process_of_another_start_time_is_not_the_worker(proc: FakeProc) -> None:
    proc.add(100, 1, 10)
    proc.add(200, 1, 10)
    processes = watching(proc, worker(100, 9), worker(200, 10, job="s/b"))
    assert owners(processes) == {200: "s/b"}
    assert processes.gone == (("s/a", 0),)
    assert processes.refused == {}


def test_a_reused_process_id_is_not_the_worker(proc: FakeProc) -> None:
    proc.add(100, 1, 10)
    processes = watching(proc, worker(100, 10))
    assert owners(processes) == {100: "s/a"}
    proc.add(100, 1, 30)
    proc.add(101, 100, 31)
    assert owners(processes) == {}
    assert processes.gone == (("s/a", 0),)


def test_one_that_was_gone_when_it_was_looked_for_does_not_come_with_the_next_of_its_id(proc: FakeProc) -> None:
    processes = watching(proc, worker(100))
    assert owners(processes) == {}
    proc.add(100, 1, 30)
    assert owners(processes) == {}
    assert processes.gone == (("s/a", 0),)


def test_a_child_whose_id_was_reused_is_a_bystander(proc: FakeProc) -> None:
    proc.add(100, 1, 10)
    proc.add(101, 100, 11)
    processes = watching(proc, worker(100, 10))
    assert owners(processes) == {100: "s/a", 101: "s/a"}
    proc.add(101, 1, 30)
    assert owners(processes) == {100: "s/a"}


def test_a_bystander_with_the_id_of_a_parent_that_ended_passes_nothing_on(proc: FakeProc) -> None:
    proc.add(50, 1, 5)
    proc.add(60, 50, 6)
    proc.add(100, 1, 10)
    processes = watching(proc, worker(100, 10))
    assert owners(processes) == {100: "s/a"}
    proc.add(50, 100, 40)  # a child of the worker's by now; 60 was the earlier 50's
    assert owners(processes) == {50: "s/a", 100: "s/a"}
    processes.assign([worker(100, 10), worker(60, 6, job="s/b")])
    assert owners(processes) == {50: "s/a", 60: "s/b", 100: "s/a"}
    processes.assign([worker(100, 10)])
    assert owners(processes) == {50: "s/a", 100: "s/a"}


@pytest.mark.parametrize(("state", "threads", "there"), [("Z", 1, False), ("X", 1, False), ("Z", 3, True), ("S", 1, True)])
def test_a_process_that_waits_to_be_reaped_is_gone(proc: FakeProc, state: str, threads: int, there: bool) -> None:
    proc.add(100, 1, 10, state=state, threads=threads)
    processes = watching(proc, worker(100, 10))
    assert owners(processes) == ({100: "s/a"} if there else {})
    assert processes.gone == (() if there else (("s/a", 0),))


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (worker(1), "process 1"),
        (worker(0), "process 0"),
        (worker(-5), "process -5"),
        (worker(100, 0), "no start time"),
        (worker(100, namespace=0), "no start time"),
        (worker(100, namespace=CONTAINER), "attach through the agent"),
        (worker(100, 10, uid=UID + 1), "user"),
    ],
)
def test_who_is_refused_is_named_and_nobody_else_is_touched(proc: FakeProc, refused: LocalWorker, reason: str) -> None:
    proc.add(100, 1, 10)
    proc.add(200, 1, 10)
    processes = watching(proc, refused, worker(200, 10, job="s/b"))
    assert owners(processes) == {200: "s/b"}
    assert processes.gone == ()
    assert list(processes.refused) == [("s/a", 0)]
    assert reason in processes.refused["s/a", 0]


def test_no_process_of_another_user_is_a_member(proc: FakeProc) -> None:
    for pid, parent in ((100, 1), (101, 100), (102, 101)):
        proc.add(pid, parent, pid)
    proc.uids = {101: UID + 1}
    processes = watching(proc, worker(100, 100))
    assert owners(processes) == {100: "s/a", 102: "s/a"}
    proc.uids = {100: UID + 1}
    assert owners(processes) == {}
    assert "user" in processes.refused["s/a", 0], "it keeps to the user that it was first found with"


def test_a_worker_in_another_network_namespace_is_refused_for_as_long_as_it_is_there(proc: FakeProc) -> None:
    proc.add(100, 1, 10, network=NETWORK + 1)
    proc.add(101, 100, 11)
    proc.add(200, 1, 10)
    processes = watching(proc, worker(100, 10), worker(200, 10, job="s/b"))
    assert owners(processes) == {200: "s/b"}
    assert list(processes.refused) == [("s/a", 0)]
    assert "another network namespace than the agent" in processes.refused["s/a", 0]
    assert processes.gone == ()
    proc.add(100, 1, 10)
    assert owners(processes) == {100: "s/a", 101: "s/a", 200: "s/b"}
    assert processes.refused == {}


def test_a_member_in_another_network_namespace_is_left_out(proc: FakeProc) -> None:
    proc.add(100, 1, 10)
    proc.add(101, 100, 11, network=NETWORK + 1)
    proc.add(102, 101, 12)
    processes = watching(proc, worker(100, 10))
    assert owners(processes) == {100: "s/a", 102: "s/a"}
    assert processes.refused == {}


@pytest.mark.parametrize(("uid", "told"), [(0, True), (UID + 2, False)])
def test_one_that_reads_as_roots_may_not_be_dumpable(proc: FakeProc, uid: int, told: bool) -> None:
    proc.add(100, 1, 10)
    proc.uids = {100: uid}
    processes = watching(proc, worker(100, 10, uid=UID + 1))
    assert owners(processes) == {}
    assert ("not dumpable" in processes.refused["s/a", 0]) == told


def test_of_two_workers_in_one_process_the_first_one_assigned_has_it(proc: FakeProc) -> None:
    proc.add(100, 1, 10)
    processes = watching(proc, worker(100, 10, job="s/b"))
    assert owners(processes) == {100: "s/b"}
    processes.assign([worker(100, 10), worker(100, 10, job="s/b")])
    assert owners(processes) == {100: "s/b"}
    assert "worker 0 of s/b" in processes.refused["s/a", 0]
    processes.assign([worker(100, 10)])
    assert owners(processes) == {100: "s/a"}
    assert processes.refused == {}


@pytest.fixture
def container(proc: FakeProc) -> Iterator[FakeProc]:
    """Add a container, 300 with the child 301, and 302 without a parent in it; and bystanders."""
    proc.add(300, 250, 10, namespace=CONTAINER, cgroup="/box/one")
    proc.add(301, 300, 11, namespace=CONTAINER, cgroup="/box/one")
    proc.add(302, 1, 12, namespace=CONTAINER, cgroup="/box/one/below")
    proc.add(400, 1, 10, namespace=CONTAINER + 1, cgroup="/box/one2")
    proc.add(401, 1, 10, namespace=CONTAINER + 1, cgroup="/box")
    proc.add(402, 1, 10, cgroup="/box/one")  # of the host, moved there
    return proc


def test_a_container_is_its_control_group(container: FakeProc) -> None:
    container.add(303, 1, 13, namespace=CONTAINER, cgroup="/box/one")
    container.uids = {303: UID + 1}
    processes = watching(container, worker(300, 10))
    assert owners(processes) == {300: "s/a", 301: "s/a", 302: "s/a"}
    container.end(300)
    assert owners(processes) == {301: "s/a", 302: "s/a"}
    container.add(302, 1, 12, namespace=CONTAINER, cgroup="/other")
    processes.forget_cgroups()
    assert owners(processes) == {301: "s/a"}


def test_of_nested_containers_the_nearest_counts_and_a_shared_one_is_nobodys(container: FakeProc) -> None:
    container.add(310, 1, 10, namespace=CONTAINER, cgroup="/box/one/below")
    processes = watching(container, worker(300, 10), worker(310, 10, job="s/b"))
    assert owners(processes) == {300: "s/a", 301: "s/a", 302: "s/b", 310: "s/b"}
    container.add(311, 1, 10, namespace=CONTAINER, cgroup="/box/one/below")
    processes.assign([worker(310, 10, job="s/b"), worker(311, 10, job="s/c")])
    assert owners(processes) == {310: "s/b", 311: "s/c"}


@pytest.mark.parametrize("cgroup", ["/", "/agent"])
def test_where_control_groups_are_not_apart_a_container_is_its_process_tree(proc: FakeProc, cgroup: str) -> None:
    proc.add(300, 250, 10, namespace=CONTAINER, cgroup=cgroup)
    proc.add(301, 300, 11, namespace=CONTAINER, cgroup=cgroup)
    proc.add(302, 1, 12, namespace=CONTAINER, cgroup=cgroup)
    assert owners(watching(proc, worker(300, 10))) == {300: "s/a", 301: "s/a"}


def test_the_kernels_own_proc_is_read_like_that() -> None:
    proc = Procfs()
    status = proc.status(os.getpid())
    assert status is not None
    assert status.parent == os.getppid()
    assert not status.ended
    assert proc.uid(os.getpid()) == os.geteuid()
    assert proc.namespace(os.getpid()) == proc.own_namespace == os.stat("/proc/self/ns/pid").st_ino
    assert proc.network(os.getpid()) == proc.own_network == os.stat("/proc/self/ns/net").st_ino
    assert proc.cgroups(os.getpid()) == proc.own_cgroups
    assert all(path.startswith("/") for path in proc.own_cgroups.values())
    assert proc.inodes()[os.getpid()] == os.stat(f"/proc/{os.getpid()}").st_ino
    nobody = 2**22 + 1
    assert (proc.status(nobody), proc.uid(nobody), proc.namespace(nobody), proc.cgroups(nobody)) == (None, None, 0, {})
    assert proc.network(nobody) == 0


def test_processes_are_listed_when_one_was_made_and_once_in_a_while(proc: FakeProc) -> None:
    listed = 0

    class Counted(Procfs):
        def inodes(self) -> dict[int, int]:
            nonlocal listed
            listed += 1
            return super().inodes()

    proc.add(100, 1, 10)
    (proc.path / "loadavg").write_text("0.10 0.20 0.30 1/200 100\n")
    trees: ProcessTrees[str] = ProcessTrees(Counted(proc.path))
    for _ in range(LISTINGS + MAX_UNLISTED):
        trees.refresh()
    assert listed == LISTINGS
    proc.add(101, 100, 20)
    (proc.path / "loadavg").write_text("0.10 0.20 0.30 1/201 101\n")
    trees.refresh()
    assert trees.members({100: "a"}) == {100: "a", 101: "a"}
    proc.add(5000, 100, 30)  # of a chosen id
    for _ in range(LISTINGS + MAX_UNLISTED):
        trees.refresh()
    assert 5000 in trees.members({100: "a"})


def test_processes_are_listed_every_time_where_it_is_not_known_which_was_made_last(proc: FakeProc) -> None:
    trees: ProcessTrees[str] = ProcessTrees(proc.read())
    for pid in range(100, 105):
        proc.add(pid, 1, pid)
        trees.refresh()
        assert pid in trees.alive
