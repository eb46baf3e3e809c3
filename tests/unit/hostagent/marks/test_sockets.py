import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass

import pytest

from beamer.client.lease import describe_process
from beamer.errors import PlatformError
from beamer.network.codepoints import LOCAL
from beamer.network.protocol import LocalWorker, WorkerId
from beamer.studies.model import Process
from hostagent.marks import draining
from hostagent.marks import sockets as module
from hostagent.marks.diagnostics import SendProgress
from hostagent.marks.holding import HoldRule, hold, is_held
from hostagent.marks.socket_marks import UNMARKED, Mark, mark, mark_of
from hostagent.marks.sockets import SocketTable
from hostagent.netlink_lists import NetlinkLists
from hostagent.queues.tree import class_id
from hostagent.workers.members import WorkerProcesses
from hostagent.workers.procfs import Procfs
from tests.support.firewall_marks import may_hold
from tests.support.namespaces import add_namespace, entered, namespace_prefix

JOB = "s/j"
OPEN: list[socket.socket] = []  # both ends of each connection, the connecting one first


@dataclass
class Peer:
    """What has become of what each connection sends. under_way: bytes sent and not acknowledged."""

    acked: int = 0
    under_way: int = 0
    now_s: float = 0.0

    def acknowledge(self) -> None:
        self.acked, self.under_way = self.acked + self.under_way, 0

    def send_progress(self, sock: socket.socket) -> SendProgress:
        sent = self.acked + self.under_way
        return SendProgress(self.acked, sent, 0, not self.under_way, False)


class FakeHoldRule(HoldRule):
    """A rule that is installed, or is not, without a kernel."""

    is_installed = True

    def ensure(self, now_s: float, for_s: float) -> bool:
        return self.is_installed


@pytest.fixture(scope="module", autouse=True)
def _own_network() -> Iterator[None]:
    """Have connections where none of other programs are found, also no other test's, where a network may be made for them."""
    programs = shutil.which("ip") and shutil.which("unshare")
    if not programs or subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True).returncode:
        yield
        return
    name = f"{namespace_prefix()}s"
    add_namespace(name)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        with entered(name):
            yield
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.fixture
def rule() -> FakeHoldRule:
    return FakeHoldRule()


@pytest.fixture
def table(rule: FakeHoldRule) -> Iterator[SocketTable]:
    """Watch this process, which holds both ends of two connections."""
    with ExitStack() as stack, closing(SocketTable(rule)) as made:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for _ in range(2):
            OPEN.append(stack.enter_context(socket.create_connection(server.getsockname())))
            OPEN.append(stack.enter_context(server.accept()[0]))
        yield made
        OPEN.clear()


def assign(table: SocketTable, wanted: Mark | None = None, rank: int = 0) -> int:
    worker = LocalWorker(job=JOB, rank=rank, process=describe_process(), klass=0)
    return table.assign([worker], ["127.0.0.1"], table.connections, {JOB: wanted} if wanted else {})


def marks(table: SocketTable) -> set[Mark]:
    return {table._diagnostics.tcp_sockets()[inode].mark for inode in table._matched}


