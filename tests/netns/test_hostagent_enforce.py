"""Trees that another program changes while an agent runs, checked with `tc`."""

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beamer.errors import PlatformError
from beamer.network.protocol import Assignment, Interface, InterfaceMember, PortCounters
from hostagent import misfits
from hostagent.desired import desired_state
from hostagent.enforce import WHOLE_TREE_EVERY, Enforcer
from hostagent.expiry.state import StateDirectory
from hostagent.limits import MAX_PORT_FRAME_BYTES, MAX_RATE_BPS
from hostagent.marks import acknowledgements
from hostagent.queues.htb import Queues
from hostagent.queues.tree import Change, Tree
from tests.support.namespaces import Namespace, cabled_namespaces

pytestmark = pytest.mark.netns

PORTS = (
    {"interface": "data", "rate_bps": 20_000_000, "classify": "dscp"},
    {"interface": "lo", "rate_bps": 10**9, "classify": "dscp"},
)


WANTED = desired_state(Assignment.model_validate({"generation": 1, "ports": PORTS}))


@pytest.fixture
def spaces() -> Iterator[tuple[Namespace, ...]]:
    with cabled_namespaces("a", "b") as made:
        yield made


def with_enforcer(space: Namespace, state: Path, use: Callable[[Enforcer], Any]) -> Any:
    def inside() -> Any:
        enforcer = Enforcer(StateDirectory(state))
        try:
            enforcer.apply(WANTED)
            return use(enforcer)
        finally:
            enforcer.close()

    return space.call(inside)


def reports(enforcer: Enforcer) -> list[tuple[PortCounters, ...]]:
    """Take as many reports as it needs for every port's turn to have come."""
    return [enforcer.counters() for _ in range(WHOLE_TREE_EVERY)]


def shown(space: Namespace) -> list[str]:
    """Return what `tc` shows of the ports' classes and filters, in whatever order it lists them."""
    lines: list[str] = []
    for port in PORTS:
        for kind in ("class", "filter"):
            lines += space.run("tc", kind, "show", "dev", str(port["interface"])).splitlines()
    return sorted(re.sub(r" fh \S+| key ht \S+ bkt \S+|order \d+", "", line) for line in lines)


def send(count: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 3 << 2)
        for _ in range(count):
            sender.sendto(b"x", ("10.77.0.2", 9))


def test_a_deleted_filter_and_a_changed_rate_come_back(spaces: tuple[Namespace, ...], tmp_path: Path) -> None:
    def tamper(enforcer: Enforcer) -> None:
        before = shown(spaces[0])
        spaces[0].run("tc", "filter", "del", "dev", "data", "parent", "1:", "prio", "3")
        spaces[0].run("tc", "class", "change", "dev", "lo", "parent", "1:1", "classid", "1:14", "htb", "rate", "9Mbit")
        assert shown(spaces[0]) != before
        reports(enforcer)
        assert shown(spaces[0]) == before

    with_enforcer(spaces[0], tmp_path, tamper)


