"""Rules on real switches: a private Open vSwitch in a namespace, two leaves, two spines, a host on each leaf."""

import asyncio
import json
import math
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from beamer.network.codepoints import LOCAL
from controller.openflow import held_rules
from controller.openflow.held_rules import SETTLE_S
from controller.openflow.reports import PairCount, SwitchLost
from controller.openflow.rule_watch import WatchRation
from controller.openflow.rules import JobRules
from tests.netns.lab import FABRIC, NAMES, Lab, Listener
from tests.netns.promptness import TooLate, until_prompt
from tests.netns.segments import lost, overtaken

pytestmark = pytest.mark.netns

LEFT, RIGHT = FABRIC.hosts

# Sends, per line on stdin, a number of kilobytes with a codepoint over one connection; prints at the end how much arrived.
SERVER = """
import collections, json, select, socket, struct, threading, time
seen, packets = collections.Counter(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
packets.setsockopt(socket.SOL_SOCKET, 33, 1 << 25)  # SO_RCVBUFFORCE: all that this process has no time for yet
def watch():
    while True:
        frame, where = packets.recvfrom(65535)
        if where[2] != socket.PACKET_OUTGOING and frame[23] == 6:
            seen[frame[15] >> 2] += len(frame)
threading.Thread(target=watch, daemon=True).start()
listener = socket.create_server(("0.0.0.0", 7000), reuse_port=True)
print("ready", flush=True)
connection, _ = listener.accept()
while connection.recv(65536):
    pass
while select.select([packets], [], [], 0.2)[0]:
    time.sleep(0.05)
_, dropped = struct.unpack("II", packets.getsockopt(263, 6, 8))  # PACKET_STATISTICS
print(json.dumps([seen, dropped]), flush=True)
"""
CLIENT = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 7000), timeout=5, source_address=("", 7001))
connection.settimeout(20)
print("ready", flush=True)
for line in sys.stdin:
    count, dscp = map(int, line.split())
    connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
    for _ in range(count):
        connection.sendall(bytes(1000))
        time.sleep(0.001)
    print("sent", flush=True)
"""
# Sends one packet per line on stdin, written as scapy's constructors.
FORGER = """
import sys
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.sendrecv import sendp
for line in sys.stdin:
    sendp(eval(line), iface=sys.argv[1], verbose=False)
print("sent", flush=True)
"""
# Prints the TOS byte of every packet from its first argument's address that ends in `#` and a label, by label.
WITNESS = """
import json, re, sys
from scapy.layers.inet import IP
from scapy.sendrecv import AsyncSniffer
from scapy.config import conf
seen, last = {}, sys.argv[2]
def note(packet):
    label = re.search(rb"#(\\w+)$", bytes(packet))
    if label and IP in packet and packet[IP].src == sys.argv[1]:
        seen[label[1].decode()] = packet[IP].tos
ready = lambda: print("ready", flush=True)
sniffer = AsyncSniffer(prn=note, store=False, stop_filter=lambda _: last in seen, started_callback=ready)
sniffer.start()
sniffer.join(timeout=15)
print(json.dumps(seen), flush=True)
"""
# Sends numbered datagrams until standard input ends, then prints how many these were.
PROBE = """
import select, socket, sys
sender, number = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.002)[0]:
    sender.sendto(number.to_bytes(4, "big"), (sys.argv[1], 7002))
    number += 1
print(number, flush=True)
"""
# Prints the numbers of the datagrams that arrived once none has for a while.
COUNTER = """
import json, socket
receiver, seen = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), []
receiver.bind(("", 7002))
print("ready", flush=True)
try:
    while True:
        seen.append(int.from_bytes(receiver.recv(64), "big"))
        receiver.settimeout(2)
except TimeoutError:
    print(json.dumps(seen), flush=True)
