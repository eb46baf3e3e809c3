"""Jobs over IPv6 on a whole fabric: a controller, agents and real switches, found by `beamer fabric discover`."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beamer.network.codepoints import LOCAL
from beamer.network.fabric_file import read_fabric
from tests.netns.testbed import CONTROLLER, CONTROLLER_IP, HOSTS, SWITCHES, Testbed, cabled_testbed

pytestmark = [pytest.mark.netns, pytest.mark.alone, pytest.mark.long]

URL, OPENFLOW = f"http://{CONTROLLER_IP}:8657", f"{CONTROLLER_IP}:6653"
PREFIX = "/64"
BOTH = {"h2": "10.50.0.2", "h4": "10.50.0.4"}
"""The hosts that have an IPv4 address, too."""
IPV6 = {host: f"fd00::{number}" for number, host in enumerate(HOSTS, 1)}
ADDRESSES = {host: (*((f"{BOTH[host]}/24",) if host in BOTH else ()), f"{address}{PREFIX}") for host, address in IPV6.items()}
RATE_BPS = 20_000_000
MEASURED_S = 4.0
URGENT, OTHER = ("urgent", "h1", "h3", 7001), ("other", "h2", "h4", 7002)
"""Jobs of a sender and a receiver, whose packets meet at the uplink of the senders' switch; the first is registered first."""
PATIENCE_S = 120.0

# Takes what one connection sends, and answers each line on stdin with the bytes so far.
RECEIVER = """
import select, socket, sys
server = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6)
print("ready", flush=True)
peer, _ = server.accept()
taken = 0
while True:
    for ready in select.select([peer, sys.stdin], [], [])[0]:
        if ready is sys.stdin:
            if not sys.stdin.readline(): sys.exit()
            print(taken, flush=True)
            continue
        else:
            data = peer.recv(1 << 16)
            if not data: sys.exit()
            taken += len(data)
"""
# Reno keeps the queue filled, which is what priorities are about.
SENDER = """
import socket, sys
line = socket.socket(socket.AF_INET6)
line.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
line.connect((sys.argv[1], int(sys.argv[2])))
while True: line.sendall(bytes(16384))
"""
# Says with each line on stdin which codepoints TCP packets over IPv6 came with, by port, and who was asked for by whom.
WATCH = """
import collections, ipaddress, json, select, socket, sys
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x86dd))
packets.bind(("ens1", 0x86dd))
codepoints, asked = collections.defaultdict(set), set()
print("ready", flush=True)
while True:
    for ready in select.select([packets, sys.stdin], [], [])[0]:
        if ready is sys.stdin:
            if not sys.stdin.readline(): sys.exit()
            print(json.dumps([{port: sorted(of) for port, of in codepoints.items()}, sorted(asked)]), flush=True)
            codepoints.clear()
            continue
        frame, where = packets.recvfrom(65535)
        if where[2] == socket.PACKET_OUTGOING: continue
        if frame[20] == 6:
            codepoints[int.from_bytes(frame[56:58])].add(((frame[14] << 4 | frame[15] >> 4) & 255) >> 2)
        elif frame[20] == 58 and frame[54] == 135:
            asked.add(tuple(str(ipaddress.IPv6Address(frame[at:at + 16])) for at in (22, 62)))
"""


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Testbed]:
    with cabled_testbed(tmp_path, ADDRESSES) as made:
        yield made


class Answering:
    """A program that answers lines."""

    def __init__(self, bed: Testbed, host: str, *command: str) -> None:
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", bed.prefix + host, "env", f"BEAMER_AGENT={socket_of(bed, host)}", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        bed.stack.enter_context(self._process)
        bed.stack.callback(self._process.kill)
        assert self._line() == "ready\n"

    def ask(self) -> Any:
        assert self._process.stdin
        self._process.stdin.write("now\n")
        self._process.stdin.flush()
        return json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline()


def socket_of(bed: Testbed, host: str) -> Path:
    return bed.directory / f"{host}.sock"


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.2)


def start_agents(bed: Testbed) -> None:
    for machine in (*HOSTS, *SWITCHES):
        name, state = f"sw-{machine}" if machine in SWITCHES else machine, bed.directory / f"state-{machine}"
        options = (
            "--controller",
            URL.replace("http", "ws"),
            "--state-dir",
            str(state),
            "--attach",
            str(socket_of(bed, machine)),
        )
        bed.start(machine, f"{machine}.log", sys.executable, "-m", "hostagent.cli", "--name", name, *options)


