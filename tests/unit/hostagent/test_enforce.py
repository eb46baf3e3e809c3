"""Applying a desired state over fake queues and sockets."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

from beamer.errors import InputError, PlatformError
from beamer.network.codepoints import LOCAL, PRECEDENCE, Codepoints
from beamer.network.protocol import Assignment, Interface, InterfaceMember, LocalWorker, Port
from beamer.studies.model import Process
from beamer.units import ETHERNET_MTU
from hostagent import enforce as module
from hostagent import misfits
from hostagent.desired import DesiredState, desired_state
from hostagent.enforce import WHOLE_TREE_EVERY, Enforcer
from hostagent.expiry.state import StateDirectory
from hostagent.marks.socket_marks import Mark
from hostagent.queues.class_counts import ClassCount
from hostagent.queues.kernel_changes import Changed
from hostagent.queues.tree import Tree, class_id

PORTS = tuple(Port(interface=name, rate_bps=20_000_000, classify="mark") for name in ("e0", "e1"))
WORKER = LocalWorker(job="s/t/j", rank=0, process=Process(2), klass=2)


class FakeQueues:
    """Trees in memory; refuses those of the interfaces in `refusing`."""

    def __init__(self) -> None:
        self.trees: dict[str, Tree] = {}
        self.reconciled: list[str] = []
        self.refusing: set[str] = set()
        self.indices = {port.interface: place for place, port in enumerate(PORTS, 1)}
        self.mtus = dict.fromkeys(self.indices, ETHERNET_MTU)
        self.foreign: set[str] = set()
        self.machine: tuple[Interface, ...] = ()

    def index(self, interface: str) -> int:
        if interface not in self.indices:
            raise InputError("ports.interface", interface, "an interface of this network namespace")
        return self.indices[interface]

    def mtu(self, interface: str) -> int:
        return self.mtus[interface]

    def observe(self, interface: str) -> Tree | None:
        if interface in self.foreign:
            raise InputError(f"ports[{interface}]", "tbf 8001:", "an interface with the kernel's default queueing discipline")
        return self.trees.get(interface)

    def reconcile(self, interface: str, desired: Tree | None) -> int:
        if interface in self.refusing:
            raise PlatformError(interface, "try again")
        changes = int(self.observe(interface) != desired)
        if desired is None:
            del self.trees[interface]
        else:
            self.trees[interface] = desired
        self.reconciled.append(interface)
        return changes

    def counts(self, interface: str) -> dict[int, ClassCount]:
        if interface in self.foreign or interface not in self.trees:
            return {}
        return {id_: ClassCount(0, 0, 0, 0) for id_ in self.trees[interface].classes}

    def close(self) -> None: ...


class FakeKernelChanges:
    """Says once what a test says."""

    def __init__(self) -> None:
        self.changed = Changed()

    def take(self) -> Changed:
        changed, self.changed = self.changed, Changed()
        return changed

    def close(self) -> None: ...


class FakeAcknowledgements:
    """Has nothing to change. asked: the codepoints of each time, by all that there are."""

    asked: ClassVar[list[Codepoints]] = []

    def reconcile(self, interface: str, codepoints: Codepoints, *, ipv6: bool) -> int:
        self.asked.append(codepoints)
        return 0

    def remove(self, interface: str) -> None: ...


class FakeHoldRule:
    """Is never installed."""

    def cover(self, *, ipv6: bool) -> None: ...
    def remove(self) -> None: ...


class FakeSockets:
    """Remembers the marks that it was given; `failure` is raised by whatever touches a socket."""

    def __init__(self) -> None:
        self.marks: dict[str, Mark] | None = None
        self.failure: Exception | None = None
        self.connections: tuple[()] = ()
        self.unmatched_bytes = {"s/t/j": 5}
        self.complete = False
        self.draining = False
        self.gone: tuple[()] = ()
        self.refused: tuple[()] = ()

    def assign(self, workers: Any, addresses: Any, known: Any, marks: dict[str, Mark], own_addresses: Any) -> int:
        self.marks = marks
        return 1

    def unmark_leftovers(self) -> int:
        return 0

    def poll(self) -> int:
        if self.failure:
            raise self.failure
        return 0

    def close(self) -> None: ...


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FakeKernelChanges:
    made = FakeKernelChanges()
    monkeypatch.setattr(module, "KernelChanges", lambda: made)
    return made


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch, kernel: FakeKernelChanges) -> FakeQueues:
    made = FakeQueues()
    monkeypatch.setattr(module, "Queues", lambda: made)
    monkeypatch.setattr(misfits, "interfaces", lambda: made.machine)
    monkeypatch.setattr(module, "Acknowledgements", FakeAcknowledgements)
    monkeypatch.setattr(module, "HoldRule", FakeHoldRule)
    return made


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> FakeSockets:
    made = FakeSockets()
    monkeypatch.setattr(module, "SocketTable", lambda _: made)
    return made


def wanted(**other: object) -> DesiredState:
    return desired_state(Assignment.model_validate({"generation": 1, "ports": PORTS, "workers": (WORKER,)} | other))


def test_what_failed_half_way_is_completed_by_the_next_attempt(
    tmp_path: Path, queues: FakeQueues, sockets: FakeSockets
) -> None:
    enforcer = Enforcer(StateDirectory(tmp_path / "h1"))
    queues.refusing = {"e1"}
    with pytest.raises(PlatformError, match="e1"):
        enforcer.apply(wanted())
    assert set(queues.trees) == {"e0"}
    queues.refusing = set()
    assert enforcer.apply(wanted()) == 2, "the other port and the socket"
    assert queues.trees == wanted().trees
    assert sockets.marks == {"s/t/j": Mark(class_id(2), 8 * 2 + 3)}


def test_connections_are_reported_even_if_no_sockets_are_listed(
    tmp_path: Path, queues: FakeQueues, sockets: FakeSockets
) -> None:
    sockets.failure = PlatformError("the kernel lists no TCP sockets", "load inet_diag and tcp_diag")
    seen = Enforcer(StateDirectory(tmp_path / "h1")).poll()
    assert seen.report.unmatched_bytes == {"s/t/j": 5}
    assert seen.error is sockets.failure


def test_one_interface_that_fails_keeps_nothing_else_from_being_applied(
    tmp_path: Path, queues: FakeQueues, sockets: FakeSockets
) -> None:
    enforcer = Enforcer(StateDirectory(tmp_path / "h1"))
    queues.refusing = {"e0"}
    with pytest.raises(PlatformError, match="e0"):
        enforcer.apply(wanted())
    assert set(queues.trees) == {"e1"}
    assert sockets.marks == {"s/t/j": Mark(class_id(2), 8 * 2 + 3)}


def test_an_interface_that_goes_away_between_the_steps_is_named_and_served_when_it_is_back(
    tmp_path: Path, queues: FakeQueues, sockets: FakeSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforcer = Enforcer(StateDirectory(tmp_path / "h1"))
    reconcile = FakeQueues.reconcile

    def reconcile_and_lose(made: FakeQueues, interface: str, desired: Tree) -> int:
        changes = reconcile(made, interface, desired)
        queues.indices.pop("e0", None)  # after its turn
        queues.trees.pop("e0", None)
        return changes

    with monkeypatch.context() as patch:
        patch.setattr(FakeQueues, "reconcile", reconcile_and_lose)
        with pytest.raises(PlatformError, match="e0 went away"):
            enforcer.apply(wanted())
    assert set(queues.trees) == {"e1"}
    other = wanted(unregistered_share=0.2)
    with pytest.raises(PlatformError, match="e0"):
        enforcer.apply(other)
    assert queues.trees == {"e1": other.trees["e1"]}, "the other interface goes with the newest assignment"
    queues.indices["e0"] = 77
    assert enforcer.apply(other) == 2, "the interface that is back, and the socket"
    assert queues.trees == other.trees


def test_trees_are_read_whole_when_no_connection_is_held_but_not_never(
    tmp_path: Path, queues: FakeQueues, sockets: FakeSockets
) -> None:
    enforcer = Enforcer(StateDirectory(tmp_path / "h1"))
    enforcer.apply(wanted())

    def read_whole(reports: int) -> list[str]:
        queues.reconciled.clear()
        for _ in range(reports):
            enforcer.counters()
        return sorted(queues.reconciled)

    assert read_whole(WHOLE_TREE_EVERY) == ["e0", "e1"]
    sockets.draining = True
    assert read_whole(WHOLE_TREE_EVERY) == []
    sockets.draining = False
    assert read_whole(1) == ["e0", "e1"], "as soon as none is held any more"
    sockets.draining = True
    assert read_whole(2 * WHOLE_TREE_EVERY) == ["e0", "e1"], "though one or another is always held"


def test_an_interface_whose_table_of_nftables_changes_is_read_with_the_next_report_alone(
    tmp_path: Path, queues: FakeQueues, sockets: FakeSockets, kernel: FakeKernelChanges
) -> None:
    enforcer = Enforcer(StateDirectory(tmp_path / "h1"))
    enforcer.apply(wanted())
    enforcer.counters()
    queues.reconciled.clear()
    kernel.changed = Changed(tables=frozenset({"beamer-e1", "beamer_hold", "filter"})) | Changed()
    for _ in range(2):
        enforcer.counters()
    assert queues.reconciled == ["e1"]


def test_an_interface_that_was_replaced_gets_its_tree_again(tmp_path: Path, queues: FakeQueues, sockets: FakeSockets) -> None:
    enforcer = Enforcer(StateDirectory(tmp_path / "h1"))
    enforcer.apply(wanted())
    assert enforcer.apply(wanted()) == 1, "the socket alone"
    del queues.trees["e0"]
    queues.indices["e0"] = 77
    assert enforcer.apply(wanted()) == 2
    assert queues.trees == wanted().trees


def test_an_interface_that_never_was_there_is_refused_before_anything_is_changed(
    tmp_path: Path, queues: FakeQueues, sockets: FakeSockets
) -> None:
    enforcer = Enforcer(StateDirectory(tmp_path / "h1"))
    del queues.indices["e1"]
    with pytest.raises(InputError, match="e1"):
        enforcer.apply(wanted())
    assert queues.trees == {}
    assert sockets.marks is None
    assert StateDirectory(tmp_path / "h1").owned() == frozenset()


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("ports", (PORTS[0].model_copy(update={"rate_bps": 0}),), "rate_bps"),
        ("workers", (WORKER.model_copy(update={"klass": 8}),), "klass"),
        ("workers", (WORKER.model_copy(update={"cap_bps": 0}),), "cap_bps"),
        ("queues", 0, "queues"),
        ("unregistered_share", 1.0, "unregistered_share"),
    ],
)
def test_what_no_host_can_carry_out_is_found_without_a_kernel(field: str, value: object, named: str) -> None:
    with pytest.raises(InputError, match=named):
        wanted(**{field: value})


def test_what_the_kernel_says_has_changed_is_read_and_mended_at_once(
    tmp_path: Path, queues: FakeQueues, sockets: FakeSockets, kernel: FakeKernelChanges
) -> None:
    enforcer = Enforcer(StateDirectory(tmp_path / "h1"))
    enforcer.apply(wanted())
    filed = queues.trees["e1"]
    for changed in (Changed(queues=frozenset({2})), Changed(everything=True)):
        queues.trees["e1"] = Tree(filed.classes, filed.filters, default=77)
        enforcer.counters()
        assert queues.trees["e1"].default == 77, "nothing was said of it, and no class is missing"
        kernel.changed = changed
        assert len(enforcer.counters()) == 2
        assert queues.trees["e1"] == filed
        assert (enforcer.mended(), enforcer.mended()) == ({"e1": 1}, {})


def test_queues_that_another_program_has_replaced_are_named_until_they_are_given_back(
    tmp_path: Path, queues: FakeQueues, sockets: FakeSockets
) -> None:
    enforcer = Enforcer(StateDirectory(tmp_path / "h1"))
    enforcer.apply(wanted())
    queues.foreign = {"e1"}
    assert [port.interface for port in enforcer.counters()] == ["e0"]
    with pytest.raises(PlatformError, match=r"ports\[e1\]: got 'tbf 8001:'"):
        enforcer.apply(wanted())
    queues.foreign = set()
    del queues.trees["e1"]
    enforcer.apply(wanted())
    assert queues.trees == wanted().trees


@pytest.mark.parametrize(
    ("classify", "mtu", "said"),
    [
        ("mark", 9000, "e1 sends packets of 9000 bytes, and the network carries 1500: ip link set e1 mtu 1500"),
        ("dscp", 1400, "e1 carries packets of 1400 bytes, and the network's have 1500"),
        ("mark", 1400, None),
        ("dscp", 9000, None),
    ],
)
def test_an_interface_that_does_not_fit_the_networks_packets_is_named(
    tmp_path: Path,
    queues: FakeQueues,
    sockets: FakeSockets,
    kernel: FakeKernelChanges,
    classify: str,
    mtu: int,
    said: str | None,
) -> None:
    enforcer = Enforcer(StateDirectory(tmp_path / "h1"))
    ports = [{"interface": name, "rate_bps": 20_000_000, "classify": classify} for name in ("e0", "e1")]
    enforcer.apply(wanted(ports=ports))
    queues.mtus["e1"] = mtu
    assert enforcer.misfits == {}
    kernel.changed = Changed(links=frozenset({2}))
    enforcer.counters()
    assert bool(enforcer.misfits) == (said is not None)
    if said is not None:
        with pytest.raises(PlatformError) as refused:
            enforcer.apply(wanted(ports=ports))
        assert said in str(refused.value)
    queues.mtus["e1"] = ETHERNET_MTU
    kernel.changed = Changed(links=frozenset({2}))
    enforcer.counters()
    enforcer.apply(wanted(ports=ports))
    assert enforcer.misfits == {}


def test_other_codepoints_are_taken_in_though_the_queues_of_hosts_stay(
    tmp_path: Path, queues: FakeQueues, sockets: FakeSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeAcknowledgements, "asked", [])
    enforcer = Enforcer(StateDirectory(tmp_path / "h1"))
    for codepoints in (LOCAL, PRECEDENCE, PRECEDENCE):
        enforcer.apply(wanted(queues=6, codepoints=codepoints))
    assert FakeAcknowledgements.asked == [LOCAL] * 2 + [PRECEDENCE] * 2
    assert sockets.marks == {"s/t/j": Mark(class_id(2), 31)}


def test_queues_go_to_a_bond_and_leave_an_interface_that_becomes_a_member_of_one(
    tmp_path: Path, queues: FakeQueues, sockets: FakeSockets, kernel: FakeKernelChanges
) -> None:
    enforcer = Enforcer(StateDirectory(tmp_path / "h1"))
    enforcer.apply(wanted())
    assert queues.trees.keys() == {"e0", "e1"}
    card = Interface(name="e0", mac="02:00:00:00:00:01", mtu=ETHERNET_MTU)
    members = (InterfaceMember(name="e1", mac=card.mac), InterfaceMember(name="e2", mac=card.mac, carries=False))
    bond = card.model_copy(update={"name": "e0", "kind": "bond", "mode": "active-backup", "members": members})
    queues.machine = (bond, card.model_copy(update={"name": "e1"}))
    enforcer.counters()
    assert enforcer.misfits == {}, "nothing is read where nothing has changed"
    kernel.changed = Changed(links=frozenset({2}))
    enforcer.counters()
    for _ in range(2):
        with pytest.raises(PlatformError, match=r"e1 is a member of e0, a bond .* name e0 in the network's file"):
            enforcer.apply(wanted())
        assert queues.trees.keys() == {"e0"}
    queues.machine = ()
    enforcer.apply(wanted())
    assert queues.trees.keys() == {"e0", "e1"}


def test_what_an_interface_is_made_of_is_read_again_after_some_reports(
    tmp_path: Path, queues: FakeQueues, sockets: FakeSockets
) -> None:
    enforcer = Enforcer(StateDirectory(tmp_path / "h1"))
    enforcer.apply(wanted())
    of = {"kind": "vlan", "vlan_id": 10, "parent": "e1"}
    queues.machine = (Interface(name="e0", mac="02:00:00:00:00:01", mtu=ETHERNET_MTU).model_copy(update=of),)
    for _ in range(WHOLE_TREE_EVERY):
        enforcer.counters()
    assert enforcer.misfits.keys() == {"e0"}
    with pytest.raises(PlatformError, match="e0, a VLAN interface"):
        enforcer.apply(wanted())
    assert queues.trees.keys() == {"e0", "e1"}, "they order what is not tagged"


def test_what_interfaces_are_made_of_is_read_once_a_report_at_most_and_of_members_seldom(
    tmp_path: Path, queues: FakeQueues, sockets: FakeSockets, kernel: FakeKernelChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforcer = Enforcer(StateDirectory(tmp_path / "h1"))
    card = Interface(name="e0", mac="02:00:00:00:00:01", mtu=ETHERNET_MTU)
    members = (InterfaceMember(name="e0", mac=card.mac), InterfaceMember(name="e1", mac=card.mac, carries=False))
    bond = card.model_copy(update={"name": "b0", "kind": "bond", "mode": "active-backup", "members": members})
    queues.machine = (bond, card, card.model_copy(update={"name": "e1"}))
    with pytest.raises(PlatformError, match="member of b0"):
        enforcer.apply(wanted())
    readings: list[None] = []
    monkeypatch.setattr(enforcer._misfits, "check_composition", lambda: readings.append(None))
    kernel.changed = Changed(everything=True)
    enforcer.counters()
    assert len(readings) == 1, "of both interfaces"
    kernel.changed = Changed()
    for _ in range(4 * WHOLE_TREE_EVERY):
        enforcer.counters()
    assert len(readings) <= 1 + 2 * 4, "once for each of them"
