"""Acknowledgements of a job whose class is not served leave in class 0, and nothing else does."""

import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from beamer.network.codepoints import LOCAL
from hostagent.marks.acknowledgements import Acknowledgements
from hostagent.marks.socket_marks import Mark, mark
from hostagent.queues.tree import class_id
from tests.netns.bench import PORT, Bench, eventually
from tests.support.namespaces import Namespace, cabled_namespaces

pytestmark = pytest.mark.netns

CLASS = 5
MARK = Mark(class_id(CLASS), LOCAL.of(CLASS))
TABLE = "beamer-data"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with cabled_namespaces("h1", "h2") as spaces, ExitStack() as stack:
        yield Bench(spaces, tmp_path, stack)


def arrived_by_codepoint(space: Namespace) -> dict[int, tuple[int, int]]:
    """Return the packets and bytes that came in with each codepoint since `count_arrivals`."""
    listed = space.run("nft", "-n", "list", "table", "ip", "count")
    found = re.finditer(r"ip dscp (\S+) counter packets (\d+) bytes (\d+)", listed)
    return {int(m[1], 16): (int(m[2]), int(m[3])) for m in found}


def count_arrivals(space: Namespace) -> None:
    counted = "".join(f"ip protocol tcp ip dscp {dscp} counter\n" for dscp in (0, LOCAL.acknowledgement, LOCAL.of(CLASS)))
    chain = f"chain arriving {{\ntype filter hook prerouting priority 0\n{counted}}}\n"
    space.run("nft", f"table ip count {{\n{chain}}}")


def tables(space: Namespace) -> str:
    return space.run("nft", "list", "tables")


def rules(space: Namespace) -> str:
    return space.run("nft", "list", "table", "ip", TABLE)


@pytest.mark.parametrize("timestamps", [0, 1])
def test_only_packets_without_data_leave_in_class_0(bench: Bench, timestamps: int) -> None:
    bench.here.run("sysctl", "-q", "-w", f"net.ipv4.tcp_timestamps={timestamps}")
    bench.agent()
    bench.controller.applied(bench.assign(1))
    with ExitStack() as stack:
        server = stack.enter_context(bench.there.call(lambda: socket.create_server(("10.77.0.2", 6000))))
        ours = stack.enter_context(bench.here.call(socket.socket))
        ours.connect(("10.77.0.2", 6000))
        theirs = stack.enter_context(server.accept()[0])
        mark(ours, MARK)
        count_arrivals(bench.there)
        before = bench.classes()
        for _ in range(50):
            theirs.sendall(bytes(100_000))
            assert len(ours.recv(100_000, socket.MSG_WAITALL)) == 100_000
        eventually(lambda: bench.classes()["1:10"] > before["1:10"])
        acknowledged = arrived_by_codepoint(bench.there)
        assert acknowledged[LOCAL.acknowledgement][0] > 50
        assert acknowledged[LOCAL.of(CLASS)] == acknowledged[0] == (0, 0), "nothing else was sent"
        assert bench.classes()["1:15"] == before["1:15"]

        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for size in (1, 8, 12, 20, 40, 1000):  # as long as some options of an acknowledgement
            ours.sendall(bytes(size))
            assert len(theirs.recv(size, socket.MSG_WAITALL)) == size
        ours.close()  # a FIN is a byte of the stream: it overtakes nothing
        assert theirs.recv(1) == b""
        after = arrived_by_codepoint(bench.there)
        assert after[LOCAL.of(CLASS)][0] == 6 + 1
        assert after[LOCAL.acknowledgement] == acknowledged[LOCAL.acknowledgement]


def test_no_program_gives_itself_the_codepoint(bench: Bench) -> None:
    bench.agent()
    bench.controller.applied(bench.assign(1))
    count_arrivals(bench.there)
    with bench.here.call(socket.socket) as ours:
        ours.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, LOCAL.acknowledgement << 2)
        bench.wait_for_sinks()
        ours.connect(("10.77.0.2", 5000))
        ours.sendall(bytes(10_000))
        eventually(lambda: arrived_by_codepoint(bench.there)[0][1] > 10_000)
    assert arrived_by_codepoint(bench.there)[LOCAL.acknowledgement] == (0, 0)


def test_rules_come_back_and_go_with_the_queues(bench: Bench) -> None:
    agent = bench.agent("--counters", "0.02", expiry_s=1.5)
    bench.controller.applied(bench.assign(1))
    whole = rules(bench.here)
    bench.here.run("nft", "flush", "ruleset")  # as a firewall does when it is loaded again
    eventually(lambda: tables(bench.here) != "" and rules(bench.here) == whole)
    bench.here.run("nft", "flush", "chain", "ip", TABLE, "acknowledgement")
    eventually(lambda: rules(bench.here) == whole)
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    time.sleep(0.5)
    assert TABLE in tables(bench.here), "as long as the queues stay"
    eventually(lambda: TABLE not in tables(bench.here))
    eventually(lambda: "htb" not in bench.here.run("tc", "qdisc", "show", "dev", "data"))


def test_they_go_when_they_are_removed_or_the_interface_is_not_the_agents_any_more(bench: Bench) -> None:
    agent = bench.agent()
    bench.controller.applied(bench.assign(1))
    assert TABLE in tables(bench.here)
    bench.controller.applied(bench.assign(2, ports=()))
    assert tables(bench.here) == ""
    bench.controller.applied(bench.assign(3))
    assert TABLE in tables(bench.here)
    agent.terminate()
    agent.wait()
    bench.remove()
    assert tables(bench.here) == ""


def test_ports_of_switches_have_none(bench: Bench) -> None:
    bench.agent()
    bench.controller.applied(bench.assign(1, ports=(PORT.model_copy(update={"classify": "dscp"}),)))
    assert tables(bench.here) == ""


@pytest.mark.parametrize("interface", ["data", "lo"])
def test_rules_are_made_once_and_removed_twice_and_other_names_are_left_alone(bench: Bench, interface: str) -> None:
    def use() -> list[int]:
        kept = Acknowledgements()
        found = [kept.reconcile(interface), kept.reconcile(interface), kept.reconcile("x;list"), kept.reconcile("a@b")]
        for name in (interface, interface, "x;list"):
            kept.remove(name)
        return found

    assert bench.here.call(use) == [1, 0, 0, 0]
    assert tables(bench.here) == ""


def test_without_nftables_everything_else_goes_on(bench: Bench, tmp_path: Path) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    bench.agent(prefix=("env", f"PATH={bare}"))
    assert bench.controller.applied(bench.assign(1)).error is None
    assert bench.classes()["1:10"] == 0
    assert tables(bench.here) == ""
