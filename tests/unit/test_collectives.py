"""The flows of one synchronisation and what they need of links."""

from collections import Counter
from dataclasses import replace

import pytest

from beamer.collectives import link_seconds, phase_seconds, phases, synchronisation_seconds
from beamer.errors import InputError
from beamer.model import JobSpec, Role, Worker
from beamer.testing.fabrics import star
from beamer.units import ETHERNET_MTU, segment

SEGMENT_PAYLOAD, SEGMENT_FRAME = segment(ETHERNET_MTU)

FABRIC = star(4, rate_bps=8 * SEGMENT_FRAME * 1000)
SECOND = 1000 * SEGMENT_PAYLOAD  # payload bytes that take a link one second


def ring(hosts: str, sync_bytes: int) -> JobSpec:
    return JobSpec("job", tuple(Worker(i, f"h{h}") for i, h in enumerate(hosts)), 1, sync_bytes)


def servers(workers: str, servers: str, sync_bytes: int) -> JobSpec:
    roles = [(h, Role.WORKER) for h in workers] + [(h, Role.SERVER) for h in servers]
    placed = tuple(Worker(i, f"h{h}", role) for i, (h, role) in enumerate(roles))
    return JobSpec("job", placed, 1, sync_bytes, collective="parameter-server")


def seconds(spec: JobSpec) -> dict[str, float]:
    return {f"{FABRIC.links[i].src}-{FABRIC.links[i].dst}": s for i, s in link_seconds(spec, FABRIC, 0).items()}


@pytest.mark.parametrize("count", [2, 3, 4])
def test_ring_sends_twice_all_but_one_share_to_the_successor(count: int) -> None:
    (phase,) = phases(ring("1234"[:count], 1200))
    assert [(t.src_rank, t.dst_rank) for t in phase] == [(i, (i + 1) % count) for i in range(count)]
    assert {t.size_bytes for t in phase} == {2 * (count - 1) / count * 1200}


def test_a_ring_of_one_sends_nothing() -> None:
    assert phases(ring("1", 1200)) == ()


def test_parameter_server_pushes_a_share_to_every_server_then_pulls_it() -> None:
    push, pull = phases(servers("123", "14", 1200))
    assert Counter((t.src_rank, t.dst_rank) for t in push) == Counter((w, s) for w in (0, 1, 2) for s in (3, 4))
    assert Counter((t.dst_rank, t.src_rank) for t in pull) == Counter((t.src_rank, t.dst_rank) for t in push)
    assert {t.size_bytes for t in (*push, *pull)} == {600}


@pytest.mark.parametrize(("workers", "parameter_servers"), [("12", ""), ("", "12")])
def test_parameter_server_needs_both_roles(workers: str, parameter_servers: str) -> None:
    with pytest.raises(InputError, match="at least one server and one worker"):
        phases(servers(workers, parameter_servers, 1200))


def test_a_ring_has_no_servers() -> None:
    with pytest.raises(InputError, match=r"workers: got .*\(1, 'server'\).*expected workers only for ring"):
        phases(replace(servers("1", "2", 1200), collective="ring"))


def test_unknown_collective() -> None:
    with pytest.raises(InputError, match=r"collective: got 'rings'.*did you mean 'ring'"):
        phases(JobSpec("job", (Worker(0, "h1"),), 1, 1, collective="rings"))


def test_ring_loads_one_link_out_of_and_one_into_every_host() -> None:
    assert seconds(ring("12", SECOND)) == pytest.approx({"h1-s1": 1, "s1-h2": 1, "h2-s1": 1, "s1-h1": 1})


def test_workers_on_one_host_load_no_link() -> None:
    assert seconds(ring("11", SECOND)) == {}
    assert synchronisation_seconds(ring("11", SECOND), FABRIC, 0) == 0


def test_a_server_is_the_bottleneck_of_its_workers_in_both_phases() -> None:
    spec = servers("123", "4", SECOND)
    assert seconds(spec)["s1-h4"] == pytest.approx(3)
    assert seconds(spec)["h4-s1"] == pytest.approx(3)
    assert [max(load.values()) for load in phase_seconds(spec, FABRIC, 0)] == pytest.approx([3, 3])
    assert synchronisation_seconds(spec, FABRIC, 0) == pytest.approx(6)
