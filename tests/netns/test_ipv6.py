"""Connections over IPv6, and over a second IPv4 address, on real switches and a real agent."""

import asyncio
import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from beamer.network.codepoints import LOCAL
from beamer.network.protocol import Port
from controller.openflow.rules import JobRules
from hostagent.marks.draining import MAX_DRAINING_S
from hostagent.marks.holding import HoldRule, hold, release
from hostagent.queues.htb import Queues
from hostagent.queues.tree import class_id, port_tree
from tests.netns.bench import ADDRESSES, PORT, Bench, eventually, local_worker, mark_of
from tests.netns.lab import FABRIC, Lab, Listener
from tests.support.namespaces import cabled_namespaces

pytestmark = pytest.mark.netns

FURTHER = {"h1": ("fd00::1", "10.50.1.1"), "h2": ("fd00::2", "10.50.1.2")}
NETWORK = replace(FABRIC, hosts=tuple(replace(host, addresses=FURTHER[host.name]) for host in FABRIC.hosts))
URGENT, OTHER, SECOND, NOBODYS = 7100, 7200, 7300, 7400
KILOBYTES = 40

# Takes what is sent to some ports; prints the codepoints of the packets that arrived for each, once told to end.
SERVER = """
import collections, json, socket, sys, threading
seen, packets = collections.defaultdict(set), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
def watch():
    while True:
        frame, where = packets.recvfrom(65535)
        family, version = frame[12:14], frame[14] >> 4
        at, kind = (54, 20) if family == b"\\x86\\xdd" else (34, 23)
        if where[2] == socket.PACKET_OUTGOING or family not in (b"\\x86\\xdd", b"\\x08\\x00") or frame[kind] != 6:
            continue
        octet = (frame[14] << 4 | frame[15] >> 4) & 255 if version == 6 else frame[15]
        seen[int.from_bytes(frame[at + 2 : at + 4])].add((version, octet >> 2))
threading.Thread(target=watch, daemon=True).start()
def drain(listener):
    peer, _ = listener.accept()
    with peer:
        while peer.recv(65536): pass
        peer.sendall(b"x")
for port in map(int, sys.argv[1:]):
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    threading.Thread(target=drain, args=(listener,), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
print(json.dumps({port: sorted(found) for port, found in seen.items()}), flush=True)
"""
# Sends kilobytes to each `address,port,codepoint`, from the port above, and waits until they have been read.
CLIENT = """
import socket, sys
for target in sys.argv[2:]:
    address, port, dscp = target.split(",")
    with socket.create_connection((address, int(port)), 10, ("", int(port) + 1)) as made:
        if made.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, int(dscp) << 2)
        made.sendall(bytes(1000 * int(sys.argv[1])))
        made.shutdown(socket.SHUT_WR)
        assert made.recv(1) == b"x"
"""


def job(seq: int, klass: int, family: int, port: int) -> JobRules:
    here, there = FURTHER["h1"][family], FURTHER["h2"][family]
    both = frozenset({(here, port + 1, there, port), (there, port, here, port + 1)})
    return JobRules(f"study/{port}", seq, 1, klass, both)


