"""Faults in the lab of namespaces: whether a broken connection, a pause, a rule, a mark that changes would be noticed."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from eval.faults import emulated
from eval.faults.emulated import Effects
from eval.faults.observation import RuleReading
from eval.faults.traffic_worker import MESSAGE, ConnectionProgress, TrafficConnection
from topologies.emulation import vswitch

PLAIN = "cookie=0xbea3010000000000, table=0, priority=1,ip actions=goto_table:2"
PAIR = "cookie=0xbea3060000000001, table=1, idle_timeout=60, send_flow_rem priority=1000,ip,metadata=0x1 actions=goto_table:3"
UNUSED = ("s1", "1", "priority=1000,ip,metadata=0x1")
RULES = RuleReading(100.0, 100.25, {("s1", PLAIN): 50.0, ("s1", PAIR): 0.5})


@pytest.fixture
def ends() -> Iterator[tuple[TrafficConnection, TrafficConnection]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        first = socket.create_connection(server.getsockname())
        second = server.accept()[0]
    with first, second:
        yield TrafficConnection(first, 10.0), TrafficConnection(second, 10.0)


def sent(source: TrafficConnection, target: TrafficConnection, now: float) -> None:
    source.send()
    target.sock.setblocking(True)
    target.receive(now)


def test_the_longest_pause_between_bytes_is_found_and_one_that_goes_on(
    ends: tuple[TrafficConnection, TrafficConnection],
) -> None:
    source, target = ends
    for now in (11.0, 14.0, 15.0):
        sent(source, target, now)
    found = target.progress(15.5)
    assert (found.received_bytes, found.longest_pause_s, found.broken) == (3 * len(MESSAGE), 3.0, "")
    assert target.progress(25.0).longest_pause_s == 10.0
    sent(source, target, 26.0)
    found = target.progress(26.0)
    assert (found.received_bytes, found.longest_pause_s) == (len(MESSAGE), 11.0)


def test_a_connection_that_the_other_end_closes_or_resets_is_broken(
    ends: tuple[TrafficConnection, TrafficConnection],
) -> None:
    source, target = ends
    source.sock.close()
    target.sock.setblocking(True)
    target.receive(11.0)
    assert target.progress(11.0).broken == "closed by the other end"
    target.broken = ""
    target.send()  # answered by a reset
    target.receive(12.0)
    assert target.broken


@pytest.mark.parametrize(
    ("ages", "disturbed"),
    [
        ({("s1", PLAIN): 53.0, ("s1", PAIR): 3.5}, []),
        ({("s1", PLAIN): 53.0}, [("s1", PAIR)]),
        ({("s1", PLAIN): 2.0, ("s1", PAIR): 3.5}, [("s1", PLAIN)]),
        ({("s1", PLAIN): 53.0, ("s1", PAIR): 2.0}, [("s1", PAIR)]),  # older than it was before, yet added since
    ],
)
def test_a_rule_that_is_gone_or_was_added_anew_is_found(ages: dict[tuple[str, str], float], disturbed: list[Any]) -> None:
    later = RuleReading(103.0, 103.25, ages)
    assert RULES.disturbed(later) == disturbed
    assert RULES.disturbed(later, {UNUSED}) == [rule for rule in disturbed if rule != ("s1", PAIR)]


GOOD = ConnectionProgress(1000, 0.02, "", 0x10010, 3)


@pytest.mark.parametrize(
    ("progress", "ages", "unused", "counted"),
    [
        ([GOOD, GOOD], {("s1", PLAIN): 53.0, ("s1", PAIR): 3.5}, set(), None),
        ([GOOD, GOOD], {("s1", PLAIN): 53.0, ("s1", PAIR): 1.0}, {UNUSED}, None),
        ([GOOD, GOOD], {("s1", PLAIN): 53.0}, set(), "rules lost or added anew"),
        ([GOOD, ConnectionProgress(0, 3.0, "", 0x10010, 3)], RULES.ages, {UNUSED}, "connections at a stand"),
        ([GOOD, ConnectionProgress(9, 0.1, "reset", 0x10010, 3)], RULES.ages, {UNUSED}, "connections broken"),
        ([GOOD, ConnectionProgress(9, 0.1, "", 0, 0)], RULES.ages, {UNUSED}, "marks changed"),
    ],
)
def test_what_is_disturbed_is_counted_and_a_failure(
    progress: list[ConnectionProgress],
    ages: dict[tuple[str, str], float],
    unused: set[Any],
    counted: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Worked:
        async def progress(self) -> list[ConnectionProgress]:
            return progress

    class Site:
        run = None

    aged = {rule: max(age, 53.0) if rule[1] == PLAIN else age for rule, age in ages.items()}
    monkeypatch.setattr(emulated, "read_rules", lambda run, switches: RuleReading(103.0, 103.25, aged))
    monkeypatch.setattr(emulated, "TOLD_S", 0.0)
    marks = [(0x10010, 3)] * 2
    effects = Effects(Site(), Worked(), lambda: unused, RULES, marks)  # type: ignore[arg-type]
    asyncio.run(effects.look())
    expected = {counted: 1} if counted else {}
    found = {
        name: count for name, count in effects.counts().items() if name not in ("connections", "longest pause of one in ms")
    }
    assert {name: count for name, count in found.items() if count} == expected
    assert len(effects.failures) == len(expected)
    assert effects.longest_pause_s == max(one.longest_pause_s for one in progress)


def test_a_switch_is_pointed_at_all_controllers_in_one_transaction() -> None:
    command = vswitch.set_controllers("s1", ["tcp:10.0.0.1:6653", "tcp:10.0.0.2:6653"])
    assert command.count("ovs-vsctl") == 1
    assert [word for word in command if word.startswith("target=")] == [
        'target="tcp:10.0.0.1:6653"',
        'target="tcp:10.0.0.2:6653"',
    ]
    assert command[-3:] == ["bridge", "s1", "controller=@c0,@c1"]
