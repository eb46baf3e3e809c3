"""Links, planes and paths of a fabric."""

from dataclasses import replace

import pytest

from beamer.errors import InputError
from beamer.fabric import Fabric, Link
from beamer.testing.fabrics import star, two_spines


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"links": (Link("h1", "s1", 0, 1, "h1-eth1"),)}, r"links\[h1-s1\].rate_bps: got 0, expected a rate above 0"),
        ({"links": (Link("h1", "s9", 1, 1, "h1-eth1"),)}, r"got 's9', expected one of h1, h2, s1"),
        ({"links": ()}, "a host with exactly one link"),
        ({"planes": 0}, "fabric.planes: got 0, expected at least 1"),
    ],
)
def test_networks_that_cannot_be(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(star(2), **change)  # type: ignore[arg-type]


def test_unknown_host_is_named_with_the_nearest_known() -> None:
    with pytest.raises(InputError, match=r"host: got 'h9', expected one of h1, h2"):
        star(2).path("h1", "h9")


def test_unknown_and_missing_keys_of_the_plain_form() -> None:
    data = star(2).to_dict()
    with pytest.raises(InputError, match=r"fabric.plane: got .*did you mean 'planes'"):
        Fabric.from_dict({**data, "plane": 1})
    del data["hosts"]
    with pytest.raises(InputError, match="a mapping with name, hosts, switches and links"):
        Fabric.from_dict(data)