def test_switches_give_classes_and_resolve_addresses(lab: Lab) -> None:
    for host in NETWORK.hosts:
        interface = NETWORK.links[NETWORK.uplink[host.name]].interface
        lab.run("ip", "address", "add", f"{host.addresses[0]}/64", "dev", interface, "nodad", of=host.name)
        lab.run("ip", "address", "add", f"{host.addresses[1]}/24", "dev", interface, of=host.name)

    async def scenario() -> None:
        async with Listener(fabric=NETWORK) as listener:
            await listener.install(1, job(1, 1, 0, URGENT), job(2, 5, 0, OTHER), job(3, 3, 1, SECOND))
            ports = (URGENT, OTHER, SECOND, NOBODYS)
            server = lab.python("h2", SERVER, *map(str, ports))
            try:
                assert server.stdout
                assert server.stdout.readline() == "ready\n"
                peers = {SECOND: FURTHER["h2"][1]}
                marks = {URGENT: LOCAL.of(1), NOBODYS: LOCAL.of(0)}  # One is right, the other is nobody's to give.
                targets = [f"{peers.get(port, FURTHER['h2'][0])},{port},{marks.get(port, 0)}" for port in ports]
                client = lab.python("h1", CLIENT, str(KILOBYTES), *targets)
                client.communicate(timeout=40)
                assert client.returncode == 0
                out, _ = server.communicate(timeout=10)
            finally:
                server.kill()
                server.wait()
            assert json.loads(out) == {
                str(URGENT): [[6, LOCAL.of(1)]],
                str(OTHER): [[6, LOCAL.of(5)]],
                str(SECOND): [[4, LOCAL.of(3)]],
                str(NOBODYS): [[6, 0]],
            }
            await _counted(listener)
            neighbours = lab.run("ip", "-6", "neighbour", "show", FURTHER["h2"][0], of="h1")
            assert NETWORK.host["h2"].mac in neighbours
            assert "PERMANENT" not in neighbours

    async def _counted(listener: Listener) -> None:
        many: set[tuple[int, int, bool]] = set()
        async with asyncio.timeout(10):  # A switch takes its counts in once in a while.
            while many != {(1, 1, True), (2, 5, False), (3, 3, False)}:
                await asyncio.sleep(0.2)
                pairs = [one for one in await listener.driver.counters() if one.src == "h1"]
                many = {(one.job_seq, one.klass, one.marked) for one in pairs if one.sent_bytes > 1000 * KILOBYTES}

    lab.drive(scenario)


