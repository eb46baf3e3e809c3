"""The loads of one synchronisation on the links, against numbers worked out by hand.

Links carry `SECOND` payload bytes in one second. A payload of G bytes is chosen so that every load is a small multiple of it.
"""

from dataclasses import replace
from functools import partial
from random import Random

import numpy as np
import pytest

from beamer.network.collectives import COLLECTIVES, phases
from beamer.network.fabric import Fabric
from beamer.network.footprint import MAX_REMEMBERED, Footprint, Footprints, phase_loads
from beamer.network.job import JobSpec
from beamer.studies.model import Role, Worker
from beamer.testing.fabrics import star, two_spines
from beamer.units import ETHERNET_MTU, frame_bytes, segment
from tests.support.effort import effort

SEGMENT_PAYLOAD, SEGMENT_FRAME = segment(ETHERNET_MTU)
RATE_BPS = 8 * SEGMENT_FRAME * 1000
SECOND = 1000 * SEGMENT_PAYLOAD  # payload bytes that take a link one second

SWITCH = star(4, RATE_BPS)
LEAF_SPINE = two_spines(2, RATE_BPS)  # h1 and h2 on l1, h3 and h4 on l2; plane 0 leads over s1, plane 1 over s2


def phase_seconds(spec: JobSpec, fabric: Fabric, plane: int) -> tuple[dict[int, float], ...]:
    """Return the seconds that each phase of one synchronisation needs of each link alone, headers of frames included."""

    def weigh(size_bytes: float, link: int) -> float:
        return 8 * frame_bytes(size_bytes, fabric.mtu) / fabric.links[link].rate_bps

    return phase_loads(spec, partial(fabric.path, plane=plane), weigh)


def job(hosts: str, collective: str = "ring", servers: str = "", sync_bytes: int = SECOND) -> JobSpec:
    roles = [(h, Role.WORKER) for h in hosts] + [(h, Role.SERVER) for h in servers]
    return JobSpec("job", tuple(Worker(i, f"h{h}", role) for i, (h, role) in enumerate(roles)), 1, sync_bytes, collective)


def by_name(fabric: Fabric, load: dict[int, float]) -> dict[str, float]:
    return {f"{fabric.links[i].src}-{fabric.links[i].dst}": value for i, value in load.items()}


def seconds(fabric: Fabric, found: Footprint) -> dict[str, float]:
    return by_name(fabric, dict(zip(found.link.tolist(), found.seconds.tolist(), strict=True)))


def uses(text: str, load: float) -> dict[str, float]:
    return dict.fromkeys(text.split(), pytest.approx(load))


def test_a_ring_side_by_side_crosses_the_spine_once_each_way() -> None:
    found = Footprints(LEAF_SPINE).of(job("1234"), 0)  # each of the four sends 2 * 3/4 of G to the next
    assert seconds(LEAF_SPINE, found) == uses("h1-l1 l1-h2 h2-l1 l1-s1 s1-l2 l2-h3 h3-l2 l2-h4 h4-l2 l2-s1 s1-l1 l1-h1", 1.5)
    assert found.gamma_s == pytest.approx(1.5)
    assert found.size_bits == pytest.approx(4 * 1.5 * RATE_BPS)
    assert found.longest_bits == pytest.approx(1.5 * RATE_BPS)
    assert (found.senders, found.receivers) == (4, 4)


def test_a_ring_that_alternates_between_leaves_crosses_the_spine_twice_each_way() -> None:
    found = Footprints(LEAF_SPINE).of(job("1324"), 0)
    hosts = uses("h1-l1 h2-l1 h3-l2 h4-l2 l1-h1 l1-h2 l2-h3 l2-h4", 1.5)
    assert seconds(LEAF_SPINE, found) == hosts | uses("l1-s1 s1-l2 l2-s1 s1-l1", 3.0)
    assert found.gamma_s == pytest.approx(3.0)


def test_a_plane_is_a_spine() -> None:
    found = Footprints(LEAF_SPINE).of(job("13", sync_bytes=2 * SECOND), 1)  # each of the two sends 2 * 1/2 of G
    assert seconds(LEAF_SPINE, found) == uses("h1-l1 l1-s2 s2-l2 l2-h3 h3-l2 l2-s2 s2-l1 l1-h1", 2.0)


def test_workers_push_to_a_server_and_then_pull() -> None:
    spec = job("123", "parameter-server", servers="4")
    push, pull = (by_name(LEAF_SPINE, load) for load in phase_seconds(spec, LEAF_SPINE, 0))
    assert push == uses("h1-l1 h2-l1 h3-l2", 1.0) | uses("l1-s1 s1-l2", 2.0) | uses("l2-h4", 3.0)
    assert pull == uses("l1-h1 l1-h2 l2-h3", 1.0) | uses("l2-s1 s1-l1", 2.0) | uses("h4-l2", 3.0)
    found = Footprints(LEAF_SPINE).of(spec, 0)
    assert seconds(LEAF_SPINE, found) == push | pull
    assert found.gamma_s == pytest.approx(6.0)  # the pull waits for the push
    assert found.size_bits == pytest.approx(6 * RATE_BPS)
    assert found.longest_bits == pytest.approx(RATE_BPS)
    assert (found.senders, found.receivers) == (4, 4)


