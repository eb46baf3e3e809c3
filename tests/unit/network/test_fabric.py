"""Links, planes and paths of a fabric."""

import json
from dataclasses import replace
from typing import Any

import pytest

from beamer.errors import InputError
from beamer.network.fabric import Fabric, Link, Switch
from beamer.testing.fabrics import star, two_spines

STAR = star(2)
H1, H2 = STAR.hosts


def cable(a: str, b: str, port: int = 9) -> tuple[Link, Link]:
    return Link(a, b, 1, port, "x"), Link(b, a, 1, port, "x")


def nodes(fabric: Fabric, path: tuple[int, ...]) -> list[str]:
    return [fabric.links[path[0]].src, *(fabric.links[i].dst for i in path)]


def test_a_star_has_one_path_between_hosts() -> None:
    fabric = star(3)
    assert nodes(fabric, fabric.path("h1", "h3")) == ["h1", "s1", "h3"]
    assert fabric.path("h1", "h3", plane=5) == fabric.path("h1", "h3")


def test_planes_take_different_spines_there_and_the_same_one_back() -> None:
    fabric = two_spines()
    assert nodes(fabric, fabric.path("h1", "h3", 0)) == ["h1", "l1", "s1", "l2", "h3"]
    assert nodes(fabric, fabric.path("h1", "h3", 1)) == ["h1", "l1", "s2", "l2", "h3"]
    for plane in (0, 1):
        assert nodes(fabric, fabric.path("h3", "h1", plane)) == nodes(fabric, fabric.path("h1", "h3", plane))[::-1]


def test_hosts_of_one_leaf_stay_below_it() -> None:
    fabric = two_spines()
    assert nodes(fabric, fabric.path("h1", "h2", 1)) == ["h1", "l1", "h2"]


def test_on_one_host_the_path_is_empty() -> None:
    assert star(2).path("h1", "h1") == ()


def test_consecutive_hops_are_joined_and_follow_next_hop() -> None:
    fabric = two_spines(3)
    for src in fabric.host:
        for dst in fabric.host:
            node = src
            for link in (fabric.links[i] for i in fabric.path(src, dst, 1)):
                assert (link.src, link.dst) == (node, fabric.next_hop(node, dst, 1))
                node = link.dst
            assert node == dst


def test_edges_are_the_switches_of_hosts() -> None:
    assert two_spines(1).edge_of == {"h1": "l1", "h2": "l2"}