# Connects to each `address,port`, as an IPv6 socket where that is one; sends and takes a byte for each line on standard input.
WORKER = """
import socket, sys
lines = [socket.create_connection(target.rsplit(",", 1), 10) for target in sys.argv[1:]]
print("connected", flush=True)
for _ in sys.stdin:
    for line in lines:
        line.sendall(b"x")
        assert line.recv(100_000, socket.MSG_WAITALL)
    print("done", flush=True)
"""
ECHO = """
import socket, threading
server = socket.create_server(("::", 5006), family=socket.AF_INET6, dualstack_ipv6=True)
def answer(peer):
    while peer.recv(1): peer.sendall(bytes(100_000))
print("ready", flush=True)
while True: threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with cabled_namespaces("h1", "h2") as spaces, ExitStack() as stack:
        for number, space in enumerate(spaces, 1):
            space.run("ip", "address", "add", f"fd00::{number}/64", "dev", "data", "nodad")
            space.run("ip", "address", "add", f"10.50.1.{number}/24", "dev", "data")
        yield Bench(spaces, tmp_path, stack)


def test_an_agent_marks_sockets_of_either_family(bench: Bench) -> None:
    agent = bench.agent()
    server = bench.start(bench.there, "-c", ECHO)
    assert server.stdout
    assert server.stdout.readline() == "ready\n"
    worker = bench.start(bench.here, "-c", WORKER, "fd00::2,5006", "10.50.1.2,5006", "::ffff:10.77.0.2,5006")
    assert worker.stdin
    assert worker.stdout
    assert worker.stdout.readline() == "connected\n"
    addresses = (*ADDRESSES, "fd00::1", "10.50.1.1", "fd00::2", "10.50.1.2")
    bench.controller.applied(bench.assign(1, local_worker(worker, "s/t/j", 5), addresses=addresses))
    bench.marked(3)
    registered = {ends: mark for ends, mark in bench.marks().items() if ends[3] == 5006}
    assert {ends[0] for ends in registered} == {"fd00::1", "10.50.1.1", "10.77.0.1"}
    assert set(registered.values()) == {mark_of(5)}

    counted = "".join(f"ip6 nexthdr tcp ip6 dscp {dscp} counter\n" for dscp in (0, LOCAL.acknowledgement, LOCAL.of(5)))
    chain = f"chain arriving {{\ntype filter hook prerouting priority 0\n{counted}}}\n"
    bench.there.run("nft", f"table ip6 count {{\n{chain}}}")
    before = bench.classes()
    worker.stdin.write("\n" * 3)
    worker.stdin.flush()
    assert [worker.stdout.readline() for _ in range(3)] == ["done\n"] * 3
    listed = bench.there.run("nft", "-n", "list", "table", "ip6", "count")
    arrived = {int(m[1], 16): int(m[2]) for m in re.finditer(r"ip6 dscp (\S+) counter packets (\d+)", listed)}
    assert arrived[0] == 0
    assert arrived[LOCAL.of(5)] >= 3  # the data
    assert arrived[LOCAL.acknowledgement] > 3
    eventually(lambda: bench.classes()["1:10"] > before["1:10"] and bench.classes()["1:15"] > before["1:15"])

    bench.controller.applied(bench.assign(2, local_worker(worker, "s/t/j", 2), addresses=addresses))
    bench.marked(3)
    eventually(lambda: {mark for ends, mark in bench.marks().items() if ends[3] == 5006} == {mark_of(2)})
    assert "table ip6 beamer_hold" in bench.here.run("nft", "list", "tables")
    bench.controller.applied(bench.assign(3, local_worker(worker, "s/t/j", 2)))
    assert "table ip6 beamer-data" not in bench.here.run("nft", "list", "tables"), "without IPv6 its rules go"
    assert "table ip beamer-data" in bench.here.run("nft", "list", "tables")
    agent.terminate()
    agent.wait()
    bench.remove()
    assert bench.here.run("nft", "list", "tables") == ""


def test_a_switch_port_queues_ipv6_by_its_codepoint(bench: Bench) -> None:
    port = Port.model_validate(PORT.model_dump() | {"classify": "dscp"})
    tree = port_tree(port, 8, 0.1, {}, ipv6=True)

    def sent() -> list[int]:
        with closing(Queues()) as queues, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
            assert queues.reconcile("data", tree) == len(tree.classes) + len(tree.filters) + 1
            assert queues.reconcile("data", tree) == 0
            for klass in (2, 6):
                before = queues.counts("data")
                sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, LOCAL.of(klass) << 2 | 1)
                sender.sendto(bytes(1000), ("fd00::2", 9))
                eventually(lambda: queues.counts("data")[class_id(klass)] != before[class_id(klass)])  # noqa: B023
            assert queues.reconcile("data", port_tree(port, 8, 0.1, {})) == 9  # The filters of IPv6 go.
            counts = queues.counts("data")
            assert queues.reconcile("data", None)
            return [klass for klass in range(8) if counts[class_id(klass)].sent_packets]

    assert bench.here.call(sent) == [2, 6]


def test_what_is_held_waits_over_ipv6_too(bench: Bench) -> None:
    rule = HoldRule()
    with ExitStack() as stack:
        server = stack.enter_context(bench.there.call(lambda: socket.create_server(("fd00::2", 6000), family=socket.AF_INET6)))
        ours = stack.enter_context(bench.here.call(lambda: socket.create_connection(("fd00::2", 6000), 10)))
        theirs = stack.enter_context(server.accept()[0])
        assert bench.here.call(lambda: rule.ensure(0.0, MAX_DRAINING_S)), "for IPv4 alone"
        rule.cover(ipv6=True)
        assert bench.here.call(lambda: rule.ensure(0.0, MAX_DRAINING_S)), "at once"
        hold(ours)
        theirs.sendall(b"x")
        assert ours.recv(1) == b"x"
        ours.sendall(bytes(1000))
        theirs.settimeout(0.3)
        with pytest.raises(TimeoutError):
            theirs.recv(1)
        release(ours)
        theirs.settimeout(10)
        assert len(theirs.recv(1000, socket.MSG_WAITALL)) == 1000
        bench.here.call(rule.remove)
        assert bench.here.run("nft", "list", "tables") == ""
