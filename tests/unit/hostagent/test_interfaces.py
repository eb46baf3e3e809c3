"""The interfaces that an agent names: as many as its hello takes, and none where the kernel's list cannot be right."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any

import pytest

from beamer.errors import PlatformError
from beamer.network.protocol import MAX_ADDRESSES, MAX_INTERFACES, MAX_MEMBERS, Hello, Interface, InterfaceMember
from controller.limits import Limits
from hostagent import interfaces
from hostagent.limits import ASSIGNMENT_LIMITS


def interface(number: int, addresses: int) -> Interface:
    mac = f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"
    of = (f"fd00:1234:5678:9abc:def0:1234:{number:x}:{one + 0x1000:x}" for one in range(addresses))
    return Interface(name=f"interface{number:05}", mac=mac, addresses=tuple(of), mtu=1500)


def test_a_hello_with_all_that_it_names_is_taken_by_a_controller() -> None:
    found = [interface(number, MAX_ADDRESSES) for number in range(MAX_INTERFACES)]
    member = InterfaceMember(name="interface000000", mac=found[0].mac, permanent_mac=found[0].mac)
    made = {"kind": "k" * 32, "mode": "m" * 32, "vlan_protocol": "p" * 32, "parent": "interface000000", "vlan_id": 4095}
    found = [one.model_copy(update={**made, "members": (member,) * MAX_MEMBERS}) for one in found]
    named = interfaces.sendable(found)
    hello = Hello(agent="a" * 100, generation=1, limits=ASSIGNMENT_LIMITS, interfaces=named)
    assert [one.name for one in named] == [one.name for one in found]
    assert len(hello.model_dump_json()) < Limits().message_bytes
    assert [len(one.addresses) for one in named[:2]] == [MAX_ADDRESSES] * 2
    assert [len(one.members) for one in named[:2]] == [MAX_MEMBERS] * 2


def test_interfaces_with_addresses_are_named_first() -> None:
    found = [interface(number, number % 2) for number in range(2 * MAX_INTERFACES)]
    assert all(one.addresses for one in interfaces.sendable(found))
    assert len(interfaces.sendable(found)) == MAX_INTERFACES


class Link(dict[str, Any]):
    """A link as pyroute2 lists it."""

    def get_attr(self, name: str) -> Any:
        return self.get(name)


class Kernel:
    """A kernel that lists one link."""

    link: Mapping[str, Any]

    def __enter__(self) -> "Kernel":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def get_links(self) -> list[Link]:
        ethernet = {"index": 1, "ifi_type": 1, "flags": 0}
        return [Link(ethernet, **{"IFLA_ADDRESS": "02:00:00:00:00:01", "IFLA_IFNAME": "a", "IFLA_MTU": 1500, **self.link})]

    def get_addr(self) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("link", "said"),
    [({"IFLA_MTU": None}, "whose mtu is None"), ({"IFLA_ADDRESS": "no colons at all"[:17].ljust(17)}, "whose mac is")],
)
def test_an_interface_that_cannot_be_is_told(monkeypatch: pytest.MonkeyPatch, link: Mapping[str, Any], said: str) -> None:
    monkeypatch.setattr(interfaces, "IPRoute", type("Listing", (Kernel,), {"link": link}))
    with pytest.raises(PlatformError, match=f"the kernel lists an interface {said}"):
        interfaces.interfaces()