def test_a_fabric_survives_its_plain_form() -> None:
    fabric = two_spines()
    assert Fabric.from_dict(fabric.to_dict()) == fabric
    assert Fabric.from_dict(json.loads(json.dumps(fabric.to_dict()))) == fabric


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"links": (Link("h1", "s1", 0, 1, "h1-eth1"),)}, r"links\[0\].rate_bps: got 0, expected a rate above 0"),
        ({"links": (Link("h1", "s9", 1, 1, "h1-eth1"),)}, r"links\[0\].dst: got 's9', expected one of h1, h2, s1"),
        ({"links": ()}, r"hosts\[0\]: got 'h1', expected a host with exactly one link"),
        ({"links": cable("h1", "h2")}, r"links\[0\].dst: got 'h2', expected another node, one of the two a switch"),
        ({"links": cable("s1", "s1")}, r"links\[0\].dst: got 's1', expected another node"),
        ({"links": STAR.links[:-1]}, r"links\[2\]: got 'h2-s1', expected its reverse s1-h2, too"),
        (
            {"links": (*STAR.links, *cable("s1", "h1", 7))},
            r"links\[4\].dst: got \('s1', 'h1'\), expected one that is not taken",
        ),
        (
            {"links": (*STAR.links[:2], *cable("s1", "h2", 1))},
            r"links\[2\].port: got \('s1', 1\), expected one that is not taken",
        ),
        ({"hosts": (H1, replace(H2, name="h1"))}, r"hosts\[1\].name: got 'h1', expected one that is not taken"),
        ({"hosts": (H1, replace(H2, ip=H1.ip))}, r"hosts\[1\].ip: got '10.77.0.1', expected one that is not taken"),
        ({"hosts": (H1, replace(H2, mac=H1.mac))}, r"hosts\[1\].mac: got '02:00:00:00:00:01', expected one that is not taken"),
        ({"hosts": (H1, replace(H2, ip="10.77.0"))}, r"hosts\[1\].ip: got '10.77.0', expected an address such as"),
        ({"hosts": (H1, replace(H2, mac="02:00:00:00:00:0A"))}, r"hosts\[1\].mac: got .* in lower case"),
        ({"switches": (Switch("s1", 1), Switch("s1", 2))}, r"switches\[1\].name: got 's1', expected one that is not taken"),
        ({"switches": (Switch("s1", 1), Switch("s2", 1))}, r"switches\[1\].dpid: got 1, expected one that is not taken"),
        ({"switches": (Switch("s1", 1), Switch("h2", 2))}, r"switches\[1\].name: got 'h2', expected a name that no host has"),
        ({"planes": 0}, "fabric.planes: got 0, expected 1 to 256"),
        ({"planes": 257}, "fabric.planes: got 257, expected 1 to 256"),
        ({"mtu": 100}, "fabric.mtu: got 100, expected 576 to 9216 bytes"),
    ],
)
def test_networks_that_cannot_be(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(STAR, **change)  # type: ignore[arg-type]


def test_unknown_host_is_named_with_the_nearest_known() -> None:
    with pytest.raises(InputError, match=r"host: got 'h9', expected one of h1, h2"):
        star(2).path("h1", "h9")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("plane",), 1, r"fabric.plane: got 1, expected one of .*did you mean 'planes'"),
        (("hosts", 0, "adr"), "x", r"fabric.hosts\[0\].adr: got 'x', expected one of addresses, agent, ip, mac, name"),
        (("hosts",), None, r"fabric.hosts: got None, expected a list"),
        (("hosts", 1), "h2", r"fabric.hosts\[1\]: got 'h2', expected a mapping"),
        (("links", 3, "rate_bps"), "20mbit", r"fabric.links\[3\].rate_bps: got '20mbit', expected a whole number"),
        (("links", 3, "rate_bps"), 2.5, r"fabric.links\[3\].rate_bps: got 2.5, expected a whole number"),
        (("links", 0, "port"), True, r"fabric.links\[0\].port: got True, expected a whole number"),
        (("switches", 0, "dpid"), 2**64, r"fabric.switches\[0\].dpid: .*, expected less than 18446744073709551616"),
        (("links", 0, "port"), 2**32, r"fabric.links\[0\].port: .*, expected less than or equal to 4294967040"),
        (
            ("links", 0, "rate_bps"),
            10**19,
            r"fabric.links\[0\].rate_bps: .*, expected less than or equal to 1000000000000000000",
        ),
        (("switches", 0, "dpid"), 0, r"fabric.switches\[0\].dpid: got 0, expected greater than or equal to 1"),
        (("hosts", 1, "ip"), H1.ip, r"^fabric.hosts\[1\].ip: got '10.77.0.1', expected one that is not taken"),
    ],
)
def test_plain_forms_that_do_not_fit(path: tuple[Any, ...], value: object, message: str) -> None:
    data = json.loads(json.dumps(STAR.to_dict()))
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(InputError, match=message):
        Fabric.from_dict(data)


def test_what_the_plain_form_lacks_is_named_unless_it_is_misspelt() -> None:
    data = STAR.to_dict()
    hosts = data.pop("hosts")
    with pytest.raises(InputError, match=r"fabric.hosts: got None, expected a value"):
        Fabric.from_dict(data)
    with pytest.raises(InputError, match=r"fabric.host: got .*did you mean 'hosts'"):
        Fabric.from_dict({**data, "host": hosts})