"""
THERE = LEFT.ip, 7001, RIGHT.ip, 7000
BACK = RIGHT.ip, 7000, LEFT.ip, 7001


def job(klass: int, seq: int = 1, plane: int = 1) -> JobRules:
    return JobRules("study/stage/job", seq, plane, klass, frozenset({THERE, BACK}))


@pytest.fixture(autouse=True)
def _short_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_rules, "LINGER_S", SETTLE_S)


async def send(client: "subprocess.Popen[str]", kilobytes: int, dscp: int = 0) -> None:
    assert client.stdin
    assert client.stdout
    client.stdin.write(f"{kilobytes} {dscp}\n")
    client.stdin.flush()
    assert await asyncio.to_thread(client.stdout.readline) == "sent\n"


async def open_connection(
    lab: Lab, stack: ExitStack, server: str = SERVER, client: str = CLIENT
) -> tuple["subprocess.Popen[str]", "subprocess.Popen[str]"]:
    """Open a connection from left to right; return client and server."""
    both = []
    for host, code, *args in ((RIGHT, server), (LEFT, client, RIGHT.ip)):
        process = lab.python(host.name, code, *args)
        stack.callback(lambda p=process: (p.kill(), p.communicate()))  # type: ignore[misc]
        assert process.stdout
        assert await asyncio.to_thread(process.stdout.readline) == "ready\n"
        both.append(process)
    return both[1], both[0]


def finish(client: "subprocess.Popen[str]", server: "subprocess.Popen[str]") -> dict[int, int]:
    """Close the connection; return the bytes that arrived on the right by codepoint. Raises `TooLate`."""
    client.communicate()
    out, _ = server.communicate(timeout=10)
    seen, dropped = json.loads(out)
    if dropped:
        raise TooLate(f"packets that arrived, but were not seen: {dropped}")
    return {int(dscp): size for dscp, size in seen.items()}


def total(pairs: Sequence[PairCount], klass: int) -> int:
    return sum(x.sent_bytes for x in pairs if x.klass == klass and (x.src, x.dst) == (LEFT.name, RIGHT.name))


def test_a_change_of_class_loses_no_packet_and_the_old_rule_keeps_its_count(tmp_path: Path) -> None:
    async def scenario(lab: Lab) -> None:
        async with Listener() as listener:
            with ExitStack() as stack:
                await listener.install(1)
                client, server = await open_connection(lab, stack)
                await send(client, 300)
                await listener.install(2, job(klass=2))
                await send(client, 700, LOCAL.of(2))
                sending = asyncio.create_task(send(client, 700, LOCAL.of(2)))
                await asyncio.sleep(0.3)
                await listener.install(3, job(klass=5))
                await sending  # the host learns of the new class a little later than the switch
                await send(client, 700, LOCAL.of(5))
                await asyncio.sleep(SETTLE_S + 0.5)
                seen = finish(client, server)
                await asyncio.sleep(1)
                pairs = await listener.driver.counters()
                assert {x.final for x in pairs if x.klass == 2} == {True}
                assert {x.final for x in pairs if x.klass == 5} == {False}
                arrived = seen[LOCAL.of(2)] + seen[LOCAL.of(5)]
                in_rules = total(pairs, 2) + total(pairs, 5)
                assert seen[0] > 250_000  # These bytes were sent before anybody registered the job.
                assert set(seen) == {0, LOCAL.of(2), LOCAL.of(5)}
                assert in_rules == pytest.approx(arrived, rel=0.03)  # Some packets are under way while a rule appears.
                assert total(pairs, 5) == pytest.approx(seen[LOCAL.of(5)], rel=0.01)
                # Both directions are of the job's class.
                assert any(x.klass == 5 and (x.src, x.dst) == (RIGHT.name, LEFT.name) and x.sent_packets for x in pairs)

                # When the job has ended nothing of it stays, and what it sent last is in the final count.
                await listener.install(4)
                await asyncio.sleep(SETTLE_S + 0.5)
                ended = await listener.driver.counters()
                assert {x.final for x in ended} == {True}
                assert total(ended, 2) + total(ended, 5) == pytest.approx(in_rules, abs=200)

    until_prompt(tmp_path, scenario)


@pytest.mark.alone  # its switch has to read all packets in time while it changes rules
def test_a_hundred_changes_of_class_lose_and_reorder_nobodys_packets(tmp_path: Path) -> None:
    async def scenario(lab: Lab) -> None:
        async with Listener() as listener:
            with ExitStack() as stack:
                await listener.install(1, job(klass=0))
                client, server = await open_connection(lab, stack)
                probe, counter = await open_connection(lab, stack, COUNTER, PROBE)
                sending = asyncio.create_task(send(client, 6000))
                for number in range(100):
                    await listener.install(2 + number, job(klass=(number + 1) % 8))
                changed = not sending.done()
                await sending
                sent, _ = await asyncio.to_thread(probe.communicate)
                arrived, _ = await asyncio.to_thread(counter.communicate)
                connection = lab.run("ss", "-tinH", "dport", "=", ":7000", of=LEFT.name)
                finish(client, server)
                assert changed, "all changes came while the job was sending"
                assert "bytes_acked:6000001" in connection
                assert json.loads(arrived) == list(range(int(sent)))
                assert not lost(connection), connection
                assert not overtaken(lab.run("cat", "/proc/net/netstat", of=RIGHT.name))

    until_prompt(tmp_path, scenario)


def test_a_restarted_driver_changes_nothing_and_breaks_no_connection(lab: Lab) -> None:
    async def scenario() -> None:
        with ExitStack() as stack:
            async with Listener() as first:
                await first.install(1)
                client, server = await open_connection(lab, stack)
                await first.install(2, job(klass=2))
                await first.install(3, job(klass=4))
                await asyncio.sleep(SETTLE_S + 0.5)
            before = {name: lab.flows(name) for name in NAMES}
            await send(client, 100)
            async with Listener() as second:
                acknowledged = await second.install(3, job(klass=4))
                assert {e.changes for e in acknowledged.values()} == {0}
                assert {name: lab.flows(name) for name in NAMES} == before
                await send(client, 100)
                await asyncio.sleep(1)
                assert total(await second.driver.counters(), 4) > 200_000
            assert finish(client, server)[LOCAL.of(4)] > 200_000

    lab.drive(scenario)


def test_codepoints_are_given_by_the_edge_and_forged_ones_are_taken_off(lab: Lab) -> None:
    """Hosts are not trusted: only a registered connection has a class, whatever its packets claim. ECN is left alone."""
    forged, ecn, expedited = LOCAL.of(0) << 2, 0b01, 46 << 2
    head = f"Ether(dst={RIGHT.mac!r}) / IP(src={LEFT.ip!r}, dst={RIGHT.ip!r}, tos={forged | ecn}"
    registered = "TCP(sport=7001, dport=7000, flags='A')"
    packets = {
        "registered": f"{head}) / {registered}",
        "unmarked": f"{head.replace(str(forged | ecn), str(ecn))}) / {registered}",
        "stranger": f"{head}) / TCP(sport=7002, dport=7000, flags='A')",
        "datagram": f"{head}) / UDP(sport=7001, dport=7000)",
        "echo": f"{head}) / ICMP()",
        "fragment": f"{head}, proto=6, frag=100)",
        "others": f"{head.replace(str(forged | ecn), str(expedited))}) / UDP(sport=7001, dport=7000)",
    }

    async def scenario() -> None:
        async with Listener() as listener:
            await listener.install(1, job(klass=2))
            with ExitStack() as stack:
                witness = lab.python(RIGHT.name, WITNESS, LEFT.ip, "others")
                stack.callback(lambda: (witness.kill(), witness.communicate()))
                assert witness.stdout
                assert await asyncio.to_thread(witness.stdout.readline) == "ready\n"
                interface = FABRIC.links[FABRIC.link_index[LEFT.name, FABRIC.edge_of[LEFT.name]]].interface
                forger = lab.python(LEFT.name, FORGER, interface)
                lines = "".join(f"{packet} / b'#{label}'\n" for label, packet in packets.items())
                assert (await asyncio.to_thread(forger.communicate, lines))[0] == "sent\n"
                seen = json.loads(await asyncio.to_thread(witness.stdout.readline))
        given = LOCAL.of(2) << 2 | ecn
        assert seen == {
            **dict.fromkeys(("registered", "unmarked"), given),
            **dict.fromkeys(("stranger", "datagram", "echo", "fragment"), ecn),
            "others": expedited,
        }

    lab.drive(scenario)


def test_forwarding_and_address_resolution_outlive_the_driver(lab: Lab) -> None:
    async def scenario() -> None:
        async with Listener() as listener:
            await listener.install(1)
        for host in FABRIC.hosts:
            lab.run("ip", "neigh", "flush", "all", of=host.name)
        with ExitStack() as stack:
            client, server = await open_connection(lab, stack)
            await send(client, 50)
            assert finish(client, server)[0] > 50_000

    lab.drive(scenario)


def test_rules_that_vanish_are_put_back_and_a_lost_switch_is_reported(lab: Lab) -> None:
    async def scenario() -> None:
        async with Listener() as listener:
            with ExitStack() as stack:
                await listener.install(1)
                await open_connection(lab, stack)
                await listener.install(2, job(klass=3))
                before = lab.flows("l1")
                lab.run("ovs-ofctl", "-O", "OpenFlow13", "del-flows", "l1", "table=1,ip")
                async with asyncio.timeout(5):
                    while lab.flows("l1") != before:
                        await asyncio.sleep(0.1)
                lab.run("ovs-vsctl", "del-controller", "s1")
                async with asyncio.timeout(5):
                    while SwitchLost("s1") not in listener.events:
                        await asyncio.sleep(0.05)

    lab.drive(scenario)


# What another program changes is noticed within 5 s (`COUNT_S`, `UNHEARD_S`); a busy machine has more, and less than `AUDIT_S`.
BUSY_MACHINE_S = 30.0


def test_what_another_program_does_to_rules_is_noticed_and_mended_or_named(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal, a change in place, a replacement, and a rule before Beamer's that is left: announced, however many rules."""
    monkeypatch.setattr(WatchRation, "next_reading", lambda *_: math.inf)
    ofctl = ("ovs-ofctl", "-O", "OpenFlow13")
    fabric = replace(FABRIC, switches=tuple(replace(switch, agent=switch.name) for switch in FABRIC.switches))
    route = f"table=3,priority=2000,ip,nw_dst={RIGHT.ip}"

    async def scenario() -> None:
        async with Listener(fabric=fabric, watches=True) as listener:
            await listener.install(1)  # All switches are known then: a rule for an unknown neighbour would go by itself later.
            await listener.install(2, job(klass=3))
            before, took = lab.flows("l1"), dict[str, float]()

            async def until(what: str, condition: Callable[[], object]) -> None:
                began = time.monotonic()
                async with asyncio.timeout(BUSY_MACHINE_S):
                    while not condition():
                        await asyncio.sleep(0.05)
                took[what] = time.monotonic() - began

            for what, command in {
                "all routes removed": ("del-flows", "l1", "table=3"),
                "a route changed": ("mod-flows", "--strict", "l1", f"{route},actions=drop"),
                "a route replaced": ("add-flow", "l1", f"{route},cookie=0x77,actions=drop"),
                "a pair removed": ("del-flows", "l1", "table=1,dl_type=0x0800"),
            }.items():
                lab.run(*ofctl, *command)
                assert lab.flows("l1") != before
                await until(what, lambda: lab.flows("l1") == before)
            lab.run(*ofctl, "add-flow", "l1", "table=0,priority=60000,cookie=0x77,udp,actions=drop")
            text = "l1 has rules of other programs that come before Beamer's, 1 in all: table 0 priority 60000 cookie 0x77"
            await until("a rule of another program", lambda: any(text in seen.remarks for seen in listener.seen()))
            assert len(lab.flows("l1") - before) == 1, "it is left"
            print({what: f"{took_s:.2f} s" for what, took_s in took.items()})

    lab.drive(scenario)
