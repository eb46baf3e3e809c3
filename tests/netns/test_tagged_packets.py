"""Why no host is in a network by a VLAN interface: what real switches, queues and hosts do with packets that have a tag."""

import asyncio
import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing

import pytest

from beamer.network.codepoints import LOCAL
from beamer.network.protocol import Port
from controller.openflow.probes import host_answer, host_probe
from hostagent.queues.htb import Queues
from hostagent.queues.tree import UNREGISTERED, class_id, port_tree
from tests.netns.lab import FABRIC, Lab, Listener
from tests.support.namespaces import Namespace, cabled_namespaces

pytestmark = pytest.mark.netns

LEFT, RIGHT = FABRIC.hosts
TAG = b"\x81\x00\x00\x0a"  # 802.1Q, id 10
KLASS, PLAIN, TAGGED = 3, 5, 7
NO_IPV6 = "/proc/sys/net/ipv6/conf/data/disable_ipv6"  # A new interface sends IPv6 packets by itself, which would be counted.

# Sends the frames that its further arguments give in hexadecimal by the interface of its first one.
SENDER = """
import socket, sys
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind((sys.argv[1], 0))
for frame in sys.argv[2:]:
    out.send(bytes.fromhex(frame))
"""
# Prints the label behind # of each frame from outside, and its VLAN id or null, until it has met its last argument.
WITNESS = """
import json, socket, struct, sys
inside, seen = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)), {}
inside.setsockopt(263, 8, 1)  # PACKET_AUXDATA: the kernel takes tags off
print("ready", flush=True)
while sys.argv[1] not in seen:
    frame, more, _, where = inside.recvmsg(2048, 256)
    _, _, _, _, _, tag, _ = struct.unpack("IIIHHHH", more[0][2])
    if where[2] != socket.PACKET_OUTGOING and b"#" in frame:
        seen[frame.rpartition(b"#")[2].decode()] = tag & 0xFFF if struct.unpack_from("I", more[0][2])[0] & 16 else None
print(json.dumps(seen), flush=True)
"""


def packet(dscp: int, label: str = "", src: str = LEFT.ip, dst: str = RIGHT.ip) -> bytes:
    """Return a UDP packet over IPv4, without checksums of UDP and with that of IPv4."""
    body = b"#" + label.encode()
    head = bytearray.fromhex("450000000000400040110000") + socket.inet_aton(src) + socket.inet_aton(dst)
    head[1], head[2:4] = dscp << 2, (28 + len(body)).to_bytes(2, "big")
    total = sum(int.from_bytes(head[at : at + 2], "big") for at in range(0, 20, 2))
    head[10:12] = (0xFFFF - (total % 0xFFFF)).to_bytes(2, "big")
    udp = b"".join(one.to_bytes(2, "big") for one in (7001, 7000, 8 + len(body), 0))
    return bytes(head) + udp + body


def frame(payload: bytes, dst: str = RIGHT.mac, tag: bytes = b"", kind: bytes = b"\x08\x00") -> bytes:
    return bytes.fromhex(dst.replace(":", "") + LEFT.mac.replace(":", "")) + tag + kind + payload


@pytest.fixture
def spaces() -> Iterator[tuple[Namespace, ...]]:
    with cabled_namespaces("a", "b") as made:
        yield made


def test_switch_queues_of_agents_give_tagged_packets_no_class(spaces: tuple[Namespace, ...]) -> None:
    def counted() -> dict[int, int]:
        with open(NO_IPV6, "w") as switch:
            switch.write("1")
        with closing(Queues()) as queues, socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
            port = Port(interface="data", rate_bps=20_000_000, classify="dscp")
            queues.reconcile("data", port_tree(port, 8, 0.1, {}))
            out.bind(("data", 0))
            for count, tag in ((PLAIN, b""), (TAGGED, TAG)):
                for _ in range(count):
                    out.send(frame(packet(LOCAL.of(KLASS)), tag=tag))
            return {key: one.sent_packets for key, one in queues.counts("data").items() if one.sent_packets}

    found = spaces[0].call(counted)
    assert (found[class_id(KLASS)], found[UNREGISTERED]) == (PLAIN, TAGGED)


def test_a_request_without_a_tag_is_answered_for_an_address_of_another_interface(spaces: tuple[Namespace, ...]) -> None:
    first, second = spaces[:2]
    first.run("ip", "link", "add", "other", "type", "bridge")
    first.run("ip", "address", "add", "10.99.0.1/24", "dev", "other")
    first.run("ip", "link", "set", "other", "up")
    mac = json.loads(first.run("ip", "-j", "link", "show", "data"))[0]["address"]

    def asked() -> tuple[str, str]:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806)) as sending:
            sending.bind(("data", 0x0806))
            sending.settimeout(10)
            sending.send(host_probe("10.99.0.1"))
            while (answer := host_answer(sending.recv(2048))) is None:
                pass
            return answer

    assert second.call(asked) == ("10.99.0.1", mac)


def test_switches_forward_tagged_packets_with_their_tag(lab: Lab) -> None:
    async def scenario() -> None:
        async with Listener() as listener:
            await listener.install(1)
            witness = lab.python(RIGHT.name, WITNESS, "last")
            try:
                assert witness.stdout
                assert await asyncio.to_thread(witness.stdout.readline) == "ready\n"
                sent = [frame(packet(0, "tagged"), tag=TAG), frame(packet(0, "last"))]
                (link,) = (one for one in FABRIC.links if one.src == LEFT.name)
                sender = lab.python(LEFT.name, SENDER, link.interface, *(one.hex() for one in sent))
                await asyncio.to_thread(sender.communicate, timeout=20)
                out, _ = await asyncio.to_thread(witness.communicate, timeout=20)
                assert json.loads(out) == {"tagged": 10, "last": None}
            except subprocess.TimeoutExpired as error:
                raise AssertionError("a packet did not arrive") from error
            finally:
                witness.kill()
                witness.communicate()

    lab.drive(scenario)
