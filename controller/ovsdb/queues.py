"""What queues the ports of a switch should have, and what of its database's rows has to change for that. Pure.

Each port has a QoS row of Beamer's, of type `linux-htb`, with queue 0 for unregistered traffic and queue k+1 for class k; Open
vSwitch makes of queue q the HTB class 1:(q+1), in hexadecimal, and sends by 1:1 what no rule has given a queue.
A row is Beamer's by its tag alone. A port with the QoS of another is left as it is, and so is whatever others refer to.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from beamer.network.fabric import Fabric
from beamer.network.queue_rates import ClassRates, burst_bytes, port_rates
from beamer.units import rate_text, segment
from controller.ovsdb.messages import Operation, as_map, as_set, as_uuid, the_row
from controller.ovsdb.tables import TAG, BridgeView, PortRow, QosRow

HTB = "linux-htb"
MOST_RATE_BPS = 8 * (2**32 - 1)
"""Open vSwitch 3.1 makes HTB classes of 31.28 Gbit/s where 100 Gbit/s are asked for: it has 32 bits for bytes per second."""

Settings = Mapping[str, str]


@dataclass(frozen=True)
class WantedQueues:
    """The queues that a port should have.

    port: its OpenFlow number. settings: of the QoS. queues: the settings of each, by number.
    """

    port: int
    interface: str
    rate_bps: int
    settings: Settings
    queues: tuple[Settings, ...]


@dataclass(frozen=True)
class PortFault:
    """Why a port does not get its queues. kind: as of `observed_fabric.KINDS`."""

    kind: str
    text: str


_MISSING = PortFault("no queues", "gets no queues: its database has no port of that number, nor of the interface's name")


@dataclass(frozen=True)
class QueueChange:
    """What has to change. made, mended: ports that had no queues of Beamer's, or others. faults: by port."""

    operations: tuple[Operation, ...]
    made: tuple[int, ...]
    mended: tuple[int, ...]
    faults: Mapping[int, PortFault]


def wanted_queues(fabric: Fabric, switch: str, queues: int) -> tuple[WantedQueues, ...]:
    """Return what the ports of a switch should have for so many classes."""
    _, frame = segment(fabric.mtu)

    def settings(rates: ClassRates) -> Settings:
        burst = burst_bytes(rates.ceil, frame)
        of_rates = {"min-rate": 8 * rates.rate, "max-rate": 8 * rates.ceil, "burst": 8 * burst}
        return {name: str(value) for name, value in (*of_rates.items(), ("priority", rates.priority))}

    wanted = []
    for link in fabric.links:
        if link.src == switch:
            rates = port_rates(link.rate_bps, queues)
            each = (rates.unregistered, *rates.managed)
            of_port = {"max-rate": str(8 * rates.link)}
            wanted.append(WantedQueues(link.port, link.interface, link.rate_bps, of_port, tuple(map(settings, each))))
    return tuple(wanted)


def change_of_queues(view: BridgeView, wanted: Iterable[WantedQueues], dpid: int) -> QueueChange:
    """Return what has to change so that the bridge of a datapath id has the queues that are wanted."""
    operations: list[Operation] = []
    made, mended, faults = list[int](), list[int](), dict[int, PortFault]()
    kept: set[str] = set()
    ports, tagged, prefix = _Ports(view), _Tagged(view), f"{dpid:016x}/"
    taken: dict[str, int] = {}  # the rows of ports, by the port of the file that each is
    for port in wanted:
        found = ports.row_of(port)
        fault = _fault(view, port, None if found is None else found[1])
        if found is not None and taken.setdefault(found[0], port.port) != port.port:
            text = f"gets no queues: its database has it in one port with port {taken[found[0]]}, as in a bond"
            faults[port.port] = PortFault("no queues", text)
            continue
        if fault is not None or found is None:
            faults[port.port] = fault or _MISSING
            if found is not None and port.rate_bps > MOST_RATE_BPS:
                operations += _without_queues(view, *found)
            continue
        change = _PortChange(view, tagged, port, f"{prefix}{port.port}")
        of_port = list(change.operations(*found))
        kept |= change.kept
        if of_port:
            (mended if change.existed else made).append(port.port)
        operations += of_port
    for row, unwanted in view.ports.items():
        qos = view.qos.get(unwanted.qos) if unwanted.qos is not None else None
        if row not in taken and qos is not None and qos.tag is not None and qos.tag.startswith(prefix):
            operations += _without_queues(view, row, unwanted)
    operations += _removals(view, prefix, kept)
    return QueueChange(tuple(operations), tuple(made), tuple(mended), faults)


class _Ports:
    """The ports of a bridge by number, which rules go by, and those that have none by the names of their interfaces."""

    def __init__(self, view: BridgeView) -> None:
        self._by_number: dict[int, tuple[str, PortRow]] = {}
        self._unnumbered: dict[str, tuple[str, PortRow]] = {}
        for row, port in view.ports.items():
            for name, number in port.numbers.items():
                if number is None:
                    self._unnumbered[name] = row, port
                else:
                    self._by_number[number] = row, port

    def row_of(self, port: WantedQueues) -> tuple[str, PortRow] | None:
        return self._by_number.get(port.port) or self._unnumbered.get(port.interface)


class _Tagged:
    """The rows that are Beamer's, by tag."""

    def __init__(self, view: BridgeView) -> None:
        self.qos: dict[str, list[str]] = defaultdict(list)
        self.queues: dict[str, list[str]] = defaultdict(list)
        for row, qos in sorted(view.qos.items()):
            if qos.tag is not None:
                self.qos[qos.tag].append(row)
        for row, queue in sorted(view.queues.items()):
            if queue.tag is not None:
                self.queues[queue.tag].append(row)


