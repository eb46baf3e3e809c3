"""A controller that makes the queues of real switches by their databases, and finds out what the switches do with them."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Callable

import pytest

import beamer.cli
from beamer.network.observed_fabric import Mismatch
from controller.openflow import survey
from controller.openflow.reports import NetworkSeen
from controller.ovsdb import removal
from tests.netns.bench import eventually
from tests.netns.lab import FABRIC, NAMES, Lab, Listener
from tests.netns.queue_makers import with_databases
from tests.support.commands import run_here

pytestmark = pytest.mark.netns
PATIENCE_S = 30
UPLINK = next(link.interface for link in FABRIC.links if link.src == "h1")
SENDER = """
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
    for number in range(100):
        for port in sys.argv[2:]:
            end.sendto(bytes(100), (sys.argv[1], int(port)))
        time.sleep(0.002)
"""
TOLD = "does not queue as told: its queues count none of the packets that rules choose a queue for"
USERSPACE = "Open vSwitch's userspace datapath ignores set_queue, so let an agent make the queues"


async def seen(of: Listener, holds: Callable[[NetworkSeen], bool]) -> NetworkSeen:
    """Return what is seen of the network once something holds of it."""
    async with asyncio.timeout(PATIENCE_S):
        while not (of.seen() and holds(of.seen()[-1])):
            await asyncio.sleep(0.02)
    return of.seen()[-1]


def kinds(found: NetworkSeen) -> set[tuple[str, str, int]]:
    return {(one.kind, one.switch, one.port) for one in found.mismatches}


def test_the_userspace_datapath_has_queues_and_does_not_use_them_and_this_is_found_out(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "QUEUES_S", 0.5)
    monkeypatch.setattr(survey, "ROUND_S", 0.2)
    fabric = with_databases(FABRIC, f"unix:{lab.directory}/db.sock")

    async def scenario() -> None:
        async with Listener(fabric=fabric, watches=True) as of:
            await of.install(1)
            found = await seen(of, lambda one: len(one.mismatches) == len(NAMES))
            assert set(found.mismatches) == {Mismatch("not queued", name, 0, f"{name} {TOLD}; {USERSPACE}") for name in NAMES}
            assert found.dead == frozenset(), "packets pass"
            assert all(one.unread or one.mismatches for one in of.seen() if one.switches == NAMES), (
                "it is never taken for right"
            )

    lab.drive(scenario)
    # Two flows by rules of our own, each to another queue.
    for queue, port in ((1, 5001), (8, 5008)):
        flow = f"table=0,priority=60000,udp,in_port=3,tp_dst={port},actions=set_queue:{queue},output:1"
        lab.run("ovs-ofctl", "-O", "OpenFlow13", "add-flow", "l1", flow)
    lab.run("ip", "neighbour", "add", "10.77.0.2", "lladdr", FABRIC.host["h2"].mac, "dev", UPLINK, of="h1")
    lab.run(sys.executable, "-c", SENDER, "10.77.0.2", "5001", "5008", of="h1")
    eventually(lambda: len(re.findall(r"n_packets=100,.*set_queue", dumped(lab))) == 2)
    queues = lab.run("ovs-ofctl", "-O", "OpenFlow13", "queue-stats", "l1", "1")
    packets = {int(queue): int(count) for queue, count in re.findall(r"queue (\d+): bytes=\d+, pkts=(\d+)", queues)}
    assert packets.keys() == set(range(9)), "queues stay when the controller ends"
    assert packets[0] >= 200
    assert not any(packets[queue] for queue in range(1, 9)), "all went by queue 0"


def dumped(lab: Lab) -> str:
    return lab.run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "l1", "table=0")


def test_a_database_that_goes_is_named_holds_no_rules_up_and_is_found_again(lab: Lab) -> None:
    fabric = with_databases(FABRIC, f"unix:{lab.directory}/db.sock")
    server = ["ovsdb-server", f"{lab.directory}/conf.db", f"--remote=punix:{lab.directory}/db.sock"]

    async def scenario() -> None:
        async with Listener(fabric=fabric, watches=True) as of:
            await of.install(1)
            await seen(of, lambda one: one.unread == frozenset() or not one.mismatches)
            await asyncio.to_thread(lab.run, "ovs-appctl", "-t", "ovsdb-server", "exit")
            gone = {("no database", name, 0) for name in NAMES}
            found = await seen(of, lambda one: gone <= kinds(one))
            assert found.unread == NAMES
            assert (
                "No such file or directory" in found.mismatches[0].text or "closed the connection" in found.mismatches[0].text
            )
            await of.install(2)
            quiet = ["--detach", "--no-chdir", "--pidfile", "--log-file", "-vconsole:off"]
            await asyncio.to_thread(lab.run, *server, *quiet)
            await seen(of, lambda one: not gone & kinds(one))

    lab.drive(scenario)


def test_a_command_removes_beamers_queues_and_no_others(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = with_databases(FABRIC, f"unix:{lab.directory}/db.sock")
    (lab.directory / "fabric.json").write_text(json.dumps(fabric.to_dict()))
    theirs = "--id=@q create qos type=linux-htb queues:1=@a -- --id=@a create queue dscp=7"
    lab.run("sh", "-c", f"ovs-vsctl set port l2-eth2 qos=@q -- {theirs}")

    def removed(*options: str) -> tuple[int, list[str]]:
        done = run_here(beamer.cli.main, "fabric", "remove-queues", str(lab.directory / "fabric.json"), *options)
        return done.returncode, sorted(done.stdout.splitlines())

    async def scenario() -> None:
        async with Listener(fabric=fabric, watches=True) as of:
            found = await seen(of, lambda one: one.unread != NAMES and len(one.mismatches) > 0)
            assert ("foreign queues", "l2", 2) in kinds(found)
            async with asyncio.timeout(PATIENCE_S):
                while len((await asyncio.to_thread(lab.run, "sh", "-c", WITH_QUEUES)).split()) < PORTS:
                    await asyncio.sleep(0.1)
            code, lines = await asyncio.to_thread(removed, "--switch", "l1")
            (said,) = (line for line in lines if line.startswith("l1: "))
            assert (code, "they are made again: stop the controller" in said) == (1, True), said
            async with asyncio.timeout(PATIENCE_S):
                while len((await asyncio.to_thread(lab.run, "sh", "-c", WITH_QUEUES)).split()) < PORTS:
                    await asyncio.sleep(0.1)

    lab.drive(scenario)
    rows = {"l1": 3 * (1 + 9), "l2": 2 * (1 + 9), "s1": 2 * (1 + 9), "s2": 2 * (1 + 9)}
    ports = {"l1": "l1-eth1, l1-eth2, l1-eth3", "l2": "l2-eth1, l2-eth3", **{s: f"{s}-eth1, {s}-eth2" for s in ("s1", "s2")}}
    queue = lab.run("ovs-vsctl", "--bare", "--columns=_uuid", "find", "queue", f"external_ids:beamer={DPID}/1/0").strip()
    others = lab.run("ovs-vsctl", "create", "qos", "type=linux-htb", f"queues:0={queue}").strip()
    said = {name: f"{name}: the queues of {ports[name]} are removed; rows of Beamer's removed: {rows[name]}" for name in ports}
    said["s2"] = said["s2"].replace("20", "19") + "; rows of Beamer's that stay, as others refer to them: 1"
    assert removed() == (1, list(said.values()))
    lab.run("ovs-vsctl", "destroy", "qos", others)
    assert removed("--switch", "s2") == (0, ["s2: rows of Beamer's removed: 1"])
    stray = lab.run("ovs-vsctl", "create", "queue", "external_ids:beamer=00000000000000ff/1/0").strip()
    by = "ovs-vsctl --columns=_uuid,external_ids find queue (and qos) shows them"
    strays = f"rows of Beamer's for datapath ids that no bridge of this database has: 1; {by}"
    assert removed("--switch", "l1") == (1, [f"l1: has no queues of Beamer's; {strays}"])
    lab.run("ovs-vsctl", "destroy", "queue", stray)
    assert removed() == (0, [f"{name}: has no queues of Beamer's" for name in ports])
    daemon = int((lab.directory / "ovs-vswitchd.pid").read_text())
    os.kill(daemon, signal.SIGSTOP)
    monkeypatch.setattr(removal, "TAKEN_S", 0.5)
    alone = "that is so in the database alone: ovs-vswitchd does not take it over; start it"
    assert removed("--switch", "l1") == (1, [f"l1: has no queues of Beamer's; {alone}"])
    os.kill(daemon, signal.SIGCONT)
    assert lab.run("sh", "-c", WITH_QUEUES).split() == ["l2-eth2"]
    assert len(lab.run("ovs-vsctl", "--bare", "--columns=_uuid", "list", "qos").split()) == 1
    assert len(lab.run("ovs-vsctl", "--bare", "--columns=_uuid", "list", "queue").split()) == 1
    eventually(lambda: "htb" not in lab.run("tc", "qdisc", "show", "dev", "l1-eth1"))


DPID = f"{FABRIC.switch['s2'].dpid:016x}"
PORTS = sum(link.src in FABRIC.switch for link in FABRIC.links)
WITH_QUEUES = "ovs-vsctl --bare --columns=name find port qos!=[]"