def test_a_refusal_of_the_kernels_is_a_platform_error(table: SocketTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(NetlinkLists, "ask", refuse)
    with pytest.raises(PlatformError, match="inet_diag"):
        assign(table)


def test_a_socket_that_cannot_be_marked_keeps_no_other_from_it(table: SocketTable, monkeypatch: pytest.MonkeyPatch) -> None:
    assign(table)
    assert len(table.connections) == 4
    tried: list[socket.socket] = []

    def fail_first(sock: socket.socket, wanted: Mark) -> bool:
        tried.append(sock)
        if len(tried) == 1:
            raise PlatformError("the first socket", "let no other program set its mark")
        return True

    for each in (module, draining):
        monkeypatch.setattr(each, "mark", fail_first)
    assert assign(table, Mark(3, 11)) == 3
    assert len(tried) == 4
    assert not table.draining
    assert held_back() == 0
    ((worker, reason),) = table.refused
    assert worker == WorkerId(job=JOB, rank=0)
    assert "the first socket" in reason
    assert table.poll() == 1, "what failed is tried again, and nothing else"
    assert table.refused == ()


def test_a_poll_that_finds_the_same_sockets_asks_the_kernel_nothing(
    table: SocketTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    assign(table)
    assign(table, Mark(3, 11))
    monkeypatch.setattr(table._diagnostics, "tcp_sockets", lambda: pytest.fail("asked"))
    assert table.poll() == 0
    assert len(table.connections) == 4


def test_a_mark_that_another_program_changed_is_restored(table: SocketTable) -> None:
    assign(table)
    assign(table, Mark(3, 11))
    client = next(iter(OPEN))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 5)
    assert table.verify() == 1
    assert marks(table) == {Mark(3, 11)}


@pytest.fixture
def peer(table: SocketTable, monkeypatch: pytest.MonkeyPatch) -> Peer:
    """Have each connection send, to a peer that acknowledges what it is told to."""
    made = Peer()
    monkeypatch.setattr(draining, "send_progress", made.send_progress)
    # This process is watched and watches: what the table borrows is not the worker's.
    monkeypatch.setattr(module, "socket_descriptors", lambda _: {os.fstat(s.fileno()).st_ino: s.fileno() for s in OPEN})
    table._clock = lambda: made.now_s
    return made


def held_back() -> int:
    """Return how many connections wait with what they have to send."""
    return sum(map(is_held, OPEN))


@may_hold
def test_what_is_under_way_leaves_before_the_mark_changes(table: SocketTable, peer: Peer) -> None:
    assign(table)
    peer.under_way = 50
    assert assign(table, Mark(3, 11)) == 4
    assert table.draining
    assert held_back() == 4
    table.drain()
    assert marks(table) == {UNMARKED}
    assert table.verify() == 0, "no other program has changed these marks"
    assert table.poll() == 0
    assert table.draining
    peer.acknowledge()
    table.drain()
    assert not table.draining
    assert marks(table) == {Mark(3, 11)}
    assert held_back() == 0
    assert table.unmatched_bytes == {JOB: 4 * 50}


@may_hold
def test_a_change_that_is_taken_back_or_replaced_while_it_waits(table: SocketTable, peer: Peer) -> None:
    assign(table)
    assign(table, Mark(3, 11))
    peer.under_way = 50
    assert assign(table, Mark(2, 19)) == 4
    assert assign(table, Mark(3, 11)) == 0
    assert not table.draining
    assert held_back() == 0
    assert assign(table, Mark(2, 19)) == 4
    peer.now_s += 0.9 * draining.STARVED_S
    assert assign(table, Mark(1, 27)) == 4
    assert held_back() == 4
    peer.now_s += 0.2 * draining.STARVED_S
    table.drain()
    assert marks(table) == {Mark(1, 27)}, "it has waited long enough, whatever for"


@may_hold
def test_whoever_leaves_while_a_mark_waits_keeps_nothing_of_it(table: SocketTable, peer: Peer) -> None:
    assign(table)
    peer.under_way = 50
    assign(table, Mark(3, 11))
    held = set(table._matched)
    assert table.assign((), ("127.0.0.1",), (), {}) == 0
    assert not table.draining
    assert held_back() == 0
    observed = table._diagnostics.tcp_sockets()
    assert {observed[inode].mark for inode in held} == {UNMARKED}


@may_hold
def test_connections_that_the_network_forgets_are_not_marked_any_more(table: SocketTable, peer: Peer) -> None:
    assign(table)
    peer.under_way = 50
    assign(table, Mark(3, 11))
    worker = LocalWorker(job=JOB, rank=0, process=describe_process(), klass=0)
    assert table.assign([worker], ["127.0.0.1"], (), {JOB: Mark(3, 11)}) == 0
    assert not table.draining
    assert held_back() == 0
    assert marks(table) == {UNMARKED}


@may_hold
def test_one_that_cannot_be_marked_is_not_held_again(table: SocketTable, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(sock: socket.socket, wanted: Mark) -> bool:
        raise PlatformError("the socket", "let no other program set its mark")

    assign(table)
    peer.under_way = 50
    assign(table, Mark(3, 11))
    monkeypatch.setattr(draining, "mark", fail)
    monkeypatch.setattr(module, "mark", fail)
    peer.now_s += 2 * draining.STARVED_S
    for _ in range(2):
        table.drain()
        assert not table.draining
        assert held_back() == 0
        assert len(table.refused) == 1
        table.poll()
    monkeypatch.undo()
    table.poll()
    assert marks(table) == {Mark(3, 11)}


@may_hold
def test_a_table_that_is_closed_holds_nothing(table: SocketTable, peer: Peer) -> None:
    assign(table)
    peer.under_way = 50
    assign(table, Mark(3, 11))
    assert held_back() == 4
    table.close()
    assert held_back() == 0


@may_hold
def test_so_many_are_on_their_way_at_once(table: SocketTable, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DRAINING", 3)
    assign(table)
    peer.under_way = 50
    assert assign(table, Mark(3, 11)) == 4
    assert held_back() == 3
    assert marks(table) == {UNMARKED, Mark(3, 11)}


@may_hold
def test_what_a_killed_agent_has_held_goes_on(table: SocketTable) -> None:
    hold(OPEN[0])
    assign(table)
    assert held_back() == 0


@may_hold
def test_what_a_killed_agent_has_held_goes_on_though_its_worker_has_left(table: SocketTable) -> None:
    own = Mark(5, 0)  # its program's
    for each in OPEN[:3]:
        hold(each)
    mark(OPEN[1], Mark(class_id(3), LOCAL.of(3)))
    for each in OPEN[2:]:
        mark(each, own)
    assert table.unmark_leftovers() == 1
    assert held_back() == 0
    assert [mark_of(each) for each in OPEN] == [UNMARKED, UNMARKED, own, own]


@may_hold
def test_where_packets_cannot_be_refused_marks_wait_for_nothing(table: SocketTable, rule: FakeHoldRule, peer: Peer) -> None:
    assign(table)
    peer.under_way = 50
    rule.is_installed = False
    assert assign(table, Mark(3, 11)) == 4
    assert held_back() == 0
    assert marks(table) == {Mark(3, 11)}


def test_marks_go_with_the_worker_and_change_with_its_class(table: SocketTable) -> None:
    assign(table)
    assert assign(table, Mark(3, 11)) == 4
    held = set(table._matched)
    assert assign(table, Mark(2, 19)) == 4, "another class"
    assert marks(table) == {Mark(2, 19)}
    assert table.assign((), ("127.0.0.1",), (), {}) == 4
    observed = table._diagnostics.tcp_sockets()
    assert {observed[inode].mark for inode in held} == {UNMARKED}
    assert table.worker_bytes == ()


def test_marks_of_an_agent_that_was_killed_go_with_the_worker_too(table: SocketTable, rule: FakeHoldRule) -> None:
    assign(table)
    assert assign(table, Mark(class_id(3), LOCAL.of(3))) == 4
    with closing(SocketTable(rule)) as next_table:
        assert assign(next_table) == 0, "what runs on keeps its marks until there is a plan"
        assert next_table.assign((), ("127.0.0.1",), (), {}) == 4
    assert [mark_of(each) for each in OPEN] == 4 * [UNMARKED]


def test_a_worker_may_leave_in_the_moment_in_which_its_connections_close(table: SocketTable) -> None:
    assign(table)
    assign(table, Mark(3, 11))
    OPEN[0].close()
    assert table.assign((), ("127.0.0.1",), (), {}) == 3
    assert table.connections == ()


def test_the_next_worker_in_a_process_is_marked_once_its_connections_are_known(table: SocketTable) -> None:
    assign(table)
    assign(table, Mark(3, 11))
    assert table.assign(
        [LocalWorker(job=JOB, rank=1, process=describe_process(), klass=0)],
        ["127.0.0.1"],
        table.connections,
        {JOB: Mark(3, 11)},
    )
    assert {c.rank for c in table.connections} == {1}
    assert marks(table) == {UNMARKED}
    assert assign(table, Mark(3, 11), rank=1) == 4


def test_bytes_to_other_hosts_are_counted_from_the_assignment_on_and_outlive_their_connection(table: SocketTable) -> None:
    worker = LocalWorker(job=JOB, rank=0, process=describe_process(), klass=0)
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.2", 0)))
        early, late = (stack.enter_context(_connected(server)) for _ in range(2))
        early.sendall(bytes(1000))
        table.assign([worker], ["127.0.0.1", "127.0.0.2"], (), {})
        late.sendall(bytes(300))
        early.sendall(bytes(20))
        OPEN[0].sendall(bytes(4000))
        table.verify()
        found = [(b.job, b.rank, b.sent_bytes) for b in table.worker_bytes]
        assert found == [(JOB, 0, 320)], "what stays on the host is not counted"
        late.close()
        new = stack.enter_context(_connected(server))
        new.sendall(bytes(7))
        table.poll()
        assert table.worker_bytes[0].sent_bytes == 327, "of a connection opened since, everything"
        table.assign([worker], ["127.0.0.1", "127.0.0.2"], (), {}, [["127.0.0.1", "127.0.0.2"]])
        assert table.worker_bytes[0].sent_bytes == 300, "of those that are open, nothing: both addresses are this host's"


def _connected(server: socket.socket) -> socket.socket:
    return socket.create_connection(server.getsockname(), source_address=("127.0.0.1", 0))


def test_ends_of_both_families_are_read(table: SocketTable) -> None:
    listed = table._diagnostics.tcp_sockets()
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        v4 = socket.create_connection(("127.0.0.1", server.getsockname()[1]))
        with v4, server.accept()[0] as accepted:
            v4.sendall(bytes(50))
            new = {inode: found for inode, found in table._diagnostics.tcp_sockets().items() if inode not in listed}
            assert new[os.fstat(v4.fileno()).st_ino].sent_bytes == 50
            found = new[os.fstat(accepted.fileno()).st_ino]
            assert found.ends == ("127.0.0.1", server.getsockname()[1], *v4.getsockname()), "an IPv4 end of an IPv6 socket"
            assert new[os.fstat(server.fileno()).st_ino].ends == ("::", server.getsockname()[1], "::", 0)


@pytest.mark.parametrize(
    ("process", "reason"),
    [(Process(1), "process 1"), (Process(0), "process 0"), (Process(os.getpid(), 5, 5), "attach through the agent")],
)
def test_one_that_is_refused_keeps_no_other_from_its_marks(table: SocketTable, process: Process, reason: str) -> None:
    good = LocalWorker(job=JOB, rank=0, process=describe_process(), klass=0)
    bad = LocalWorker(job="s/other", rank=3, process=process, klass=0)
    for _ in range(2):
        table.assign([bad, good], ["127.0.0.1"], table.connections, {JOB: Mark(3, 11), "s/other": Mark(2, 19)})
    assert marks(table) == {Mark(3, 11)}
    assert {c.job for c in table.connections} == {JOB}
    ((worker, told),) = table.refused
    assert (worker.job, worker.rank) == ("s/other", 3)
    assert reason in told
    assert table.complete


def test_a_worker_in_another_network_namespace_is_reported_and_not_asked_for_again(
    table: SocketTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Procfs, "network", lambda _, pid: 2 if pid == os.getpid() else 1)
    monkeypatch.setattr(table, "_processes", WorkerProcesses())
    assign(table)
    ((worker, reason),) = table.refused
    assert worker == WorkerId(job=JOB, rank=0)
    assert "another network namespace" in reason
    assert table.connections == ()
    assert table.complete
    monkeypatch.setattr(table._diagnostics, "tcp_sockets", lambda: pytest.fail("asked"))
    table.poll()
