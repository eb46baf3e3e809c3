"""What an interface is made of, by recorded messages of the kernel, decoded as real ones are."""

from types import TracebackType
from typing import Any

import pytest

from beamer.network.protocol import Hello, Interface, InterfaceMember, from_agent
from beamer.protocol_version import FIRST_VERSION, PROTOCOL_VERSION
from beamer.versioned_messages import decode, encode
from hostagent import interfaces
from tests.support.recorded_links import LINKS, decoded, needs_little_endian

pytestmark = needs_little_endian
MAC = "02:00:00:00:00:01"


class RecordedKernel:
    """A kernel that lists the recorded links."""

    def __enter__(self) -> "RecordedKernel":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def get_links(self) -> list[Any]:
        return [decoded(message) for message in LINKS.values()]

    def get_addr(self) -> list[Any]:
        return []


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Interface]:
    monkeypatch.setattr(interfaces, "IPRoute", RecordedKernel)
    return {one.name: one for one in interfaces.interfaces()}


def member(name: str, number: int, carries: bool) -> InterfaceMember:
    return InterfaceMember(name=name, mac=MAC, permanent_mac=f"02:00:00:00:00:{number:02x}", carries=carries)


def test_a_bond_has_its_mode_and_its_members_with_the_addresses_of_their_cards(found: dict[str, Interface]) -> None:
    assert (found["bond0"].kind, found["bond0"].mode, found["bond0"].mtu) == ("bond", "active-backup", 9000)
    assert found["bond0"].members == (member("eth1", 1, carries=False), member("eth2", 2, carries=True))
    assert found["bond1"].members == (member("eth3", 3, carries=False),)
    assert (found["bond2"].mode, found["bond2"].members) == (
        "802.3ad",
        (member("eth4", 4, carries=True), member("eth5", 5, carries=False)),
    )
    assert {found["bond2"].parent, found["bond2"].vlan_id} == {None}


def test_a_team_has_its_members_and_a_card_says_its_address_by_itself(found: dict[str, Interface]) -> None:
    assert (found["team0"].kind, found["team0"].mode) == ("team", "")
    card = "02:00:00:00:00:07"
    assert found["team0"].members == (InterfaceMember(name="eth7", mac=card, permanent_mac=card, carries=True),)


def test_a_vlan_interface_has_its_tag_and_what_it_is_on(found: dict[str, Interface]) -> None:
    said = {name: (one.vlan_id, one.vlan_protocol, one.parent) for name, one in found.items() if one.kind == "vlan"}
    assert said == {
        "bond0.10": (10, "802.1Q", "bond0"),
        "outer": (100, "802.1ad", "eth3"),
        "moved": (20, "802.1Q", None),  # Its link's number is one of another network namespace, where this one's eth1 is not.
    }


def test_a_hello_says_it_to_peers_that_know_it(found: dict[str, Interface]) -> None:
    hello = Hello(agent="h1", generation=1, interfaces=tuple(found.values()))
    assert decode(from_agent, encode(hello, PROTOCOL_VERSION), PROTOCOL_VERSION).message == hello
    assert "interfaces" not in encode(hello, FIRST_VERSION)
    plain = '{"name": "eth1", "mac": "02:00:00:00:00:01", "mtu": 1500}'
    before = f'{{"kind": "hello", "agent": "h1", "generation": 1, "interfaces": [{plain}]}}'
    taken = decode(from_agent, before, PROTOCOL_VERSION).message
    assert isinstance(taken, Hello)
    assert taken.interfaces == (Interface(name="eth1", mac=MAC, mtu=1500),)


def test_a_member_of_a_bond_is_a_card_by_itself(found: dict[str, Interface]) -> None:
    assert (found["eth1"].kind, found["eth1"].members, found["eth1"].mode) == ("", (), "")
