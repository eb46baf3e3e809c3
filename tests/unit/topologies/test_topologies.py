"""Shapes: every pair of hosts is connected on every plane, planes differ where they can, and a package may bring its own."""

import json
import sys
from collections import Counter
from itertools import pairwise, permutations
from pathlib import Path

import pytest

from beamer.errors import InputError
from beamer.network.fabric import Fabric
from beamer.network.fabric_file import read_fabric
from beamer.sim import simulate
from beamer.workloads.scenario import build_topology, parse
from tests.support.documented import install, register
from topologies import dumbbell, fat_tree, leaf_spine, single

GROUP = "beamer.topologies"
SHAPES = (single.build(4), dumbbell.build(3), leaf_spine.build(3, 2, 2), fat_tree.build(4))


@pytest.mark.parametrize("fabric", SHAPES, ids=lambda f: f.name)
def test_paths_are_contiguous_and_simple(fabric: Fabric) -> None:
    for src, dst in permutations(fabric.host, 2):
        for plane in range(fabric.planes):
            links = [fabric.links[i] for i in fabric.path(src, dst, plane)]
            assert links[0].src == src
            assert links[-1].dst == dst
            assert all(a.dst == b.src for a, b in pairwise(links))
            nodes = [link.src for link in links] + [dst]
            assert len(nodes) == len(set(nodes))
            assert not set(nodes[1:-1]) & fabric.host.keys()


def test_planes_use_different_spines() -> None:
    fabric = leaf_spine.build(2, 2, 1)
    spines = {fabric.links[fabric.path("h1", "h2", plane)[1]].dst for plane in range(fabric.planes)}
    assert spines == {"s1", "s2"}


def test_a_fat_tree_of_k_ports_has_its_published_sizes() -> None:
    for k in (2, 4, 6):
        fabric = fat_tree.build(k)
        assert len(fabric.hosts) == k**3 // 4
        assert len(fabric.switches) == 5 * k * k // 4
        assert len(fabric.links) == 2 * 3 * k**3 // 4
        assert Counter(link.src for link in fabric.links if link.src in fabric.switch) == dict.fromkeys(fabric.switch, k)
        assert {len(fabric.path(src, dst)) for src, dst in permutations(fabric.host, 2)} <= {2, 4, 6}


def test_planes_of_a_fat_tree_share_no_link_between_switches() -> None:
    fabric = fat_tree.build(8)  # 32 aggregation switches: names of one and of two digits in one pod, unless they are padded
    first_of_edge = list({edge: host for host, edge in fabric.edge_of.items()}.values())
    used = [
        {i for src, dst in permutations(first_of_edge, 2) for i in fabric.path(src, dst, plane)[1:-1]}
        for plane in range(fabric.planes)
    ]
    assert fabric.planes == 4
    assert sum(len(links) for links in used) == len(set().union(*used))


def test_a_fat_tree_may_be_oversubscribed() -> None:
    fabric = fat_tree.build(4, rate="20mbit", uplink_rate="5mbit")
    rates = {bool({link.src, link.dst} & fabric.host.keys()): link.rate_bps for link in fabric.links}
    assert rates == {True: 20_000_000, False: 5_000_000}


def test_every_shape_may_be_named_in_a_scenario() -> None:
    shapes = {"single", "dumbbell", "leaf-spine", "fat-tree"}
    assert {build_topology({"shape": shape}).name for shape in shapes} == shapes


@pytest.mark.parametrize(
    ("shape", "hosts", "switches", "planes"),
    [("single", 8, 1, 1), ("dumbbell", 8, 2, 1), ("leaf-spine", 8, 6, 2), ("fat-tree", 16, 20, 2)],
)
def test_a_scenario_that_names_a_shape_alone_keeps_its_hosts(shape: str, hosts: int, switches: int, planes: int) -> None:
    """Scenario files leave sizes out: another default would be another network under the same file."""
    fabric = build_topology({"shape": shape})
    assert (len(fabric.hosts), len(fabric.switches), fabric.planes) == (hosts, switches, planes)


@pytest.mark.parametrize("fabric", SHAPES, ids=lambda f: f.name)
def test_the_file_form_is_the_same_fabric(fabric: Fabric) -> None:
    assert Fabric.from_dict(fabric.to_dict()) == fabric


