"""Rules in their lesser form on real switches, beside full ones: Open vSwitch with tables that take only so many rules."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import pytest

from beamer.network.codepoints import LOCAL
from beamer.network.protocol import Port
from controller.openflow.reports import SwitchForm
from hostagent.queues.htb import Queues
from hostagent.queues.tree import port_tree
from tests.emulation.repetition import until_valid
from tests.netns.lab import FABRIC, NAMES, Lab, Listener
from tests.netns.test_openflow import LEFT, RIGHT, finish, job, open_connection, send
from tests.support.tiers import long
from topologies.emulation.vswitch import enlarge_buffers

pytestmark = pytest.mark.netns

# Sends datagrams of two codepoints, as fast as it can, for a time.
BURST = """
import socket, sys, time
senders = []
for dscp in map(int, sys.argv[2:]):
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
    senders.append(sender)
    sender.sendto(bytes(1400), (sys.argv[1], 7003))
time.sleep(0.5)
print("ready", flush=True)
sys.stdin.readline()
began = time.monotonic()
for sender in senders:
    for number in range(300):
        sender.sendto(bytes(1400), (sys.argv[1], 7003))
        if number % 4 == 3:
            time.sleep(0.001)
print(time.monotonic() - began, flush=True)
"""
ARRIVALS = """
import socket
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
receiver.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
receiver.bind(("", 7003))
print("ready", flush=True)
receiver.settimeout(30)
seen = []
try:
    while True:
        _, of, _, _ = receiver.recvmsg(2000, 100)
        seen.append(of[0][2][0] >> 2)
        receiver.settimeout(2)
except TimeoutError:
    print(*seen, flush=True)
"""
PROMPT_S = 0.4  # A burst that takes longer has been waited for a processor, and its link has been idle meanwhile.


def limit(lab: Lab, switch: str, table: int, entries: int) -> None:
    """Have a table of a switch refuse more than so many rules: it says so, too, when it is asked."""
    made = ("--id=@t", "create", "Flow_Table", f"flow_limit={entries}", "overflow_policy=refuse")
    lab.run("ovs-vsctl", "-t", "20", "--", *made, "--", "set", "bridge", switch, f"flow_tables:{table}=@t")


def forms(listener: Listener) -> Mapping[str, SwitchForm]:
    return {event.switch: event for event in listener.events if isinstance(event, SwitchForm)}


def tables(lab: Lab, switch: str) -> set[str]:
    return {flow.split("table=")[1].split(",")[0] for flow in lab.flows(switch)}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("names", ["l1 s1", *long("l2 s2")])
def test_packets_and_classes_pass_switches_of_both_forms(lab: Lab, names: str) -> None:
    lesser = names.split()
    for name in lesser:
        limit(lab, name, 2, 5)

    async def scenario() -> None:
        async with Listener(watches=True) as listener:
            with ExitStack() as stack:
                await listener.install(1)
                assert {name: form.form for name, form in forms(listener).items()} == dict.fromkeys(lesser, "host marks")
                assert "table 2 needs 10 rules and has room for 5" in forms(listener)[lesser[0]].reason
                assert {name: tables(lab, name) == {"0"} for name in NAMES} == {name: name in lesser for name in NAMES}
                client, server = await open_connection(lab, stack)
                await listener.install(2, job(klass=2))
                await send(client, 200, LOCAL.of(2))
                await send(client, 100)
                arrived = finish(client, server)
                assert arrived[LOCAL.of(2)] > (200_000 if "l1" in lesser else 300_000), arrived
                assert (arrived.get(0, 0) > 100_000) is ("l1" in lesser), "a full edge gives the class, a lesser one believes"
                await asyncio.sleep(1)
                pairs = await listener.driver.counters()
                assert {pair.switch for pair in pairs} == {"l1", "l2"} - {*lesser}
                seen = listener.seen()[-1]
                assert (seen.dead, {one.kind for one in seen.mismatches} - {"no queues"}) == (frozenset(), set())

    lab.drive(scenario)


def test_a_table_that_overflows_leads_to_the_lesser_form(lab: Lab) -> None:
    """The limit is set once the switch has been asked, so that it refuses what it has said that it holds."""

    async def scenario() -> None:
        async with Listener() as listener:
            await listener.install(1)
            await listener.install(2, job(klass=2))
            assert forms(listener) == {}
            limit(lab, "l2", 1, 5)
            await listener.install(3, job(klass=2), job(klass=4, seq=2, plane=0))
            assert forms(listener)["l2"].form == "host marks"
            assert "table 1 needs" in forms(listener)["l2"].reason
            await until(lambda: tables(lab, "l2") == {"0"})
            with ExitStack() as stack:
                client, server = await open_connection(lab, stack)
                await send(client, 100, LOCAL.of(4))
                assert finish(client, server)[LOCAL.of(4)] > 100_000

    lab.drive(scenario)


def test_the_order_of_classes_holds_behind_a_lesser_switch(lab: Lab) -> None:
    """Its port's queues are its agent's, by codepoint: of class 0, which is sent last, nearly all arrives before class 5."""
    for name in ("l1", "l2"):  # The first one believes codepoints that no connection is registered for.
        limit(lab, name, 2, 5)
    port = FABRIC.links[FABRIC.link_index["l2", RIGHT.name]].interface
    urgent, other = LOCAL.of(0), LOCAL.of(5)

    def make_queues() -> None:
        queues = Queues()
        queues.reconcile(port, port_tree(Port(interface=port, rate_bps=2_000_000, classify="dscp"), 8, 0.1, {}))
        queues.close()

    async def scenario() -> tuple[list[int], float]:
        await asyncio.to_thread(make_queues)
        async with Listener() as listener:
            await listener.install(1)
            assert forms(listener)["l2"].form == "host marks"
            with ExitStack() as stack:
                receiving = lab.python(RIGHT.name, ARRIVALS)
                stack.callback(lambda: (receiving.kill(), receiving.communicate()))
                sending = lab.python(LEFT.name, BURST, RIGHT.ip, str(other), str(urgent))
                stack.callback(lambda: (sending.kill(), sending.communicate()))
                for one in (receiving, sending):
                    assert one.stdout
                    assert await asyncio.to_thread(one.stdout.readline) == "ready\n"
                # The daemon sends through one socket, whose default buffer is smaller than the queues; it is there by now.
                enlarge_buffers(int((lab.directory / "ovs-vswitchd.pid").read_text()))
                took, _ = await asyncio.to_thread(sending.communicate, "\n")
                seen, _ = await asyncio.to_thread(receiving.communicate)
        return [int(dscp) for dscp in seen.split()], float(took)

    def run() -> tuple[list[int], list[str]]:
        seen, took_s = lab.drive(scenario)
        return seen, [f"the sender waited for a processor: {took_s:.2f} s"] if took_s > PROMPT_S else []

    seen = until_valid(run)
    assert seen.count(urgent) > 200
    assert seen.count(other) > 200
    until_last = seen[: len(seen) - seen[::-1].index(urgent)]
    assert until_last.count(urgent) > 4 * until_last.count(other), (until_last.count(urgent), until_last.count(other))
