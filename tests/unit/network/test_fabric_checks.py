"""What of a network no controller could lead."""

from dataclasses import replace

import pytest

from beamer.errors import InputError
from beamer.network.fabric import Fabric
from beamer.network.fabric_checks import check_deployable
from beamer.testing.fabrics import star, two_spines


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("mac", "ff:ff:ff:ff:ff:ff", r"fabric\.hosts\[0\]\.mac: .* a unicast MAC address, not zero"),
        ("mac", "01:00:5e:00:00:01", r"fabric\.hosts\[0\]\.mac: .* a unicast MAC address, not zero"),
        ("mac", "00:00:00:00:00:00", r"fabric\.hosts\[0\]\.mac: .* a unicast MAC address, not zero"),
        ("mac", "02:be:00:00:00:01", r"fabric\.hosts\[0\]\.mac: .* outside 02:be:…, where each names a path"),
        ("ip", "224.0.0.1", r"fabric\.hosts\[0\]\.ip: .* one interface that others reach"),
        ("ip", "127.0.0.2", r"fabric\.hosts\[0\]\.ip: .* one interface that others reach"),
        ("ip", "0.0.0.0", r"fabric\.hosts\[0\]\.ip: .* one interface that others reach"),
        ("ip", "255.255.255.255", r"fabric\.hosts\[0\]\.ip: .* one interface that others reach"),
    ],
)
def test_addresses_that_no_interface_has(field: str, value: str, said: str) -> None:
    fabric = star(2)
    changed = replace(fabric, hosts=(replace(fabric.hosts[0], **{field: value}), *fabric.hosts[1:]))
    with pytest.raises(InputError, match=said):
        check_deployable(changed)


def test_directions_of_different_rates() -> None:
    fabric = star(2)
    slower = replace(fabric, links=(replace(fabric.links[0], rate_bps=1), *fabric.links[1:]))
    with pytest.raises(InputError, match=r"links\[0\]\.rate_bps: got 1, expected the rate of the other direction, 20000000"):
        check_deployable(slower)


@pytest.mark.parametrize("name", ["GigabitEthernet1/0/1", "a b", "..", "", "eth0:1"])
def test_an_interface_that_no_agent_finds(name: str) -> None:
    fabric = star(2)
    named = replace(fabric, links=(replace(fabric.links[0], interface=name), *fabric.links[1:]))
    with pytest.raises(InputError, match=r"fabric\.links\[0\]\.interface: .* as agent h1 looks for it"):
        check_deployable(named)
    # Where no agent is, the name is a switch's or a person's.
    check_deployable(replace(named, hosts=tuple(replace(host, agent=None) for host in named.hosts)))


def test_hosts_that_no_path_leads_to_are_named() -> None:
    fabric = two_spines(3)
    cut = without(fabric, ("l1", "s1"), ("l1", "s2"))
    with pytest.raises(InputError, match=r"fabric: got 'h4, h5, h6 apart from h1', expected a path between any two hosts"):
        check_deployable(cut)
    check_deployable(without(fabric, ("l1", "s1")))


def without(fabric: Fabric, *cables: tuple[str, str]) -> Fabric:
    gone = {ends for a, b in cables for ends in ((a, b), (b, a))}
    return replace(fabric, links=tuple(link for link in fabric.links if (link.src, link.dst) not in gone))
