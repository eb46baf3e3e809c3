"""Networks in the forms that `beamer fabric build` reads, written from a fabric: what a site would have of it."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from io import StringIO
from typing import Any

import networkx as nx
from hypothesis import strategies as st

from beamer.network.fabric import Fabric
from beamer.network.fabric_sources.csv_tables import CABLES, NODES
from beamer.network.fabric_sources.rows import CABLE_COLUMNS, NODE_COLUMNS
from beamer.units import rate_text


def node_rows(fabric: Fabric) -> list[dict[str, Any]]:
    """Return each host and switch by column."""
    hosts = [{"name": h.name, "kind": "host", "ip": h.ip, "mac": h.mac, "agent": h.agent} for h in fabric.hosts]
    return hosts + [{"name": s.name, "kind": "switch", "dpid": f"{s.dpid:016x}", "agent": s.agent} for s in fabric.switches]


def cable_rows(fabric: Fabric) -> list[dict[str, Any]]:
    """Return each cable by column; hosts have no port."""
    found = []
    for there, back in fabric.cables:
        row: dict[str, Any] = {"rate": rate_text(there.rate_bps)}
        for end, link in (("a", there), ("b", back)):
            row |= {f"{end}_node": link.src, f"{end}_interface": link.interface}
            row |= {f"{end}_port": link.port} if link.src in fabric.switch else {}
        found.append(row)
    return found


def csv_texts(
    fabric: Fabric, node_columns: Sequence[str] = NODE_COLUMNS, cable_columns: Sequence[str] = CABLE_COLUMNS
) -> dict[str, str]:
    """Return both tables by their files' names."""
    return {NODES: _table(node_columns, node_rows(fabric)), CABLES: _table(cable_columns, cable_rows(fabric))}


def _table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    text = StringIO()
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def netbox_lists(fabric: Fabric) -> dict[str, list[dict[str, Any]]]:
    """Return the records of each list as NetBox 4 has them, with fields that nothing here reads."""
    names = [node.name for node in (*fabric.hosts, *fabric.switches)]
    device_ids = {name: 100 + i for i, name in enumerate(names)}
    interface_ids = {(link.src, link.interface): 1000 + i for i, link in enumerate(fabric.links)}

    def device(name: str, role: str, **more: Any) -> dict[str, Any]:
        known = {"id": device_ids[name], "url": f"https://netbox.example/api/dcim/devices/{device_ids[name]}/", "name": name}
        nested = {"id": 1, "name": role.title(), "slug": role}
        return {
            **known,
            "role": nested,
            "tags": [],
            "primary_ip4": None,
            "status": {"value": "active", "label": "Active"},
            **more,
        }

    hosts = [device(h.name, "gpu-server", custom_fields={"agent": h.agent, "contact": None}) for h in fabric.hosts]
    switches = [
        device(s.name, "switch", custom_fields={"agent": s.agent, "datapath_id": f"{s.dpid:016x}"}) for s in fabric.switches
    ]
    interfaces = []
    for link in fabric.links:
        own = {"mac_address": fabric.host[link.src].mac.upper()} if link.src in fabric.host else {"mac_address": None}
        fields = {"openflow_port": link.port if link.src in fabric.switch else None}
        interface = {"id": interface_ids[link.src, link.interface], "device": {"id": device_ids[link.src], "name": link.src}}
        more = {
            "name": link.interface,
            "type": {"value": "25gbase-x-sfp28"},
            "speed": link.rate_bps // 1000,
            "mgmt_only": False,
        }
        interfaces.append(
            {**interface, **more, **own, "custom_fields": fields, "cable": {"id": 1}, "connected_endpoints": None}
        )
    cables = [
        {
            "id": 5000 + i,
            **{
                f"{end}_terminations": [{"object_type": "dcim.interface", "object_id": interface_ids[link.src, link.interface]}]
                for end, link in (("a", there), ("b", back))
            },
            "status": {"value": "connected", "label": "Connected"},
        }
        for i, (there, back) in enumerate(fabric.cables)
    ]
    addresses = [
        {
            "id": 9000 + i,
            "family": {"value": 4, "label": "IPv4"},
            "address": f"{host.ip}/16",
            "assigned_object_type": "dcim.interface",
            "assigned_object_id": interface_ids[host.name, fabric.links[fabric.uplink[host.name]].interface],
        }
        for i, host in enumerate(fabric.hosts)
    ]
    return {"devices": hosts + switches, "interfaces": interfaces, "cables": cables, "ip-addresses": addresses}


def graph_of(fabric: Fabric, kind: type["nx.Graph[Any]"] = nx.Graph) -> "nx.Graph[Any]":
    """Return a graph, directed or not, with the fabric's planes and MTU."""
    graph = kind()
    graph.graph.update({"name": fabric.name, "planes": fabric.planes, "mtu": fabric.mtu})
    for row in node_rows(fabric):
        graph.add_node(row.pop("name"), **{key: value for key, value in row.items() if value is not None})
    for row in cable_rows(fabric):
        a, b = row["a_node"], row.pop("b_node")
        graph.add_edge(a, b, **row)
    return graph


def page(records: Sequence[Any], count: int | None = None) -> dict[str, Any]:
    """Return a page of NetBox's REST API; count: of all pages."""
    return {"count": len(records) if count is None else count, "next": None, "previous": None, "results": list(records)}


VALUES: Sequence[Any] = [
    *(None, True, 0, -1, 1.5, float("inf"), 10**30, "", "x", "h1", "10.0.0.1/24", "::1/64", "9" * 5000),
    *([], {}, [1], {"id": 1}, {"slug": "switch"}, [{"id": 100}], 100, 102, 1000, 1001),
]
"""What may stand in place of anything in JSON."""


def mutated(data: Any, draw: Callable[[st.SearchStrategy[Any]], Any]) -> Any:
    """Return JSON of which a part has another value, or is missing; draw: a strategy's value."""
    found = deepcopy(data)
    path = draw(st.sampled_from([path for path in _paths(data) if path]))
    holder = found
    for key in path[:-1]:
        holder = holder[key]
    if draw(st.booleans()):
        holder[path[-1]] = deepcopy(draw(st.sampled_from(VALUES)))
    else:
        del holder[path[-1]]
    return found


def _paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    parts = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, part in parts:
        yield from _paths(part, (*path, key))
