"""A controller looks where cables lead, on real switches: what differs from the file is named, dead cables are left."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from beamer.network.fabric import Fabric, Host, Link, Switch
from controller.openflow.reports import NetworkSeen
from tests.netns import lab as lab_module
from tests.netns.lab import NAMES, Lab, Listener

pytestmark = pytest.mark.netns

# Switches have agents, as those would make the queues that the lab's do not have. Links are as fast as they say.
FABRIC = replace(
    lab_module.FABRIC,
    switches=tuple(replace(switch, agent=switch.name) for switch in lab_module.FABRIC.switches),
    links=tuple(replace(link, rate_bps=10**10) for link in lab_module.FABRIC.links),
)
IPV6 = {host.name: f"fd00::{number}" for number, host in enumerate(FABRIC.hosts, 1)}
NAMED_S = 5.0
PATIENCE_S = 30.0  # for what must come; where a time is asserted, it is measured by the packets themselves

# Sends a numbered packet each 5 ms to each of its arguments until a line comes on stdin; prints how many.
SENDER = """
import select, socket, sys, time
out, number = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM), 0
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.005)[0]:
    for address in sys.argv[1:]: out.sendto(number.to_bytes(4, "big"), (address, 7000))
    number += 1
print(number, flush=True)
"""
# Prints by sender the numbers that came, each with its time, once a line comes on stdin and half a second has passed.
RECEIVER = """
import json, select, socket, sys, time
inside, seen, until = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM), {}, float("inf")
inside.bind(("", 7000))
print("ready", flush=True)
while time.monotonic() < until:
    for ready in select.select([inside, sys.stdin] if until == float("inf") else [inside], [], [], 0.1)[0]:
        if ready is inside:
            data, (sender, *_) = inside.recvfrom(4)
            seen.setdefault(sender, []).append((int.from_bytes(data, "big"), time.monotonic()))
        else:
            until = time.monotonic() + 0.5
print(json.dumps(seen), flush=True)
"""


def relinked(change: Callable[[Link], Link]) -> Fabric:
    return replace(FABRIC, links=tuple(map(change, FABRIC.links)))


def with_ports(ports: dict[tuple[str, str], int]) -> Fabric:
    """Return what a file says that has other ports at some ends."""
    return relinked(lambda link: replace(link, port=ports.get((link.src, link.dst), link.port)))


def with_hosts(change: Callable[[Host], Host]) -> Fabric:
    return replace(FABRIC, hosts=tuple(map(change, FABRIC.hosts)))


def with_switches(change: Callable[[Switch], Switch]) -> Fabric:
    return replace(FABRIC, switches=tuple(map(change, FABRIC.switches)))


DPIDS = {switch.name: switch.dpid for switch in FABRIC.switches}
SWAPPED = {"s1": DPIDS["s2"], "s2": DPIDS["s1"]}
WRONG: dict[str, tuple[Fabric, set[str]]] = {
    "a port that does not exist": (
        with_ports({("l1", "s1"): 77}),
        {
            "l1 has no port 77, to which the file connects s1; it has 1, 2, 3",
            "s1 port 1 leads to l1 port 1; the file says l1 port 77",
        },
    ),
    "ports of the spines swapped": (
        with_ports({("l1", "s1"): 2, ("l1", "s2"): 1}),
        {
            "l1 port 1 leads to s1 port 1; the file says s2 port 1",
            "l1 port 2 leads to s2 port 1; the file says s1 port 1",
            "l1 port 1 is l1-eth1; the file says l1-eth2, whose queues its agent makes",
            "l1 port 2 is l1-eth2; the file says l1-eth1, whose queues its agent makes",
            "s1 port 1 leads to l1 port 1; the file says l1 port 2",
            "s2 port 1 leads to l1 port 2; the file says l1 port 1",
        },
    ),
    "datapath ids swapped": (
        with_switches(lambda switch: replace(switch, dpid=SWAPPED.get(switch.name, switch.dpid))),
        {
            "l1 port 1 leads to s2 port 1; the file says s1 port 1",
            "l1 port 2 leads to s1 port 1; the file says s2 port 1",
            "l2 port 1 leads to s2 port 2; the file says s1 port 2",
            "l2 port 2 leads to s1 port 2; the file says s2 port 2",
        },
    ),
    "addresses of hosts swapped": (
        with_hosts(lambda host: replace(host, ip=FABRIC.hosts[host is FABRIC.hosts[0]].ip)),
        {"at l1 port 3 is h2; the file says h1", "at l2 port 3 is h1; the file says h2"},
    ),
    "another Ethernet address": (
        with_hosts(lambda host: replace(host, mac="02:00:00:00:07:07") if host.name == "h2" else host),
        {"h2 (10.77.0.2) has the Ethernet address 02:00:00:00:00:02; the file says 02:00:00:00:07:07"},
    ),
    "a host that is not there": (
        with_hosts(lambda host: replace(host, ip="10.77.0.9") if host.name == "h2" else host),
        {"h2 (10.77.0.9) does not answer at l2 port 3"},
    ),
    "a rate that the link does not have": (
        relinked(lambda link: replace(link, rate_bps=25 * 10**9) if {link.src, link.dst} == {"l1", "s1"} else link),
        {
            "l1 port 1 runs at 10gbit; the file says 25gbit, so that no queue forms",
            "s1 port 1 runs at 10gbit; the file says 25gbit, so that no queue forms",
        },
    ),
    "a switch without queues and without an agent": (
        with_switches(lambda switch: replace(switch, agent=None) if switch.name == "s1" else switch),
        {f"s1 port {port} has no queues, and no agent makes any: no class goes before another there" for port in (1, 2)},
    ),
    "an interface of another name": (
        relinked(lambda link: replace(link, interface="eth7") if (link.src, link.dst) == ("l2", "s2") else link),
        {"l2 port 2 is l2-eth2; the file says eth7, whose queues its agent makes"},
    ),
}


async def seen(of: Listener, holds: Callable[[NetworkSeen], bool]) -> NetworkSeen:
    """Return what is seen of the network once something holds of it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while True:
        found = [event for event in of.events if isinstance(event, NetworkSeen)]
        if found and holds(found[-1]):
            return found[-1]
        assert loop.time() < deadline, found[-1:]
        await asyncio.sleep(0.02)


