"""Where parameter servers are put, beside a plain sort of all nodes."""

from dataclasses import replace
from random import Random

import pytest

from beamer.gpu.model import ROUNDING, Cluster, Grant, Job, Node, Request, Stage, check_allocation
from beamer.gpu.placement import CompactPlacer, jobs_that_fit, pack, place_compactly
from tests.support.jobs import known_job


def sorted_out(cluster: Cluster, cpus: dict[str, float], gpus: dict[str, int], request: Request) -> dict[str, int] | None:
    """Place a server per worker by sorting all nodes: the reference."""
    spare = {name: cores - gpus.get(name, 0) * request.worker_cpus for name, cores in cpus.items()}
    chosen, left = {}, sum(gpus.values())
    for name in sorted(spare, key=lambda name: (cluster.node[name].gpus > 0, name not in gpus, -spare[name])):
        here = min(int((spare[name] + ROUNDING) / request.server_cpus), left)
        if here > 0:
            chosen[name] = here
            left -= here
    return None if left else chosen


@pytest.mark.parametrize("seed", range(30))
def test_servers_go_where_a_sort_of_all_nodes_would_put_them(seed: int) -> None:
    rng = Random(seed)
    cluster = Cluster(tuple(Node(f"n{i}", rng.choice((0, 2, 4)), rng.choice((2.0, 4.5, 8.0))) for i in range(9)))
    cpus = {node.name: node.cpus for node in cluster.nodes}
    placer, placed, refused = CompactPlacer(cluster), 0, 0
    for i in range(12):
        most = rng.randrange(1, 5)
        request = Request(
            9, gpus=most, servers=True, worker_cpus=rng.choice((0.0, 0.5, 1.0)), server_cpus=rng.choice((0.5, 1.5))
        )
        grant = placer.place(known_job(f"j{i}", request, 0.0, Stage("s", "0")), most)
        if grant is None:
            refused += 1
            continue
        placed += 1
        assert grant == Grant.of(dict(grant.gpus), sorted_out(cluster, cpus, dict(grant.gpus), request))
        for counts, each in ((grant.gpus, request.worker_cpus), (grant.servers, request.server_cpus)):
            for name, count in counts:
                cpus[name] -= count * each
    assert placed
    assert refused


@pytest.mark.parametrize(("count", "expected"), [(6, {"a": 4, "b": 2}), (4, {"a": 3, "b": 1}), (3, {"a": 2, "b": 1})])
def test_servers_that_take_no_cores_stand_beside_the_workers(count: int, expected: dict[str, int]) -> None:
    placer = CompactPlacer(Cluster((Node("a", 2), Node("b", 1))))
    grant = placer.place(known_job("j", Request(9, gpus=3, servers=True), 0.0, Stage("s", "0")), 3, servers=count)
    assert grant is not None
    assert dict(grant.servers) == expected


def test_only_jobs_that_the_empty_cluster_holds_fit() -> None:
    requests = {
        "fits": Request(9, gpus=4),
        "large": Request(9, gpus=5, min_gpus=4),
        "too large": Request(9, gpus=9, min_gpus=5),
        "no cores": Request(9, worker_cpus=3.0),
        "no cores for servers": Request(9, servers=True, server_cpus=3.0),
    }
    jobs = [known_job(key, request, 0.0, Stage("s", "0")) for key, request in requests.items()]
    cluster = Cluster((Node("a", 2, 2.0), Node("b", 2, 2.0)))
    assert [job.key for job in jobs_that_fit(cluster, jobs)] == ["fits", "large"]
    assert [job.key for job in jobs_that_fit(cluster, jobs, at_minimum=False)] == ["fits"]


def test_gpus_whose_cores_are_taken_go_to_a_job_that_needs_none() -> None:
    greedy, modest = Request(9, gpus=2, worker_cpus=2.0), Request(9, gpus=1)
    jobs = [known_job(key, request, 0.0, Stage("s", "0")) for key, request in (("a", greedy), ("b", greedy), ("c", modest))]
    grants = pack(Cluster((Node("n", 4, 6.0),)), jobs)
    assert {key: grant.size for key, grant in grants.items()} == {"a": 2, "c": 1}, "whole or not at all"


def held(grant: dict[str, int], gpus: int) -> Job:
    return known_job("j", Request(9, gpus=gpus, min_gpus=1, max_gpus=9), 0.0, Stage("s", "0"), last=Grant.of(grant))


def test_a_job_that_keeps_its_size_gets_what_it_had() -> None:
    placer = CompactPlacer(Cluster((Node("a", 2), Node("b", 4), Node("c", 2))))
    assert placer.place(held({"a": 1, "c": 1}, 2), 2) == Grant.of({"a": 1, "c": 1})


def test_a_job_that_changes_its_size_gets_the_fewest_nodes_and_of_equals_its_own() -> None:
    cluster = Cluster((Node("a", 2), Node("b", 4), Node("c", 4), Node("d", 2)))
    assert CompactPlacer(cluster).place(held({"a": 2, "d": 1}, 3), 4) == Grant.of({"b": 4})
    assert CompactPlacer(cluster).place(held({"c": 3}, 3), 4) == Grant.of({"c": 4})
    assert CompactPlacer(cluster).place(held({"d": 1}, 1), 6) == Grant.of({"b": 4, "d": 2}), "the rest fits its own node best"


