"""Interfaces that are not a host's own, by what they are made of: named, and no queues on a member of a bond."""

import pytest

from beamer.errors import PlatformError
from beamer.network.protocol import Interface, InterfaceMember, Port
from beamer.units import ETHERNET_MTU
from hostagent import misfits as module
from hostagent.misfits import InterfaceMisfits

MAC, HOST, OTHER = "02:00:00:00:00:01", "10.0.0.1", "10.0.0.2"


def interface(name: str, *addresses: str) -> Interface:
    return Interface(name=name, mac=MAC, mtu=ETHERNET_MTU, addresses=addresses)


def bond(mode: str, *carrying: bool) -> Interface:
    members = tuple(InterfaceMember(name=f"eth{at}", mac=MAC, carries=one) for at, one in enumerate(carrying, 1))
    return interface("bond0", HOST).model_copy(update={"kind": "bond", "mode": mode, "members": members})


def vlan(parent: str | None, *addresses: str) -> Interface:
    of = {"kind": "vlan", "vlan_id": 10, "vlan_protocol": "802.1Q", "parent": parent}
    return interface("tagged", *addresses).model_copy(update=of)


CARDS = (interface("eth1"), interface("eth2"))
IN_TURN = bond("active-backup", True, False)
TAG = "a VLAN interface (802.1Q, id 10) on eth1"
CASES: dict[str, tuple[str, tuple[Interface, ...], str]] = {
    "a card": ("eth1", (interface("eth1", HOST),), ""),
    "an interface that is not listed": ("ib0", (interface("eth1", HOST),), ""),
    "a bond of which one member carries": ("bond0", (IN_TURN, *CARDS), ""),
    "a bridge of a card": ("br0", (interface("br0", HOST).model_copy(update={"kind": "bridge"}), *CARDS), ""),
    "a bond of which each member may carry": (
        "bond0",
        (bond("802.3ad", True, True), *CARDS),
        "bond0, a bond (802.3ad) of eth1, eth2: each member may carry packets",
    ),
    "a team": (
        "bond0",
        (bond("", True, True).model_copy(update={"kind": "team"}), *CARDS),
        "bond0, a team (of unknown mode) of eth1, eth2: each member may carry packets",
    ),
    "a member of a bond": (
        "eth2",
        (IN_TURN, *CARDS),
        "eth2 is a member of bond0, a bond (active-backup) of eth1, eth2: name bond0 in the network's file",
    ),
    "a VLAN interface": ("tagged", (vlan("eth1", HOST), *CARDS), f"tagged, {TAG}: switches forward its packets with their tag"),
    "a VLAN interface on a bond": (
        "tagged",
        (vlan("bond0", HOST), IN_TURN, *CARDS),
        "tagged, a VLAN interface (802.1Q, id 10) on bond0: switches forward",
    ),
    "what a VLAN interface with a host's address is on": (
        "eth1",
        (vlan("eth1", "192.0.2.1", HOST), *CARDS),
        f"eth1 has no address of the network, and tagged, {TAG}, has 10.0.0.1: give the address to the interface below it",
    ),
    "what a VLAN interface with another address is on": ("eth1", (vlan("eth1", "192.0.2.1"), interface("eth1")), ""),
    "what a VLAN interface is on, with a host's address of its own": (
        "eth1",
        (vlan("eth1", OTHER), interface("eth1", HOST)),
        "",
    ),
}


def port(name: str, classify: str = "mark") -> Port:
    return Port.model_validate({"interface": name, "rate_bps": 10**9, "classify": classify})


@pytest.mark.parametrize("what", CASES)
def test_interfaces_that_are_not_a_hosts_own_are_named(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    name, machine, said = CASES[what]
    monkeypatch.setattr(module, "interfaces", lambda: machine)
    misfits = InterfaceMisfits(lambda _: ETHERNET_MTU)
    misfits.assign([port(name)], (HOST, OTHER))
    assert misfits.found.keys() == ({name} if said else set())
    assert misfits.found.get(name, "").startswith(said)
    assert misfits.members == ({name} if what == "a member of a bond" else set())


def test_ports_of_switches_may_be_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "interfaces", lambda: pytest.fail("nothing is to be read"))
    misfits = InterfaceMisfits(lambda _: ETHERNET_MTU)
    misfits.assign([port("eth1", "dscp"), port("tagged", "dscp")], (HOST, OTHER))
    assert (misfits.found, misfits.members) == ({}, frozenset())


def test_what_was_wrong_is_read_again_with_each_assignment_and_otherwise_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [(vlan("eth1", HOST), *CARDS), (interface("eth1", HOST),)]
    monkeypatch.setattr(module, "interfaces", lambda: listed.pop(0))
    misfits = InterfaceMisfits(lambda _: ETHERNET_MTU)
    for found in ({"eth1"}, set[str](), set[str]()):
        misfits.assign([port("eth1")], (HOST, OTHER))
        assert misfits.found.keys() == found
    assert listed == []


def test_a_size_and_a_composition_that_do_not_fit_are_both_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "interfaces", lambda: (vlan("eth1", HOST), *CARDS))
    misfits = InterfaceMisfits(lambda _: 9000)
    misfits.assign([port("tagged")], (HOST, OTHER))
    misfits.check_size("tagged")
    assert "have the switch's port take its packets untagged; tagged sends packets of 9000 bytes" in misfits.found["tagged"]


def test_a_kernel_that_does_not_tell_keeps_nothing_from_being_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> tuple[Interface, ...]:
        raise PlatformError("the kernel does not list interfaces", "run the agent where it may read them")

    monkeypatch.setattr(module, "interfaces", refuse)
    misfits = InterfaceMisfits(lambda _: ETHERNET_MTU)
    misfits.assign([port("eth1")], (HOST, OTHER))
    assert misfits.found == {}


def test_what_was_found_stands_while_the_kernel_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    name, machine, said = CASES["a member of a bond"]
    monkeypatch.setattr(module, "interfaces", lambda: machine)
    misfits = InterfaceMisfits(lambda _: ETHERNET_MTU)
    misfits.assign([port(name)], (HOST, OTHER))

    def refuse() -> tuple[Interface, ...]:
        raise PlatformError("the kernel does not list interfaces", "run the agent where it may read them")

    monkeypatch.setattr(module, "interfaces", refuse)
    misfits.check_composition()
    assert misfits.found[name].startswith(said)
    assert misfits.members == {name}