def _fault(view: BridgeView, port: WantedQueues, found: PortRow | None) -> PortFault | None:
    if found is None:
        return _MISSING
    if found.qos is not None and not _is_own(view, found.qos):
        text = (
            "has the queues of another program, which stay as they are: no class goes before another there, as far as is known"
        )
        return PortFault("foreign queues", text)
    if port.rate_bps > MOST_RATE_BPS:
        most = "34.36 Gbit/s, as Open vSwitch 3.1 gives them a wrong rate above"
        return PortFault("no queues", f"gets no queues: it has {rate_text(port.rate_bps)}, and they are made up to {most}")
    return None


def _is_own(view: BridgeView, qos: str) -> bool:
    return qos in view.qos and view.qos[qos].tag is not None


def _without_queues(view: BridgeView, row: str, port: PortRow) -> Iterator[Operation]:
    """Yield how Beamer's queues are taken from a port."""
    if port.qos is not None and _is_own(view, port.qos):
        yield _unless_changed("Port", row, "qos", as_uuid(port.qos))
        yield _update("Port", row, {"qos": as_set([])})


class _PortChange:
    """The operations for one port. kept: the rows that stay. existed: whether the port had queues of Beamer's."""

    def __init__(self, view: BridgeView, tagged: _Tagged, port: WantedQueues, tag: str) -> None:
        self._view = view
        self._tagged = tagged
        self._port = port
        self._tag = tag
        self._names = f"p{port.port}"
        self.kept: set[str] = set()
        self.existed = tag in tagged.qos or any(f"{tag}/{number}" in tagged.queues for number in range(len(port.queues)))

    def operations(self, row: str, port: PortRow) -> Iterator[Operation]:
        """Yield what has to be done. row: of the port. The first ones fail where somebody else was faster."""
        found = self._qos_row(port)
        qos = None if found is None else self._view.qos[found]
        changes: list[Operation] = []
        references = {number: self._queue(number, qos, changes) for number in range(len(self._port.queues))}
        if found is None or qos is None:
            tagged = {"external_ids": as_map({TAG: self._tag})}
            changes.append(_insert("QoS", self._names, {**self._qos_columns(references), **tagged}))
            reference = ["named-uuid", self._names]
        else:
            reference = as_uuid(found)
            self.kept.add(found)
            as_it_should = {number: as_uuid(queue) for number, queue in qos.queues.items()}
            if (qos.kind, dict(qos.settings), as_it_should) != (HTB, dict(self._port.settings), references):
                changes.append(_update("QoS", found, self._qos_columns(references)))
        if port.qos is None or reference != as_uuid(port.qos):
            changes.append(_update("Port", row, {"qos": reference}))
        if changes:
            yield _unless_changed("Port", row, "qos", as_set([] if port.qos is None else [as_uuid(port.qos)]))
            if found is not None and qos is not None:
                queues = as_map({number: as_uuid(queue) for number, queue in qos.queues.items()})
                yield _unless_changed("QoS", found, "queues", queues)
        yield from changes

    def _qos_row(self, port: PortRow) -> str | None:
        tagged = self._tagged.qos.get(self._tag, [])
        return port.qos if port.qos in tagged else tagged[0] if tagged else None

    def _qos_columns(self, references: Mapping[int, Any]) -> dict[str, Any]:
        return {"type": HTB, "other_config": as_map(self._port.settings), "queues": as_map(references)}

    def _queue(self, number: int, qos: QosRow | None, changes: list[Operation]) -> list[str]:
        """Return a reference to a queue, which `changes` makes or mends if need be."""
        tag, settings = f"{self._tag}/{number}", self._port.queues[number]
        tagged = self._tagged.queues.get(tag, [])
        in_place = None if qos is None else qos.queues.get(number)
        if not tagged:
            name = f"{self._names}q{number}"
            columns = {"other_config": as_map(settings), "external_ids": as_map({TAG: tag})}
            changes.append(_insert("Queue", name, columns))
            return ["named-uuid", name]
        row = in_place if in_place in tagged else tagged[0]
        assert row is not None
        self.kept.add(row)
        queue = self._view.queues[row]
        if dict(queue.settings) != dict(settings) or queue.has_dscp:
            changes.append(_update("Queue", row, {"other_config": as_map(settings), "dscp": as_set([])}))
        return as_uuid(row)


def _removals(view: BridgeView, prefix: str, kept: Collection[str]) -> Iterator[Operation]:
    """Yield the removal of Beamer's rows for this bridge that are in nobody's use."""
    unused = {
        row
        for row, one in view.qos.items()
        if one.tag is not None and one.tag.startswith(prefix) and row not in kept and row not in view.qos_in_use
    }
    held = {queue for row, one in view.qos.items() if row not in unused and row not in kept for queue in one.queues.values()}
    yield from ({"op": "delete", "table": "QoS", "where": the_row(row)} for row in sorted(unused))
    for row, queue in sorted(view.queues.items()):
        if queue.tag is not None and queue.tag.startswith(prefix) and row not in kept and row not in held:
            yield {"op": "delete", "table": "Queue", "where": the_row(row)}


def _insert(table: str, name: str, columns: Mapping[str, Any]) -> Operation:
    return {"op": "insert", "table": table, "uuid-name": name, "row": dict(columns)}


def _update(table: str, row: str, columns: Mapping[str, Any]) -> Operation:
    return {"op": "update", "table": table, "where": the_row(row), "row": dict(columns)}


def _unless_changed(table: str, row: str, column: str, value: Any) -> Operation:
    where = the_row(row)
    return {
        "op": "wait",
        "timeout": 0,
        "table": table,
        "where": where,
        "columns": [column],
        "until": "==",
        "rows": [{column: value}],
    }
