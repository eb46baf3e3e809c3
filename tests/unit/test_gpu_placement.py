"""Where parameter servers are put, beside a plain sort of all nodes."""

from random import Random

import pytest

from beamer.gpu.model import Cluster, Grant, Job, Node, Request, Stage
from beamer.gpu.placement import ROUNDING, Room


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
    room, placed, refused = Room(cluster), 0, 0
    for i in range(12):
        most = rng.randrange(1, 5)
        request = Request(
            9, gpus=most, servers=True, worker_cpus=rng.choice((0.0, 0.5, 1.0)), server_cpus=rng.choice((0.5, 1.5))
        )
        grant = room.grant(Job(f"j{i}", request, 0.0, Stage("s", "0")), most)
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