def test_cores_bound_how_many_gpus_of_a_node_count() -> None:
    cluster = Cluster((Node("a", 4, 1.0), Node("b", 2, 8.0), Node("c", 2, 8.0)))
    request = Request(9, gpus=4, min_gpus=1, max_gpus=9, worker_cpus=1.0)
    grant = CompactPlacer(cluster).place(known_job("j", request, 0.0, Stage("s", "0")), 5)
    assert grant == Grant.of({"a": 1, "b": 2, "c": 2})


def elastic(name: str, **gpus: int) -> Job:
    """A job that holds GPUs, and may have any number."""
    grant = Grant.of(gpus) if gpus else None
    return known_job(name, Request(9, gpus=1, max_gpus=16), 0.0, Stage(name, ""), grant=grant)


def test_smaller_jobs_make_room_for_one_that_would_be_split() -> None:
    cluster = Cluster((Node("a", 4), Node("b", 4)))
    jobs = [elastic("one", a=1), elastic("two", b=2), elastic("large")]
    found = place_compactly(cluster, jobs, {"one": 1, "two": 2, "large": 4})
    assert found == {"one": Grant.of({"b": 1}), "two": Grant.of({"b": 2}), "large": Grant.of({"a": 4})}, "the fewest GPUs move"


def test_a_job_on_several_nodes_moves_where_one_will_do() -> None:
    cluster = Cluster((Node("a", 4), Node("b", 4)))
    found = place_compactly(cluster, [elastic("split", a=2, b=2), elastic("one", b=1)], {"split": 4, "one": 1})
    assert found == {"split": Grant.of({"a": 4}), "one": Grant.of({"b": 1})}
    larger = place_compactly(cluster, [elastic("split", a=3, b=3)], {"split": 6})
    assert larger == {"split": Grant.of({"a": 3, "b": 3})}, "it needs both"


def test_a_job_that_was_paused_comes_back_to_its_node() -> None:
    cluster = Cluster((Node("a", 2), Node("b", 1)))
    paused = replace(elastic("paused"), last=Grant.of({"a": 1}))
    assert place_compactly(cluster, [paused], {"paused": 1}) == {"paused": Grant.of({"a": 1})}, "though b fits it best"


def test_jobs_make_room_in_cores_too() -> None:
    cluster = Cluster((Node("a", 4, 8.0), Node("b", 4, 8.0)))
    asked = {name: Request(9, gpus=1, max_gpus=4, worker_cpus=cores) for name, cores in (("cores", 6.0), ("large", 2.0))}
    jobs = [replace(job, request=asked.get(job.key, job.request)) for job in map(elastic, ("cores", "large"))]
    jobs = [elastic("none", a=1), replace(jobs[0], grant=Grant.of({"a": 1})), jobs[1], elastic("two", b=3)]
    found = place_compactly(cluster, jobs, {"cores": 1, "large": 3, "none": 1, "two": 3})
    check_allocation(cluster, jobs, found)
    assert found["large"] == Grant.of({"a": 3}), "a GPU of the job without cores would not have been enough"
    assert found["two"] == Grant.of({"b": 3})
    too_many = replace(jobs[2], request=replace(asked["large"], worker_cpus=4.0))
    found = place_compactly(cluster, [too_many, jobs[0], jobs[3]], {"large": 3, "none": 1, "two": 3})
    assert found["none"] == Grant.of({"a": 1}), "nobody makes room where no node has the cores"


def test_jobs_with_as_many_gpus_together_stay() -> None:
    cluster = Cluster((Node("a", 3), Node("b", 3)))
    jobs = [elastic("one", a=2), elastic("two", b=2), elastic("new")]
    found = place_compactly(cluster, jobs, {"one": 2, "two": 2, "new": 2})
    assert found == {"one": Grant.of({"a": 2}), "two": Grant.of({"b": 2}), "new": Grant.of({"a": 1, "b": 1})}
    again = place_compactly(cluster, [*jobs[:2], replace(jobs[2], grant=found["new"])], {"one": 2, "two": 2, "new": 2})
    assert again == found, "what cannot be better stays"


@pytest.mark.parametrize("seed", range(40))
def test_compact_placements_are_whole_and_settle(seed: int) -> None:
    rng = Random(seed)
    cluster = Cluster(tuple(Node(f"n{i}", rng.choice((2, 4, 8))) for i in range(rng.randrange(1, 7))))
    jobs = [elastic(f"j{i}") for i in range(12)]
    for _ in range(6):
        sizes, left = {}, cluster.gpus
        for job in rng.sample(jobs, len(jobs)):
            size = rng.choice((job.grant.size if job.grant else 0, rng.randrange(0, 9)))
            if size <= left:
                sizes[job.key] = size
                left -= size
        for _ in range(3):  # the same sizes again, until nothing moves any more
            found = place_compactly(cluster, jobs, sizes)
            check_allocation(cluster, jobs, found)
            assert {key: grant.size for key, grant in found.items()} == {key: size for key, size in sizes.items() if size}
            same = all(job.grant == found.get(job.key) for job in jobs)
            jobs = [replace(job, grant=found.get(job.key), last=job.grant or job.last) for job in jobs]
            if same:
                break
        free = {node.name: node.gpus for node in cluster.nodes}
        for grant in found.values():
            for node, count in grant.gpus:
                free[node] -= count
        assert all(grant.nodes == 1 or grant.size > max(free.values()) for grant in found.values())
