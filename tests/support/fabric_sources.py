"""Networks in the forms that `beamer fabric build` reads, written from a fabric: what a site would have of it."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

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
