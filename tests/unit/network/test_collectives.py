"""The flows of one synchronisation, phase by phase."""

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain, permutations

import pytest

from beamer.errors import InputError
from beamer.network.collectives import COLLECTIVES, Phase, check_sizes, different_transfers, phases
from beamer.network.job import JobSpec
from beamer.studies.model import Role, Worker


def ring(hosts: str, sync_bytes: int) -> JobSpec:
    return JobSpec("job", tuple(Worker(i, f"h{h}") for i, h in enumerate(hosts)), 1, sync_bytes)


def servers(workers: str, servers: str, sync_bytes: int) -> JobSpec:
    roles = [(h, Role.WORKER) for h in workers] + [(h, Role.SERVER) for h in servers]
    placed = tuple(Worker(i, f"h{h}", role) for i, (h, role) in enumerate(roles))
    return JobSpec("job", placed, 1, sync_bytes, collective="parameter-server")


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


def workers(count: int, collective: str, sync_bytes: int = 1200) -> JobSpec:
    return JobSpec("job", tuple(Worker(10 + i, f"h{i % 4 + 1}") for i in range(count)), 1, sync_bytes, collective)


def sent(*sequence: Phase) -> dict[int, float]:
    total: dict[int, float] = {}
    for transfer in chain(*sequence):
        total[transfer.src_rank] = total.get(transfer.src_rank, 0.0) + transfer.size_bytes
    return total


def test_halving_doubling_pairs_ranks_at_growing_distance_and_goes_back() -> None:
    rounds = phases(workers(8, "halving-doubling", 800))
    assert [{abs(t.src_rank - t.dst_rank) for t in phase} for phase in rounds] == [{1}, {2}, {4}, {4}, {2}, {1}]
    assert [{t.size_bytes for t in phase} for phase in rounds] == [{400}, {200}, {100}, {100}, {200}, {400}]
    for phase in rounds:
        pairs = {(t.src_rank, t.dst_rank) for t in phase}
        assert pairs == {(b, a) for a, b in pairs}
        assert Counter(a for a, _ in pairs) == Counter(range(10, 18))


@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_halving_doubling_sends_as_many_bytes_as_a_ring(count: int) -> None:
    assert sent(*phases(workers(count, "halving-doubling"))) == pytest.approx(sent(*phases(workers(count, "ring"))))


def test_halving_leaves_every_rank_a_different_part_of_the_sum() -> None:
    held = {rank: {rank} for rank in range(10, 18)}  # By rank, the ranks whose gradients its part has summed are listed.
    for phase in phases(workers(8, "halving-doubling"))[:3]:
        held = {t.dst_rank: held[t.dst_rank] | held[t.src_rank] for t in phase}
    assert all(ranks == set(range(10, 18)) for ranks in held.values())


@pytest.mark.parametrize("count", [3, 6, 12])
def test_halving_doubling_needs_a_power_of_two(count: int) -> None:
    with pytest.raises(InputError, match=rf"workers: got {count}, expected a power of two for halving-doubling"):
        phases(workers(count, "halving-doubling"))


@pytest.mark.parametrize("count", [2, 3, 5])
def test_fsdp_gathers_twice_and_scatters_once_along_the_ring(count: int) -> None:
    steps = phases(workers(count, "fsdp"))
    assert len(steps) == 3
    for phase in steps:
        assert [(t.src_rank - 10, t.dst_rank - 10) for t in phase] == [(i, (i + 1) % count) for i in range(count)]
        assert {t.size_bytes for t in phase} == {(count - 1) / count * 1200}


@pytest.mark.parametrize("count", [2, 3, 5])
def test_all_to_all_dispatches_to_every_other_and_combines(count: int) -> None:
    steps = phases(workers(count, "all-to-all"))
    assert len(steps) == 2
    for phase in steps:
        assert Counter((t.src_rank - 10, t.dst_rank - 10) for t in phase) == Counter(permutations(range(count), 2))
        assert {t.size_bytes for t in phase} == {1200 / count}


@pytest.mark.parametrize("collective", sorted(COLLECTIVES.keys() - {"parameter-server"}))
def test_without_servers_one_worker_sends_nothing_and_servers_are_refused(collective: str) -> None:
    assert phases(workers(1, collective)) == ()
    with pytest.raises(InputError, match=rf"workers: got .*'server'.*expected workers only for {collective}"):
        phases(replace(servers("123", "4", 1200), collective=collective))


@pytest.mark.parametrize("collective", sorted(COLLECTIVES))
def test_transfers_are_counted_without_being_made(collective: str) -> None:
    for count in (2, 4, 8):
        spec = servers("12345678"[:count], "90", 1200) if collective == "parameter-server" else workers(count, collective)
        served = sum(worker.role is Role.SERVER for worker in spec.workers)
        different = {frozenset(frozenset((t.src_rank, t.dst_rank)) for t in phase): len(phase) for phase in phases(spec)}
        assert different_transfers(collective, count, served) == sum(different.values())
    assert different_transfers("all-to-all", 10**9, 0) == 10**9 * (10**9 - 1)


def test_an_unknown_collective_makes_no_transfers() -> None:
    assert different_transfers("tree", 9, 9) == 0


@pytest.mark.parametrize(
    ("name", "least", "most", "servers", "refused"),
    [
        ("ring", 1, 4096, False, ""),
        ("halving-doubling", 1, 2, False, ""),
        ("halving-doubling", 64, 64, False, ""),
        ("halving-doubling", 2, 4, False, "among 3 workers"),
        ("halving-doubling", 16, 4096, False, "among 17 workers"),
        ("parameter-server", 2, 4, True, ""),
        ("parameter-server", 2, 4, False, "at least one server"),
        ("fsdp", 2, 2, True, "which has no servers"),
        ("rign", 1, 1, False, "did you mean 'ring'"),
    ],
)
def test_a_collective_runs_on_all_sizes_of_a_job_or_is_refused(
    name: str, least: int, most: int, servers: bool, refused: str
) -> None:
    with pytest.raises(InputError, match=rf"field: got '{name}'.*{refused}") if refused else nullcontext():
        check_sizes("field", name, least, most, servers)