def test_what_somebody_changes_comes_back_with_the_next_report_and_nothing_is_read_otherwise(
    spaces: tuple[Namespace, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tamper(enforcer: Enforcer) -> None:
        before = shown(spaces[0])
        enforcer.counters()
        read: list[str] = []
        reconcile = Queues.reconcile
        monkeypatch.setattr(Queues, "reconcile", lambda self, name, tree: (read.append(name), reconcile(self, name, tree))[1])
        enforcer.counters()
        assert read == []
        spaces[0].run("tc", "class", "change", "dev", "data", "parent", "1:1", "classid", "1:14", "htb", "rate", "9Mbit")
        spaces[0].run("tc", "filter", "del", "dev", "lo", "parent", "1:", "prio", "3")
        assert shown(spaces[0]) != before
        enforcer.counters()
        assert sorted(read) == ["data", "lo"]
        assert shown(spaces[0]) == before
        assert enforcer.mended() == {"data": 1, "lo": 1}

    with_enforcer(spaces[0], tmp_path, tamper)


def test_rules_of_nftables_come_back_with_the_next_report_and_are_not_read_otherwise(
    spaces: tuple[Namespace, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, ports = spaces[0], [{**PORTS[0], "classify": "mark"}]
    marking = desired_state(Assignment.model_validate({"generation": 1, "ports": ports}))
    changes = {
        "everything": ("flush", "ruleset"),
        "a chain": ("flush", "chain", "ip", "beamer-data", "acknowledgement"),
        "a rule that was added": ("add", "rule", "ip", "beamer-data", "leaving", "drop"),
        "the table": ("delete", "table", "ip", "beamer-data"),
    }

    def tamper() -> None:
        enforcer = Enforcer(StateDirectory(tmp_path))
        enforcer.apply(marking)
        whole = here.run("nft", "list", "table", "ip", "beamer-data")
        for command in changes.values():
            here.run("nft", *command)
            enforcer.counters()
            assert here.run("nft", "list", "table", "ip", "beamer-data") == whole
            assert enforcer.mended() == {"data": 1}
            enforcer.counters()  # The kernel says what was mended, too.
        monkeypatch.setattr(acknowledgements, "nft", read.append)
        here.run("nft", "add", "table", "ip", "others")
        here.run("nft", "flush", "table", "ip", "others")
        enforcer.counters()
        enforcer.close()

    read: list[object] = []
    here.call(tamper)
    assert not read


def test_reading_changes_nothing_and_no_repair_resets_a_counter(
    spaces: tuple[Namespace, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconciled: list[tuple[str, int]] = []
    reconcile = Queues.reconcile

    def noting(queues: Queues, interface: str, desired: Tree | None) -> int:
        changes = reconcile(queues, interface, desired)
        reconciled.append((interface, changes))
        return changes

    def sent(report: tuple[PortCounters, ...]) -> int:
        return next(c.sent_packets for c in report[0].classes if c.klass == 0)

    def read_counters(enforcer: Enforcer) -> None:
        monkeypatch.setattr(Queues, "reconcile", noting)
        send(5)
        assert [sent(report) for report in reports(enforcer)] == [5] * WHOLE_TREE_EVERY
        assert sorted(reconciled) == [("data", 0), ("lo", 0)], "every port has one turn"
        spaces[0].run("tc", "filter", "del", "dev", "data", "parent", "1:", "prio", "8")
        assert [sent(report) for report in reports(enforcer)] == [5] * WHOLE_TREE_EVERY
        # The kernel says that the filter is gone, and then that it is back; the other port has its turn.
        assert sorted(reconciled[2:]) == [("data", 0), ("data", 1), ("lo", 0)]

    with_enforcer(spaces[0], tmp_path, read_counters)


def test_an_interface_that_is_deleted_while_a_plan_is_applied_is_named_and_served_when_it_is_back(
    spaces: tuple[Namespace, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = spaces[0]
    apply = Queues._apply

    def lose(queues: Queues, index: int, change: Change) -> None:
        """Delete the interface when the first change to it goes in."""
        apply(queues, index, change)
        if index == socket.if_nametoindex("data"):
            monkeypatch.setattr(Queues, "_apply", apply)
            here.run("ip", "link", "del", "data")

    def inside() -> None:
        enforcer = Enforcer(StateDirectory(tmp_path))
        try:
            monkeypatch.setattr(Queues, "_apply", lose)
            for _ in range(2):  # when it goes, and as long as it is away
                with pytest.raises(PlatformError, match="data"):
                    enforcer.apply(WANTED)
                assert len(here.run("tc", "class", "show", "dev", "lo").splitlines()) == 10, "the other one is served"
            assert [port.interface for port in enforcer.counters()] == ["lo"]
            here.run("ip", "link", "add", "data", "type", "veth", "peer", "name", "data2")
            assert enforcer.apply(WANTED) == 1 + 10 + 9, "root, classes, filters"
            assert enforcer.apply(WANTED) == 0
            assert len(here.run("tc", "class", "show", "dev", "data").splitlines()) == 10
        finally:
            enforcer.close()

    here.call(inside)


def test_the_largest_rate_and_frame_that_are_taken_read_back(spaces: tuple[Namespace, ...], tmp_path: Path) -> None:
    port = {"interface": "data", "rate_bps": MAX_RATE_BPS, "classify": "mark", "frame_bytes": MAX_PORT_FRAME_BYTES}
    fastest = desired_state(Assignment.model_validate({"generation": 2, "ports": (port,)}))

    def use(enforcer: Enforcer) -> None:
        assert enforcer.apply(fastest) > 0
        assert enforcer.apply(fastest) == 0

    with_enforcer(spaces[0], tmp_path, use)


def test_a_member_of_a_bond_loses_its_queues_and_gets_them_back(
    spaces: tuple[Namespace, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel of the tests has no bonds, so that only what it says of them is made up."""
    mac = "02:00:00:00:00:01"
    card = Interface(name="data", mac=mac, mtu=1500)
    bond = Interface(name="bond0", mac=mac, mtu=1500, kind="bond", members=(InterfaceMember(name="data", mac=mac),))
    wanted = desired_state(Assignment.model_validate({"generation": 2, "ports": [{**PORTS[0], "classify": "mark"}]}))

    def roots() -> str:
        return spaces[0].run("tc", "qdisc", "show", "dev", "data")

    def use(enforcer: Enforcer) -> None:
        monkeypatch.setattr(misfits, "interfaces", lambda: (card,))
        enforcer.apply(wanted)
        assert "htb" in roots()
        enforcer.counters()
        monkeypatch.setattr(misfits, "interfaces", lambda: (bond, card))
        spaces[0].run("ip", "link", "set", "data", "alias", "changed")
        enforcer.counters()
        for _ in range(2):
            with pytest.raises(PlatformError, match="data is a member of bond0, a bond"):
                enforcer.apply(wanted)
            assert "htb" not in roots()
            assert enforcer.counters()
        monkeypatch.setattr(misfits, "interfaces", lambda: (card,))
        enforcer.apply(wanted)
        assert "htb" in roots()

    with_enforcer(spaces[0], tmp_path, use)
