"""Which host of a controller's network a Ray node is: by its address, by a name, or as the user says."""

import logging

import pytest

from beamer.engines.ray_tune.hosts import NodeHosts, RayNode, SharedNodes
from beamer.errors import InputError
from beamer.gpu.model import Node

ADDRESSES = {"h1": "10.77.0.1", "h2": "10.77.0.2", "h3": "10.77.0.3"}


def node(address: str, name: str = "", machine: str = "machine", gpus: int = 2, node_id: str = "") -> RayNode:
    return RayNode(node_id or f"id-{address}", address, (name or address, machine), gpus, 8.0)


@pytest.mark.parametrize(
    ("one", "given", "host"),
    [
        (node("10.77.0.2"), {}, "h2"),
        (node("192.168.0.9", machine="h3"), {}, "h3"),
        (node("192.168.0.9", machine="h3.cluster.example"), {}, "h3"),
        (node("192.168.0.9", name="h1", machine="h3"), {}, "h1"),
        (node("10.77.0.2", machine="h3"), {}, "h2"),
        (node("10.77.0.2"), {"10.77.0.2": "h1"}, "h1"),
        (node("192.168.0.9", machine="gpu-7"), {"gpu-7": "h2"}, "h2"),
        (node("192.168.0.9", name="a", machine="gpu-7"), {"a": "h3", "gpu-7": "h2"}, "h3"),
    ],
    ids=["address", "machine", "domain", "name", "address first", "given first", "given machine", "given name"],
)
def test_a_node_is_the_host_that_it_is_said_to_be(one: RayNode, given: dict[str, str], host: str) -> None:
    assert NodeHosts(ADDRESSES, given).host(one) == host


def test_a_node_that_is_no_host_is_named_with_what_was_expected() -> None:
    expected = r"Ray node: got 'gpu-7 at 192.168.0.9', expected .*, or its host in `hosts`: h1 at 10.77.0.1, h2 at .*"
    with pytest.raises(InputError, match=expected):
        NodeHosts(ADDRESSES, {"gpu-8": "h1"}).host(node("192.168.0.9", machine="gpu-7"))
    with pytest.raises(InputError, match=r"hosts\['gpu-7'\]: got 'h4', expected a host .*: one of h1, h2, h3"):
        NodeHosts(ADDRESSES, {"gpu-7": "h4"})


def test_two_nodes_are_not_one_host() -> None:
    hosts = NodeHosts(ADDRESSES, {"machine": "h1"})
    with pytest.raises(
        InputError, match=r"got 'machine at 127.0.0.4', expected a host of its own, as h1 is that of machine at"
    ):
        hosts.by_host([node("127.0.0.3"), node("127.0.0.4")])


def test_nodes_are_declared_once_and_others_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    first, second = node("10.77.0.2"), node("10.77.0.1", gpus=4)
    shared = SharedNodes(NodeHosts(ADDRESSES, {}), [first, second])
    assert shared.declared == (Node("h1", 4, 8.0), Node("h2", 2, 8.0))
    assert shared.up([second]) == {Node("h1", 4, 8.0): second}
    again = node("10.77.0.2", node_id="another")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert shared.up([again, node("10.77.0.3"), node("10.77.0.1"), node("10.0.0.1")]) == {Node("h2", 2, 8.0): again}
    left_out = sorted(record.getMessage().partition(" is not used")[0] for record in caplog.records)
    assert left_out == ["machine at 10.0.0.1", "machine at 10.77.0.1", "machine at 10.77.0.3"], "each is said once"
    with pytest.raises(InputError, match="Ray nodes: got 'none'"):
        SharedNodes(NodeHosts(ADDRESSES, {}), [])
