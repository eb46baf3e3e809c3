"""What is said of what a host's interface is made of, and of where its packets wait."""

from collections.abc import Mapping

import pytest

from beamer.doctor.findings import CheckVerdict
from beamer.errors import PlatformError
from beamer.network.protocol import Interface, InterfaceMember
from hostagent.doctor import composition as module
from hostagent.doctor.composition import CompositionFacts, judge_composition, read_composition
from hostagent.doctor.interfaces import AGENTS, DEFAULT, InterfaceFacts

MAC, HOST = "02:00:00:00:00:01", "10.0.0.1"
OK, WARNING, FAULT, NOT_CHECKED = CheckVerdict.OK, CheckVerdict.WARNING, CheckVerdict.FAULT, CheckVerdict.NOT_CHECKED


def card(name: str, *addresses: str) -> Interface:
    return Interface(name=name, mac=MAC, mtu=1500, addresses=addresses)


def bond(mode: str) -> Interface:
    members = (InterfaceMember(name="eth1", mac=MAC), InterfaceMember(name="eth2", mac=MAC, carries=False))
    return card("bond0", HOST).model_copy(update={"kind": "bond", "mode": mode, "members": members})


CARDS = (card("eth1"), card("eth2"))
TAGGED = card("tagged", HOST).model_copy(update={"kind": "vlan", "vlan_id": 10, "vlan_protocol": "802.1Q", "parent": "eth1"})
VETH = card("data", HOST).model_copy(update={"kind": "veth"})


def judged(name: str, machine: tuple[Interface, ...], **roots: str) -> list[tuple[CheckVerdict, str, str]]:
    below = tuple(InterfaceFacts(one, root) for one, root in roots.items())
    found = judge_composition(CompositionFacts((name,), machine, below, frozenset({HOST})))
    return [(one.verdict, one.found, one.fix) for one in found]


def test_a_card_and_a_veth_are_made_of_nothing_else_and_a_macvlan_of_one_other() -> None:
    assert judged("eth1", (card("eth1", HOST),)) == [(OK, "eth1 is a card", "")]
    assert judged("data", (VETH,)) == [(OK, "data is of kind veth, and made of no other interface", "")]
    upper = card("upper", HOST).model_copy(update={"kind": "macvlan", "parent": "eth1"})
    assert judged("upper", (upper, card("eth1"))) == [(OK, "upper, a macvlan on eth1", "")]
    moved = upper.model_copy(update={"parent": None})
    text = "upper, a macvlan on an interface of another network namespace: run this there, too"
    assert judged("upper", (moved,)) == [(NOT_CHECKED, text, "")]
    empty = bond("balance-rr").model_copy(update={"members": ()})
    ((verdict, said, _),) = judged("bond0", (empty,))
    assert (verdict, said.endswith("it has no member, so no packet leaves by it")) == (FAULT, True), said
    assert judged("ib0", CARDS) == [(NOT_CHECKED, "ib0 is no Ethernet interface of this network namespace", "")]


@pytest.mark.parametrize(
    ("roots", "said"),
    [
        ({"eth1": DEFAULT, "eth2": DEFAULT}, [(OK, "packets wait in the queues of bond0 alone")]),
        ({"eth1": DEFAULT, "eth2": AGENTS}, [(FAULT, "eth2, of which bond0 is made, has an agent's HTB tree")]),
        (
            {"eth1": "tbf 8001:", "eth2": DEFAULT},
            [(WARNING, "eth1, of which bond0 is made, has a root queueing discipline of another program (tbf 8001:)")],
        ),
    ],
)
def test_packets_wait_in_the_queues_of_a_bond_and_in_none_of_its_members(
    roots: Mapping[str, str], said: list[tuple[CheckVerdict, str]]
) -> None:
    (made, *queues) = judged("bond0", (bond("active-backup"), *CARDS), **roots)
    assert made[0] == WARNING
    assert made[1].startswith("bond0, a bond (active-backup) of eth1, eth2: the port of eth1 is used; where eth2 takes over")
    assert [(verdict, text[: len(start)]) for (verdict, text, _), (_, start) in zip(queues, said, strict=True)] == said
    wrong = [name for name, root in roots.items() if root != DEFAULT]
    fixes = [fix.partition(",")[0] for verdict, _, fix in queues if verdict is not OK]
    assert fixes == [f"tc qdisc del dev {name} root" for name in wrong]


@pytest.mark.parametrize(
    ("name", "machine", "said", "fix"),
    [
        (
            "bond0",
            (bond("802.3ad"), *CARDS),
            "bond0, a bond (802.3ad) of eth1, eth2: each member",
            "set its mode to active-backup",
        ),
        ("eth2", (bond("802.3ad"), *CARDS), "eth2 is a member of bond0", "name bond0 in the network's file"),
        (
            "tagged",
            (TAGGED, *CARDS),
            "tagged, a VLAN interface (802.1Q, id 10) on eth1",
            "give the address to the interface below",
        ),
        ("eth1", (TAGGED, *CARDS), "eth1 has no address of the network, and tagged, a VLAN interface", "give the address to"),
    ],
)
def test_what_is_no_hosts_interface_is_a_fault_with_its_fix(
    name: str, machine: tuple[Interface, ...], said: str, fix: str
) -> None:
    (found, *_) = judged(name, machine)
    assert found[0] == FAULT
    assert found[1].startswith(said)
    assert found[2].startswith(fix)


def test_what_an_interface_is_made_of_is_read_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = (TAGGED.model_copy(update={"parent": "bond0"}), bond("802.3ad"), *CARDS, VETH)
    monkeypatch.setattr(module, "interfaces", lambda: machine)
    monkeypatch.setattr(module, "read_interfaces", lambda names: tuple(InterfaceFacts(name) for name in names))
    facts = read_composition(["tagged"], [HOST])
    assert (facts.named, facts.machine, facts.addresses) == (("tagged",), machine, {HOST})
    assert [one.name for one in facts.below] == ["bond0", "eth1", "eth2"]


def test_a_kernel_that_does_not_tell_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> tuple[Interface, ...]:
        raise PlatformError("the kernel does not list interfaces", "run the agent where it may read them")

    monkeypatch.setattr(module, "interfaces", refuse)
    with pytest.raises(PlatformError, match="does not list"):
        read_composition(["eth1"], [])