@pytest.mark.parametrize(
    ("collective", "expected"), [("ring", 1.5), ("halving-doubling", 1.5), ("fsdp", 2.25), ("all-to-all", 1.5)]
)
def test_a_synchronisation_of_four_on_one_switch(collective: str, expected: float) -> None:
    found = Footprints(SWITCH).of(job("1234", collective), 0)
    assert found.gamma_s == pytest.approx(expected)
    assert list(seconds(SWITCH, found).values()) == pytest.approx([expected] * 8)


@pytest.mark.parametrize("collective", sorted(COLLECTIVES))
@pytest.mark.parametrize("seed", range(20))
def test_loads_are_the_sums_over_all_transfers_to_the_last_digit(collective: str, seed: int) -> None:
    rng = Random(seed)
    count = 2 ** rng.randrange(1, 5) if collective == "halving-doubling" else rng.randrange(2, 14)
    servers = "".join(rng.choices("1234", k=rng.randrange(1, 4))) if collective == "parameter-server" else ""
    spec = job("".join(rng.choices("1234", k=count)), collective, servers, rng.randrange(10**9))
    host_of = {worker.rank: worker.host for worker in spec.workers}
    bits, each, gamma_s = 0.0, [], 0.0
    for phase, found in zip(phases(spec), phase_seconds(spec, LEAF_SPINE, 1), strict=True):
        load: dict[int, float] = {}
        for transfer in phase:
            for link in LEAF_SPINE.path(host_of[transfer.src_rank], host_of[transfer.dst_rank], 1):
                size = 8 * frame_bytes(transfer.size_bytes, ETHERNET_MTU)
                load[link] = load.get(link, 0.0) + size / RATE_BPS
        assert found == load
        gamma_s += max(load.values(), default=0.0)
        each += [8 * frame_bytes(t.size_bytes, ETHERNET_MTU) for t in phase if host_of[t.src_rank] != host_of[t.dst_rank]]
    footprint = Footprints(LEAF_SPINE).of(spec, 1)
    assert (footprint.gamma_s, footprint.size_bits) == (gamma_s, sum(each, bits))


def test_a_footprint_costs_pairs_of_hosts_not_transfers() -> None:
    few, many = job("1234" * 2, "all-to-all"), job("1234" * 32, "all-to-all")
    costs = [effort(partial(Footprints(LEAF_SPINE).of, spec, 0)) for spec in (few, few, many)][1:]  # paths are known then
    assert costs[1] < 4 * costs[0], "as many pairs of hosts, 16 times as many workers, 290 times as many transfers"


def test_workers_on_one_host_load_no_link() -> None:
    found = Footprints(SWITCH).of(job("11"), 0)
    assert len(found.link) == len(found.seconds) == 0
    assert (found.gamma_s, found.size_bits, found.longest_bits, found.senders, found.receivers) == (0, 0, 0, 0, 0)


def test_rounds_within_a_host_load_no_link() -> None:
    spec = job("1122", "halving-doubling")
    assert [bool(load) for load in phase_seconds(spec, SWITCH, 0)] == [False, True, True, False]
    assert Footprints(SWITCH).of(spec, 0).gamma_s == pytest.approx(2 * 2 / 4)  # two ranks of a host send G/4 each, twice


def test_links_are_ascending_and_a_job_has_one_footprint() -> None:
    known = Footprints(LEAF_SPINE)
    found = known.of(job("4132"), 0)
    assert (np.diff(found.link) > 0).all()
    assert known.of(job("4132"), 0) is found


def test_workers_are_not_hashed_again() -> None:
    class Counted(Worker):
        hashed = 0

        def __hash__(self) -> int:
            Counted.hashed += 1
            return hash((self.rank, self.host))

    spec = replace(job("12"), workers=(Counted(0, "h1"), Counted(1, "h2")))
    known = Footprints(LEAF_SPINE)
    found = known.of(spec, 0)
    once = Counted.hashed
    assert known.of(replace(spec, iterations=7), 0) is found
    assert known.of(spec, 1) is not found
    assert 0 < once < Counted.hashed
    before = Counted.hashed
    assert known.of(spec, 0) is found
    assert Counted.hashed == before


def test_the_footprints_asked_for_last_are_kept() -> None:
    known = Footprints(LEAF_SPINE)
    often = known.of(job("12"), 0)
    for size in range(1, MAX_REMEMBERED + 100):
        known.of(job("12", sync_bytes=size), 0)
        if size % 100 == 0:
            assert known.of(job("12"), 0) is often
    assert known.of(job("12"), 0) is often
    assert len(known._known) == MAX_REMEMBERED


def test_loads_in_another_unit_follow_the_same_paths() -> None:
    spec = job("123", "parameter-server", servers="4")
    push, _ = phase_loads(spec, LEAF_SPINE.path, lambda size_bytes, _: size_bytes)
    expected = uses("h1-l1 h2-l1 h3-l2", SECOND) | uses("l1-s1 s1-l2", 2 * SECOND) | uses("l2-h4", 3 * SECOND)
    assert by_name(LEAF_SPINE, push) == expected