def test_each_thing_that_a_file_has_wrong_is_named_and_nothing_where_it_is_right(lab: Lab) -> None:
    async def scenario() -> None:
        for what, (fabric, expected) in WRONG.items():
            async with Listener(fabric=fabric, watches=True) as of:
                await of.install(1)
                found = await seen(of, lambda one, expected=expected: {m.text for m in one.mismatches} >= expected)  # type: ignore[misc]
                if what != "datapath ids swapped":
                    assert {m.text for m in found.mismatches} == expected, what
        slow = relinked(
            lambda link: replace(link, rate_bps=10**9) if link.src in ("h1", "l1") and "h1" in (link.src, link.dst) else link
        )
        async with Listener(fabric=slow, watches=True) as of:
            await of.install(1)
            found = await seen(of, lambda one: bool(one.remarks))
            assert found.remarks == ("l1 port 3 could carry 10gbit, and carries the 1gbit of the file",)
            assert found.mismatches == ()
        async with Listener(fabric=FABRIC, watches=True) as of:
            await of.install(1)
            await asyncio.sleep(NAMED_S)
            found = [event for event in of.events if isinstance(event, NetworkSeen)]
            assert {event.mismatches for event in found} == {()}
            assert found[-1].switches == NAMES

    lab.drive(scenario)


