"""What the database of an Open vSwitch says of a bridge and of queues: rows as records."""

from collections.abc import Mapping
from dataclasses import dataclass

from controller.ovsdb.messages import OvsdbError, Row, map_of, set_of, uuid_of, uuids_of

TAG = "beamer"
"""The key in `external_ids` of the rows that are Beamer's; its value says what a row is for."""
SHOWN = 5  # So many bridges are named.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "Open_vSwitch": ("cur_cfg", "next_cfg"),
    "Bridge": ("name", "datapath_id", "datapath_type", "ports"),
    "Port": ("name", "interfaces", "qos"),
    "Interface": ("name", "ofport"),
    "QoS": ("type", "other_config", "queues", "external_ids"),
    "Queue": ("dscp", "other_config", "external_ids"),
}
"""What is watched, by table."""


@dataclass(frozen=True)
class PortRow:
    """A port of the bridge. numbers: by the name of each of its interfaces, the OpenFlow number, if it has one."""

    name: str
    numbers: Mapping[str, int | None]
    qos: str | None


@dataclass(frozen=True)
class QosRow:
    """How a port's packets are queued. queues: identities of rows, by number. tag: None where it is not Beamer's."""

    kind: str
    settings: Mapping[str, str]
    queues: Mapping[int, str]
    tag: str | None


@dataclass(frozen=True)
class QueueRow:
    """A queue. tag: None where it is not Beamer's. has_dscp: whether it rewrites the codepoints of packets."""

    settings: Mapping[str, str]
    has_dscp: bool
    tag: str | None


@dataclass(frozen=True)
class BridgeView:
    """A switch as its database has it: rows by identity. qos_in_use: those that any port of any bridge refers to."""

    datapath_type: str
    ports: Mapping[str, PortRow]
    qos: Mapping[str, QosRow]
    queues: Mapping[str, QueueRow]
    qos_in_use: frozenset[str]


def bridge_view(rows: Mapping[str, Mapping[str, Row]], dpid: int) -> BridgeView:
    """Return the bridge of a datapath id. Raises `OvsdbError` where there is none, or rows cannot be understood."""
    try:
        return _bridge_view(rows, f"{dpid:016x}")
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise OvsdbError(f"its rows cannot be understood ({type(error).__name__}: {error})") from error


def datapath_ids(rows: Mapping[str, Mapping[str, Row]]) -> frozenset[str]:
    """Return the datapath ids of all bridges that have one. rows: as `bridge_view` has understood them."""
    return frozenset(str(one) for row in rows["Bridge"].values() for one in set_of(row["datapath_id"]))


def applied(rows: Mapping[str, Mapping[str, Row]]) -> int:
    """Return up to which of the configurations that were asked for ovs-vswitchd has taken them over. Raises `OvsdbError`."""
    try:
        return max((int(row["cur_cfg"]) for row in rows.get("Open_vSwitch", {}).values()), default=0)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise OvsdbError(f"its configuration's number cannot be understood ({type(error).__name__})") from error


def _bridge_view(rows: Mapping[str, Mapping[str, Row]], dpid: str) -> BridgeView:
    bridge = next((row for row in rows["Bridge"].values() if dpid in set_of(row["datapath_id"])), None)
    if bridge is None:
        named = sorted(f"{row['name']} ({', '.join(map(str, set_of(row['datapath_id'])))})" for row in rows["Bridge"].values())
        has = ", ".join(named[:SHOWN]) + (" and more" if len(named) > SHOWN else "") if named else "none"
        raise OvsdbError(f"it has no bridge of the datapath id {dpid}; its bridges: {has}")
    ports = {}
    for row in uuids_of(bridge["ports"]):
        port = rows["Port"][row]
        interfaces = (rows["Interface"][one] for one in uuids_of(port["interfaces"]))
        ports[row] = PortRow(port["name"], {one["name"]: _number(one) for one in interfaces}, uuid_of(port["qos"]))
    used = frozenset(one for port in rows["Port"].values() for one in uuids_of(port["qos"]))
    qos = {
        row: QosRow(
            one["type"],
            map_of(one["other_config"]),
            {number: queue[1] for number, queue in map_of(one["queues"]).items()},
            _tag(one),
        )
        for row, one in rows["QoS"].items()
    }
    queues = {
        row: QueueRow(map_of(one["other_config"]), bool(set_of(one["dscp"])), _tag(one)) for row, one in rows["Queue"].items()
    }
    return BridgeView(bridge["datapath_type"], ports, qos, queues, used)


def _tag(one: Row) -> str | None:
    """Return what a row's tag says. Raises `TypeError` for one that is no text."""
    tag = map_of(one["external_ids"]).get(TAG)
    if tag is not None and not isinstance(tag, str):
        raise TypeError("a tag that is no text")
    return tag


def _number(interface: Row) -> int | None:
    """Return the OpenFlow number of an interface; -1 stands for one that could not be added."""
    found = set_of(interface["ofport"])
    return found[0] if found and found[0] > 0 else None