@pytest.mark.parametrize("fabric", SHAPES, ids=lambda f: f.name)
def test_ports_of_a_node_are_distinct(fabric: Fabric) -> None:
    assert len({(link.src, link.port) for link in fabric.links}) == len(fabric.links)
    assert len({link.interface for link in fabric.links}) == len(fabric.links)


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: single.build(1), "topology.hosts"),
        (lambda: dumbbell.build(0), "topology.hosts_per_side"),
        (lambda: leaf_spine.build(0), "topology.leaves"),
        (lambda: leaf_spine.build(1, 2, 1), "topology.hosts_per_leaf"),
        (lambda: single.build(mtu=9217), "topology.mtu"),
        (lambda: fat_tree.build(0), "topology.k"),
        (lambda: fat_tree.build(5), "topology.k"),
        (lambda: fat_tree.build(64), "topology.k"),
        (lambda: fat_tree.build(rate=0), "topology.rate"),
        (lambda: fat_tree.build(uplink_rate="slow"), "topology.uplink_rate"),
    ],
)
def test_counts_are_checked(build: object, field: str) -> None:
    with pytest.raises(InputError) as caught:
        build()  # type: ignore[operator]
    assert caught.value.field == field


def test_two_hosts_are_enough() -> None:
    smallest = (single.build(2), dumbbell.build(1), leaf_spine.build(1, 1, 2), fat_tree.build(2))
    assert [len(fabric.hosts) for fabric in smallest] == [2, 2, 2, 2]


@pytest.fixture
def documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Install the package of the documentation's example."""
    entries = install("Your own topology", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for target in entries.values():
        monkeypatch.delitem(sys.modules, target.partition(":")[0], raising=False)
    return entries


def test_a_topology_of_another_package_is_found_by_its_entry_point(documented: dict[str, str], tmp_path: Path) -> None:
    (shape,) = documented
    trial = {"trial": "a", "workers": ["h1", "h8"], "bytes": "1MB"}
    study = {"study": "s", "trials": [trial], "rungs": [{"iterations": 1}]}
    scenario = parse({"name": "x", "topology": {"shape": shape, "racks": 4, "rate": "50mbit"}, "studies": [study]})
    assert len(scenario.fabric.path("h1", "h8")) == 5
    assert simulate(scenario, "fair").mean_sct_s > 0
    file = tmp_path / "fabric.json"
    file.write_text(json.dumps(scenario.fabric.to_dict()))
    assert read_fabric(file) == scenario.fabric


def test_parameters_of_another_packages_topology_are_checked(documented: dict[str, str]) -> None:
    (shape,) = documented
    with pytest.raises(InputError, match="racks") as caught:
        build_topology({"shape": shape, "rack": 4})
    assert caught.value.field == "topology.rack"
    with pytest.raises(InputError, match=shape):
        build_topology({"shape": "rack-chian"})


def endless() -> Fabric:
    """Return what is no fabric."""
    return None  # type: ignore[return-value]


def demanding(hosts: int, **others: object) -> Fabric:
    """Return a star."""
    return single.build(hosts)


@pytest.mark.parametrize("first", [True, False])
def test_a_shape_of_beamers_cannot_be_taken(first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register("other", GROUP, {"leaf-spine": "nowhere:build", "other": f"{__name__}:demanding"}, tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path] if first else [*sys.path, str(tmp_path)])
    assert build_topology({"shape": "leaf-spine"}) == leaf_spine.build()
    assert build_topology({"shape": "other", "hosts": 3}) == single.build(3)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere:build", r"'nowhere:build', expected a function that can be imported \(ModuleNotFoundError: No module"),
        (f"{__name__}:absent", r"expected a function that can be imported \(AttributeError: "),
        (f"{__name__}:SHAPES", "expected a function"),
        (f"{__name__}:endless", "expected a function that returns a Fabric, not NoneType"),
    ],
)
def test_a_package_that_brings_no_topology_is_named(
    target: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register("other", GROUP, {"other": target}, tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=message) as caught:
        build_topology({"shape": "other"})
    assert caught.value.field == f"entry point {GROUP}:other"


def test_a_parameter_without_a_default_has_to_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register("other", GROUP, {"other": f"{__name__}:demanding"}, tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=r"topology\.hosts: got None, expected a value, as it has no default"):
        build_topology({"shape": "other"})