def start_network(bed: Testbed) -> None:
    """Have switches and agents connect, find the network, and start its controller."""
    for switch in SWITCHES:
        settings = ("set-fail-mode", switch, "secure", "--", "set", "bridge", switch, "protocols=OpenFlow13")
        bed.run(switch, "ovs-vsctl", "-t", "20", *settings, "--", "set-controller", switch, f"tcp:{OPENFLOW}")
        bed.run(switch, "ovs-vsctl", "-t", "20", "set", "controller", switch, "max_backoff=1000")
    start_agents(bed)
    where, fabric = ("--http", URL.removeprefix("http://"), "--openflow", OPENFLOW, "--insecure"), bed.directory / "fabric.yaml"
    found = ("--rate", f"{RATE_BPS // 10**6}mbit", "--quiet", "4", "--output", str(fabric))
    bed.run(CONTROLLER, sys.executable, "-m", "beamer.cli", "fabric", "discover", *where, *found)
    journal = f"sqlite:///{bed.directory}/journal.db"
    options = ("--fabric", str(fabric), "--journal", journal, "--policy", "fifo", *where)
    bed.start(CONTROLLER, "controller.log", sys.executable, "-m", "controller.cli", *options)
    until(lambda: (health := asked(bed, "/v1/health")) and health["installed_everywhere"])


def asked(bed: Testbed, path: str) -> Any:
    """Return what the controller answers, None where it does not."""
    return json.loads(bed.run(CONTROLLER, "sh", "-c", f"curl -s {URL}{path} || echo null") or "null")


def start_job(bed: Testbed, name: str, sender: str, receiver: str, port: int) -> tuple[Answering, "subprocess.Popen[bytes]"]:
    """Start a job's two workers under `beamer run`; return the one that receives, and the process of the other."""
    trial = ("--study", name, "--trial", "t", "--workers", f"{sender},{receiver}", "--run", "r", "--controller", URL)
    run = (sys.executable, "-m", "beamer.cli", "run", *trial)
    receives = Answering(bed, receiver, *run, "--rank", "1", "--", sys.executable, "-c", RECEIVER, str(port))
    sends = ("--rank", "0", "--", sys.executable, "-c", SENDER, IPV6[receiver], str(port))
    agent = ("env", f"BEAMER_AGENT={socket_of(bed, sender)}")
    return receives, bed.start(sender, f"{name}.log", *agent, *run, *sends)


def rates_bps(*receivers: Answering) -> list[float]:
    """Return at which rate each receives for some seconds."""
    before, began_s = [one.ask() for one in receivers], time.monotonic()
    time.sleep(MEASURED_S)
    after, took_s = [one.ask() for one in receivers], time.monotonic() - began_s
    return [8 * (there - here) / took_s for here, there in zip(before, after, strict=True)]


def sent_bytes(bed: Testbed) -> dict[str, int]:
    """Return what each class of the senders' uplink has sent."""
    shown = bed.run("l1", "tc", "-s", "class", "show", "dev", "swp3")
    return {m[1]: int(m[2]) for m in re.finditer(r"class htb (\S+).*\n Sent (\d+) bytes", shown)}


@pytest.mark.timeout(600)
def test_jobs_over_ipv6_are_ordered_on_a_fabric_that_was_found(bed: Testbed) -> None:
    start_network(bed)
    fabric = read_fabric(bed.directory / "fabric.yaml")
    assert {host.name: host.every_address for host in fabric.hosts} == {
        host: (*((BOTH[host],) if host in BOTH else ()), address) for host, address in IPV6.items()
    }
    bed.run(CONTROLLER, sys.executable, "-m", "beamer.cli", "fabric", "check", "--url", URL)  # It ends with 0.

    watches = {host: Answering(bed, host, sys.executable, "-c", WATCH) for host in HOSTS}
    receives, sender = start_job(bed, *URGENT)
    until(lambda: classes(bed) == {"urgent/t": 0})
    others, _ = start_job(bed, *OTHER)
    until(lambda: classes(bed) == {"urgent/t": 0, "other/t": 1})
    until(lambda: all(sent_bytes(bed).get(name) for name in ("1:10", "1:11")))
    time.sleep(2)  # Packets without a class may be under way.
    for watch in watches.values():
        watch.ask()
    before = sent_bytes(bed)
    urgent_bps, other_bps = rates_bps(receives, others)
    passed = {name: after - before[name] for name, after in sent_bytes(bed).items() if name in before}
    assert passed["1:10"] > 0.5 * RATE_BPS / 8 * MEASURED_S
    assert passed["1:9"] < 0.05 * passed["1:10"]
    assert urgent_bps > 0.5 * RATE_BPS
    assert other_bps < 0.2 * urgent_bps

    seen = {host: watch.ask() for host, watch in watches.items()}
    assert seen["h3"][0] == {str(URGENT[3]): [LOCAL.of(0)]}
    assert seen["h4"][0] in ({}, {str(OTHER[3]): [LOCAL.of(1)]})
    for host in HOSTS:
        asked_for = {target for source, target in seen[host][1] if not target.startswith("fe80")}
        assert asked_for <= {IPV6[host]}, "nobody is asked for others: nothing floods"
    for here, there in ((URGENT[1], URGENT[2]), (OTHER[1], OTHER[2])):
        known = bed.run(here, "ip", "-6", "neighbour", "show", IPV6[there])
        assert fabric.host[there].mac in known
        assert "PERMANENT" not in known

    sender.terminate()
    until(lambda: classes(bed).keys() == {"other/t"})
    assert rates_bps(others)[0] > 0.5 * urgent_bps


def classes(bed: Testbed) -> dict[str, int]:
    return {key: job["class"] for key, job in asked(bed, "/v1/plan")["jobs"].items()}
