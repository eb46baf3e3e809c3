"""Next hops around dead cables: what does not meet one stays where it is, and comes back when the cable does."""

from itertools import combinations, permutations

import pytest

from beamer.errors import InputError
from beamer.network.fabric import Fabric
from beamer.network.next_hops import Cable
from beamer.testing.fabrics import two_spines
from topologies import fat_tree, leaf_spine

FABRICS = {"two spines": two_spines(2), "three spines": leaf_spine.build(3, 3, 2), "fat tree": fat_tree.build(4)}


def trunks(fabric: Fabric) -> list[Cable]:
    return [(a.src, a.dst) for a, _ in fabric.cables if a.src in fabric.switch and a.dst in fabric.switch]


def meets(fabric: Fabric, path: tuple[int, ...], dead: list[Cable]) -> bool:
    ends = {(fabric.links[hop].src, fabric.links[hop].dst) for hop in path}
    return any({(a, b), (b, a)} & ends for a, b in dead)


@pytest.mark.parametrize("name", FABRICS)
def test_only_paths_that_meet_a_dead_cable_move_and_none_meets_it_then(name: str) -> None:
    fabric = FABRICS[name]
    for cable in trunks(fabric):
        around = fabric.next_hops.around([cable])
        for src, dst in permutations([host.name for host in fabric.hosts], 2):
            for plane in range(fabric.planes):
                before, after = fabric.path(src, dst, plane), fabric.path(src, dst, plane, around)
                assert not meets(fabric, after, [cable])
                if not meets(fabric, before, [cable]):
                    # A later switch may have nowhere to go on: then the path moved at a switch before it.
                    assert after == before
        assert around.around([]) is fabric.next_hops


@pytest.mark.parametrize("name", FABRICS)
def test_paths_exist_and_have_no_loop_around_two_dead_cables(name: str) -> None:
    fabric = FABRICS[name]
    hosts = [host.name for host in fabric.hosts]
    for pair in combinations(trunks(fabric), 2):
        around = fabric.next_hops.around([pair[0]]).around(pair)
        for src, dst in ((hosts[0], hosts[-1]), (hosts[-1], hosts[0])):
            try:
                path = fabric.path(src, dst, 0, around)
            except InputError:
                assert around.of(fabric.edge_of[src], dst, 0) is None
                continue
            assert not meets(fabric, path, list(pair))
            assert len(path) == len(set(path))


def test_a_host_that_no_path_leads_to_is_named() -> None:
    fabric = two_spines(1)
    around = fabric.next_hops.around([("l1", "s1"), ("s2", "l1")])
    assert around.of("l2", "h1", 0) is None
    with pytest.raises(InputError, match=r"fabric\.path: got 'h2 to h1'"):
        fabric.path("h2", "h1", 0, around)
