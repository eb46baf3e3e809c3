"""Networks as NetworkX graphs: built in Python or read from a file, and what is wrong is said of the node or edge."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamer.errors import InputError
from beamer.network.fabric import Fabric
from beamer.network.fabric_sources.networkx_graph import file_tables, from_networkx
from beamer.network.fabric_sources.rows import FabricSettings, fabric_of
from tests.support.fabric_sources import graph_of, mutated
from topologies import fat_tree, leaf_spine, single

FABRICS = [leaf_spine.build(leaves=3, spines=2, rate="25gbit", uplink_rate="100gbit", mtu=9000), fat_tree.build(k=4)]
KINDS = [nx.Graph, nx.MultiGraph, nx.DiGraph]
FORMS: dict[str, Callable[["nx.Graph[Any]"], Any]] = {
    "node-link": lambda graph: json.loads(json.dumps(nx.node_link_data(graph, edges="edges"))),
    "node-link of before 3.6": lambda graph: json.loads(json.dumps(nx.node_link_data(graph, edges="links"))),
    "GraphML": lambda graph: "\n".join(nx.generate_graphml(graph)),
}
RACK = single.build(hosts=2, rate="25gbit")
GRAPHML = FORMS["GraphML"](graph_of(RACK))


def sorted_links(fabric: Fabric) -> Fabric:
    """Return a fabric whose cables are in one order: a graph has them by its nodes."""
    return replace(fabric, links=tuple(sorted(fabric.links, key=lambda link: (link.src, link.dst))))


def read(content: Any) -> Fabric:
    return fabric_of(file_tables(content), FabricSettings())


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.name)
@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_of_a_fabric_is_that_fabric(fabric: Fabric, kind: type["nx.Graph[Any]"]) -> None:
    assert sorted_links(from_networkx(graph_of(fabric, kind))) == sorted_links(fabric)


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.name)
@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph])
@pytest.mark.parametrize("form", FORMS)
def test_a_file_of_a_graph_is_that_fabric(fabric: Fabric, kind: type["nx.Graph[Any]"], form: str) -> None:
    assert sorted_links(read(FORMS[form](graph_of(fabric, kind)))) == sorted_links(fabric)


def test_a_directed_graph_needs_no_name_of_an_end() -> None:
    graph = graph_of(RACK, nx.DiGraph)
    for _, _, attributes in graph.edges(data=True):
        del attributes["a_node"]
    assert sorted_links(from_networkx(graph)) == sorted_links(RACK)


def test_what_a_graph_does_not_say_is_given() -> None:
    graph = graph_of(RACK)
    graph.graph.clear()
    for _, _, attributes in graph.edges(data=True):
        del attributes["rate"]
    found = from_networkx(graph, name="rack", rate="10gbit", planes=4, mtu=4000)
    assert (found.name, found.planes, found.mtu, {link.rate_bps for link in found.links}) == ("rack", 4, 4000, {10**10})


def test_values_may_be_numbers_and_nodes_too() -> None:
    graph = nx.relabel_nodes(graph_of(RACK), {"h1": 1, "h2": 2, "s1": 3})
    graph.nodes[3]["dpid"] = 1
    for node, other, attributes in graph.edges(data=True):
        attributes |= {"a_node": min(node, other), "rate": 25e9, "b_port": float(attributes["b_port"])}
    found = from_networkx(graph)
    assert [switch.dpid for switch in found.switches] == [1]
    assert [(link.src, link.port, link.rate_bps) for link in found.links if link.dst != "3"] == [
        ("3", 1, 25 * 10**9),
        ("3", 2, 25 * 10**9),
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda g: g.nodes["h1"].pop("kind"), r"node h1: kind: got None, expected 'host' or 'switch'"),
        (lambda g: g.nodes["h1"].update(kind=["host"]), r"node h1: kind: got \['host'\], expected one of host, switch"),
        (lambda g: g.nodes["h1"].update(mak="x"), r"node h1: mak: got 'mak', expected one of .*did you mean 'mac'"),
        (lambda g: g.nodes["h1"].pop("mac"), r"node h1: mac: got None, expected the MAC address"),
        (lambda g: g.nodes["h1"].update(ip=7), r"node h1: ip: got 7, expected a text"),
        (lambda g: g.nodes["h1"].update(ip="7"), r"node h1: ip: got '7', expected an address such as"),
        (lambda g: g.nodes["s1"].pop("dpid"), r"node s1: dpid: got None, expected the datapath id of the switch"),
        (lambda g: g.nodes["s1"].update(dpid=True), r"node s1: dpid: got True, expected a number, not true"),
        (lambda g: g.edges["h1", "s1"].pop("a_node"), r"edge h1-s1: a_node: got None, expected one of h1, s1: the end"),
        (lambda g: g.edges["h1", "s1"].update(a_node="h2"), r"edge h1-s1: a_node: got 'h2', expected one of h1, s1"),
        (lambda g: g.edges["h1", "s1"].pop("b_port"), r"edge h1-s1: b_port: got None, expected the OpenFlow number"),
        (lambda g: g.edges["h1", "s1"].update(b_port="x"), r"edge h1-s1: b_port: got 'x', expected a whole number"),
        (lambda g: g.edges["h1", "s1"].update(b_port=2), r"edge h2-s1: b_port: got \('s1', 2\), expected one that is not"),
        (lambda g: g.edges["h1", "s1"].pop("rate"), r"edge h1-s1: rate: got None, expected a rate such as '100gbit'"),
        (lambda g: g.edges["h1", "s1"].update(rate=float("nan")), r"edge h1-s1: rate: got nan, expected a rate above 0"),
        (lambda g: g.edges["h1", "s1"].update(weight=1), r"edge h1-s1: weight: got 'weight', expected one of a_interface"),
        (lambda g: g.add_edge("h1", "x", a_node="h1", a_interface="y", b_interface="z"), r"node x: kind: got None"),
        (lambda g: g.graph.update(plane=1), r"graph: plane: got 'plane', expected one of .*did you mean 'planes'"),
        (lambda g: g.graph.update(rate="fast"), r"graph: rate: got 'fast', expected a rate above 0"),
        (lambda g: g.graph.update(planes="two"), r"fabric\.planes: got 'two', expected a whole number"),
        (lambda g: g.graph.update(name=""), r"fabric\.name: got None, expected a text"),
    ],
)
def test_what_is_wrong_with_a_graph_is_said_of_its_node_or_edge(change: Callable[[Any], Any], said: str) -> None:
    graph = graph_of(RACK)
    change(graph)
    with pytest.raises(InputError, match=said):
        from_networkx(graph)


def test_two_cables_between_two_nodes_are_refused() -> None:
    graph = graph_of(leaf_spine.build(leaves=2, spines=1), nx.MultiGraph)
    graph.add_edge("l1", "s1", a_node="l1", a_interface="x", a_port=9, b_interface="y", b_port=9, rate=1)
    with pytest.raises(
        InputError, match=r"edge l1-s1: b_node: got 's1', expected another node: edge l1-s1 connects both already"
    ):
        from_networkx(graph)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", r"graph: got None, expected valid GraphML"),
        ("<graphml>", r"graph: got None, expected valid GraphML"),
        ("<a/>", r"graph: got None, expected valid GraphML"),
        (GRAPHML.replace('id="h2"', 'id="h1"'), r"node h1: id: got 'h1', expected one that is not taken"),
        (GRAPHML.replace('source="h2"', 'source="h3"'), r"edges\[1\]\.source: got 'h3', expected one of h1, h2, s1"),
        (GRAPHML.replace(">1<", ">one<"), r"graph: got None, expected valid GraphML \(invalid literal for int"),
        ([], r"graph: got \[\], expected node-link data"),
        ({"nodes": []}, r"graph: links: got None, expected a list"),
        ({"edges": []}, r"graph: nodes: got None, expected a list"),
        ({"nodes": [1], "edges": []}, r"nodes\[0\]: got 1, expected a mapping of attributes"),
        ({"nodes": [{"name": "h1"}], "edges": []}, r"nodes\[0\]\.id: got None, expected the name of a node"),
        ({"nodes": [{"id": "h1"}, {"id": "h1"}], "edges": []}, r"nodes\[1\]\.id: got 'h1', expected one that is not taken"),
        ({"nodes": [{"id": "h1"}], "edges": [{"source": "h1"}]}, r"edges\[0\]\.target: got None, expected the name of a node"),
        ({"nodes": [{"id": "h1"}], "edges": [{"source": "h1", "target": "h2"}]}, r"edges\[0\]\.target: got 'h2', .* one of h1"),
        ({"nodes": [], "edges": [], "graph": [["a", 1]]}, r"graph: got \[\['a', 1\]\], expected a mapping"),
    ],
)
def test_a_file_that_is_no_graph_is_named(content: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(content)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_whatever_a_file_has_ends_in_a_network_or_in_one_error(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([nx.Graph, nx.DiGraph]))
    with suppress(InputError):  # Any other error fails the test.
        read(mutated(FORMS["node-link"](graph_of(RACK, kind)), data.draw))