def test_packets_of_either_family_take_another_path_and_none_is_lost_on_the_way_back(lab: Lab) -> None:
    left = FABRIC.hosts[0]
    fabric = with_hosts(lambda host: replace(host, addresses=(IPV6[host.name],)))
    give_ipv6(lab)
    (cable,) = {link.interface for link in FABRIC.links if (link.src, link.dst) == ("l1", "s1")}

    async def scenario() -> None:
        async with Listener(fabric=fabric, watches=True) as of:
            await of.install(1)
            receiver, sender = lab.python("h1", RECEIVER), lab.python("h2", SENDER, f"::ffff:{left.ip}", IPV6["h1"])
            with receiver, sender:
                assert receiver.stdout and sender.stdout and receiver.stdin and sender.stdin  # noqa: PT018
                for process in (receiver, sender):
                    await asyncio.to_thread(process.stdout.readline)  # type: ignore[union-attr]
                await asyncio.sleep(1.0)
                lab.run("ip", "link", "set", cable, "down")
                dead = await seen(of, lambda one: len(one.mismatches) == 2)
                assert dead.dead == {("l1", "s1")}
                assert {m.text for m in dead.mismatches} == {
                    "l1 port 1 has no link; the file connects it to s1",
                    "s1 port 1 has no link; the file connects it to l1",
                }
                await asyncio.sleep(1.0)
                lab.run("ip", "link", "set", cable, "up")
                await seen(of, lambda one: one == NetworkSeen(switches=frozenset(NAMES)))
                await asyncio.sleep(1.0)
                sender.stdin.write("end\n")
                sender.stdin.flush()
                sent = int(await asyncio.to_thread(sender.stdout.readline))
                receiver.stdin.write("end\n")
                receiver.stdin.flush()
                came = json.loads(await asyncio.to_thread(receiver.stdout.readline))
            assert came.keys() == {"::ffff:10.77.0.2", IPV6["h2"]}
            for of_family in came.values():
                gaps = [(after - before, later - earlier) for (before, earlier), (after, later) in pairwise(of_family)]
                lost = [(number - 1, gap_s) for number, gap_s in gaps if number > 1]
                assert len(lost) == 1, f"{lost} of {sent}: lost as the cable died, and at no other time"
                assert lost[0][1] < NAMED_S
                assert of_family[-1][0] == sent - 1

    lab.drive(scenario)


def give_ipv6(lab: Lab) -> None:
    for link in FABRIC.links:
        if link.src in IPV6:
            lab.run("ip", "address", "add", f"{IPV6[link.src]}/64", "dev", link.interface, "nodad", of=link.src)


def test_a_host_that_has_ipv6_alone_is_asked_for_by_that(lab: Lab) -> None:
    give_ipv6(lab)
    for link in FABRIC.links:
        if link.src in IPV6:
            lab.run("ip", "-4", "address", "flush", "dev", link.interface, of=link.src)
    alone = with_hosts(lambda host: replace(host, ip=IPV6[host.name]))
    other = replace(alone, hosts=(alone.hosts[0], replace(alone.hosts[1], mac="02:00:00:00:07:07")))

    async def scenario() -> None:
        async with Listener(fabric=other, watches=True) as of:
            await of.install(1)
            found = await seen(of, lambda one: bool(one.mismatches))
            text = "h2 (fd00::2) has the Ethernet address 02:00:00:00:00:02; the file says 02:00:00:00:07:07"
            assert {m.text for m in found.mismatches} == {text}
        async with Listener(fabric=alone, watches=True) as of:
            await of.install(1)
            await asyncio.sleep(NAMED_S)
            assert of.seen()[-1] == NetworkSeen(switches=frozenset(NAMES))

    lab.drive(scenario)


def test_a_cable_that_has_light_and_carries_nothing_is_found(lab: Lab) -> None:
    async def scenario() -> None:
        async with Listener(fabric=FABRIC, watches=True) as of:
            await of.install(1)
            await asyncio.sleep(2.0)
            lab.run("ovs-ofctl", "-O", "OpenFlow13", "mod-port", "s1", "1", "no-receive")
            found = await seen(of, lambda one: bool(one.mismatches))
            assert [m.text for m in found.mismatches] == ["what l1 port 1 sends arrives nowhere; the file says at s1 port 1"]
            assert found.dead == {("l1", "s1")}
            lab.run("ovs-ofctl", "-O", "OpenFlow13", "mod-port", "s1", "1", "receive")
            await seen(of, lambda one: one == NetworkSeen(switches=frozenset(NAMES)))

    lab.drive(scenario)


def test_a_controller_that_starts_leads_no_packet_over_a_cable_without_light(lab: Lab) -> None:
    (cable,) = {link.interface for link in FABRIC.links if (link.src, link.dst) == ("l1", "s1")}

    async def scenario() -> None:
        async with Listener(fabric=FABRIC, watches=True) as of:
            await of.install(1)
            lab.run("ip", "link", "set", cable, "down")
            await seen(of, lambda one: len(one.mismatches) == 2)
            await asyncio.sleep(1.0)
        before = {name: lab.flows(name) for name in NAMES}
        async with Listener(fabric=FABRIC, watches=True) as of:
            reports = await of.install(1)
        assert {name: report.changes for name, report in reports.items()} == dict.fromkeys(NAMES, 0)
        assert {name: lab.flows(name) for name in NAMES} == before

    lab.drive(scenario)
