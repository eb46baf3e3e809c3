"""A network as a NetworkX graph, of which an edge is a cable, or as a file of one: node-link JSON, or GraphML.

A node is called as its key, and has the attributes `kind`, `ip`, `mac`, `dpid`, `agent` and `addresses`, a list or a text with
spaces between them. An edge has `a_interface`, `a_port`, `b_interface`, `b_port` and `rate`. In a directed graph, `a` is the
node that an edge begins at. An undirected graph does not keep that, and so names this node by the edge's attribute `a_node`.
The graph itself may have `name`, `rate`, `planes` and `mtu`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

import networkx as nx

from beamer.errors import InputError, nearest
from beamer.network.fabric import Fabric
from beamer.network.fabric_sources.rows import (
    CABLE_COLUMNS,
    NODE_COLUMNS,
    FabricSettings,
    SourceRow,
    SourceTables,
    check_columns,
    fabric_of,
)
from beamer.units import parse_rate

_OF_NODES = [column for column in NODE_COLUMNS if column != "name"]
_OF_EDGES = [column for column in CABLE_COLUMNS if column != "b_node"]
_OF_GRAPHS = ("name", "rate", "planes", "mtu")
_GRAPHML = "{http://graphml.graphdrawing.org/xmlns}"  # As XML's parser writes the namespace of its elements.
_OF_GRAPHML = ("node_default", "edge_default")  # A file's defaults, which NetworkX has given to nodes and edges already.


def from_networkx(
    graph: "nx.Graph[Any]",
    *,
    name: str | None = None,
    rate: str | int | None = None,
    planes: int | None = None,
    mtu: int | None = None,
) -> Fabric:
    """Return the network of a graph, checked as a controller checks its file.

    name, planes, mtu: go before the graph's own. rate: of every edge that has none, such as `100gbit`, or in bit/s. Raises
    `InputError` that names the node or edge and its attribute.
    """
    settings = FabricSettings(name, None if rate is None else parse_rate(rate), planes, mtu)
    return fabric_of(graph_tables(graph), settings)


def file_tables(content: Any) -> SourceTables:
    """Return the network in the text of a GraphML file, or in a decoded node-link JSON file. Raises `InputError`."""
    return graph_tables(_of_graphml(content) if isinstance(content, str) else _of_node_link(content))


def graph_tables(graph: "nx.Graph[Any]") -> SourceTables:
    """Return the network of a graph. Raises `InputError` that names the node or edge and its attribute."""
    own = {key: value for key, value in graph.graph.items() if key not in _OF_GRAPHML}
    check_columns("graph", [*own], _OF_GRAPHS)
    rate = own.get("rate")
    settings = FabricSettings(
        own.get("name") or None, None if rate is None else parse_rate(rate, "graph: rate"), own.get("planes"), own.get("mtu")
    )
    return SourceTables([*_nodes(graph)], [*_edges(graph)], settings)


def _nodes(graph: "nx.Graph[Any]") -> Iterator[SourceRow]:
    for node, attributes in graph.nodes(data=True):
        where = f"node {node}"
        check_columns(where, [*attributes], _OF_NODES)
        yield SourceRow(where, {"name": str(node), **attributes})


def _edges(graph: "nx.Graph[Any]") -> Iterator[SourceRow]:
    for start, end, attributes in graph.edges(data=True):
        where = f"edge {start}-{end}"
        check_columns(where, [*attributes], _OF_EDGES)
        a = attributes.get("a_node", start if graph.is_directed() else None)
        names = (str(start), str(end))
        if a is None or str(a) not in names:
            expected = f"one of {names[0]}, {names[1]}: the end of the edge whose port is in a_interface and a_port"
            raise InputError(f"{where}: a_node", a, expected)
        other = names[1] if str(a) == names[0] else names[0]
        yield SourceRow(where, {**attributes, "a_node": str(a), "b_node": other})


def _of_graphml(text: str) -> "nx.Graph[Any]":
    try:
        _check_nodes(ElementTree.fromstring(text))
        graph: nx.Graph[Any] = nx.parse_graphml(text)
    except (nx.NetworkXException, ElementTree.ParseError, KeyError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError("graph", None, f"valid GraphML ({' '.join(str(error).split())})") from error
    return graph


def _check_nodes(root: ElementTree.Element) -> None:
    """Raise `InputError` for a node that is there twice, or an edge to one that is not: NetworkX would merge or add it."""
    names = Counter(node.get("id", "") for node in root.iter(f"{_GRAPHML}node"))
    for name, count in names.items():
        if count > 1:
            raise InputError(f"node {name}: id", name, "one that is not taken")
    for i, edge in enumerate(root.iter(f"{_GRAPHML}edge")):
        for part in ("source", "target"):
            if edge.get(part) not in names:
                raise InputError(f"edges[{i}].{part}", edge.get(part), nearest(edge.get(part) or "", names))


def _of_node_link(data: Any) -> "nx.Graph[Any]":
    """Return the graph of node-link data as NetworkX of any version writes it: `links` has become `edges`."""
    if not isinstance(data, dict):
        raise InputError("graph", data, "node-link data, with nodes and edges")
    graph: nx.MultiGraph[Any] = nx.MultiDiGraph() if data.get("directed") is True else nx.MultiGraph()
    graph.graph.update(_named(data.get("graph", {}), "graph"))
    for i, node in enumerate(_entries(data, "nodes")):
        name = _part(node, "id", f"nodes[{i}]")
        if name in graph:
            raise InputError(f"nodes[{i}].id", name, "one that is not taken")
        graph.add_nodes_from([(name, _without(node, "id"))])
    for i, edge in enumerate(_entries(data, "edges" if "edges" in data else "links")):
        start, end = (_part(edge, part, f"edges[{i}]") for part in ("source", "target"))
        for part, name in (("source", start), ("target", end)):
            if name not in graph:
                raise InputError(f"edges[{i}].{part}", name, nearest(name, graph.nodes))
        graph.add_edges_from([(start, end, _without(edge, "source", "target", "key"))])
    return graph


def _entries(data: Mapping[str, Any], part: str) -> list[dict[str, Any]]:
    found = data.get(part)
    if not isinstance(found, list):
        raise InputError(f"graph: {part}", found, "a list, as node-link data has")
    return [_named(one, f"{part}[{i}]") for i, one in enumerate(found)]


def _named(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(where, value, "a mapping of attributes")
    return value


def _part(entry: Mapping[str, Any], key: str, where: str) -> str:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(f"{where}.{key}", value, "the name of a node")
    return str(value)


def _without(entry: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in keys}
