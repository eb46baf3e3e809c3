"""Keeps the queues of switches as they should be, by their databases: a task for each, so that none waits for another.

Connect, watch, compare, change, and wait until ovs-vswitchd says that it has taken the change over; then again whenever a row
changes. What the switch makes of it in the kernel, its OpenFlow statistics show (`controller.openflow.survey`).
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from beamer.errors import shortened
from beamer.log_limit import LogLimit
from beamer.network.fabric import Fabric, Switch
from beamer.network.observed_fabric import Mismatch
from beamer.network.ovsdb_address import parse_ovsdb_address
from controller.limited_log import LINES_AN_HOUR
from controller.ovsdb.connection import OvsdbConnection, RefusedTransactionError, connected
from controller.ovsdb.messages import Operation, OvsdbError, Row
from controller.ovsdb.queues import PortFault, QueueChange, WantedQueues, change_of_queues, wanted_queues
from controller.ovsdb.tables import COLUMNS, BridgeView, applied, bridge_view

FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 15.0  # Between attempts to connect, doubled each time.
GOOD_S = 30.0  # After a connection that lasted so long pauses begin anew.
# So long passes between two changes of a switch's queues; doubled where another program changes them again and again.
FIRST_MEND_S, LAST_MEND_S = 0.1, 10.0
COALESCE_S = 0.02  # What changes within so long is looked at once.
COMPARING_SHARE = 0.1  # Of a processor, comparing takes so much where rows change without end.
TAKEN_S = 5.0  # ovs-vswitchd has so long to take a change over before it is named.
_SHOWN = 300  # So many characters of a reason are shown.

log = structlog.get_logger("beamer-controller")


@dataclass(frozen=True)
class QueueState:
    """What is known of a switch's queues.

    read: whether they have been read back as they should be. fault: of the switch as a whole. ports: of single ones.
    datapath_type: `netdev` of the userspace datapath, empty or `system` of the kernel's.
    """

    read: bool = False
    fault: str | None = None
    ports: Mapping[int, PortFault] = field(default_factory=dict)
    datapath_type: str = ""


class QueueKeeper:
    """The queues of all switches of a fabric that have databases.

    queues: the number of classes. tls: shows the controller's certificate; None where no address asks for it. on_change: called
    on the loop where something else is known than before.
    """

    def __init__(self, fabric: Fabric, queues: int, tls: ssl.SSLContext | None, on_change: Callable[[], None]) -> None:
        self._switches = {one.name: one for one in fabric.switches if one.ovsdb is not None}
        self._wanted = {name: wanted_queues(fabric, name, queues) for name in self._switches}
        self._tls = tls
        self._on_change = on_change
        self._states = dict.fromkeys(self._switches, QueueState())
        self._limit = LogLimit(LINES_AN_HOUR, 3600.0)

    @property
    def unread(self) -> frozenset[str]:
        """The switches whose queues have not been read back."""
        return frozenset(name for name, state in self._states.items() if not state.read)

    @property
    def faults(self) -> tuple[Mismatch, ...]:
        """Why switches and ports do not get their queues; a switch as a whole has the port 0."""
        found = []
        for name, state in self._states.items():
            if state.fault is not None:
                found.append(Mismatch("no database", name, 0, state.fault))
            found += [Mismatch(one.kind, name, port, f"{name} port {port} {one.text}") for port, one in state.ports.items()]
        return tuple(found)

    @property
    def datapath_types(self) -> Mapping[str, str]:
        """The type of datapath that each switch has, as far as that is known."""
        return {name: state.datapath_type for name, state in self._states.items()}

    async def run(self) -> None:
        """Keep queues until cancelled; they stay."""
        await asyncio.gather(*(self._keep(switch) for switch in self._switches.values()))

    async def _keep(self, switch: Switch) -> None:
        loop, pause_s = asyncio.get_running_loop(), FIRST_PAUSE_S
        assert switch.ovsdb is not None
        address = parse_ovsdb_address(switch.ovsdb, f"fabric.switches[{switch.name}].ovsdb")
        while True:
            began_s = loop.time()
            try:
                async with connected(address, switch.dpid, self._tls) as database:
                    await self._serve(switch, database)
            except OvsdbError as error:
                reason = shortened(str(error), _SHOWN)
                self._set(switch, QueueState(fault=f"the database of {switch.name} at {switch.ovsdb} is of no use: {reason}"))
            except Exception as error:  # noqa: BLE001  A fault must not end the watch.
                loop.call_exception_handler({"message": f"a fault while queues of {switch.name} were kept", "exception": error})
                self._set(switch, QueueState(fault=f"the queues of {switch.name} are not kept: {type(error).__name__}"))
            if loop.time() - began_s > GOOD_S:
                pause_s = FIRST_PAUSE_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    async def _serve(self, switch: Switch, database: OvsdbConnection) -> None:
        """Keep the queues of a switch whose database is connected. Raises `OvsdbError`."""
        loop, pace = asyncio.get_running_loop(), _Pace()
        await database.watch(COLUMNS)
        bridge_view(database.rows, switch.dpid)  # A database without this switch is not written to.
        # It is asked for once without a change: that ovs-vswitchd answers shows that it runs, and has taken the rows over.
        asked, asked_s = await ask(database, []), loop.time()
        compared, compared_s = -1, 0.0
        while True:
            database.changed.clear()
            if database.revision != compared:
                compared, began_s = database.revision, loop.time()
                rows = {table: dict(of_table) for table, of_table in database.rows.items()}
                view, change = await asyncio.to_thread(_compared, rows, switch.dpid, self._wanted[switch.name])
                compared_s = loop.time() - began_s
            taken = applied(database.rows) >= asked
            if not change.operations:
                late = not taken and loop.time() - asked_s >= TAKEN_S
                fault = (
                    f"{switch.name} has its queues in its database alone: ovs-vswitchd does not take them over"
                    if late
                    else None
                )
                self._set(switch, QueueState(taken and not change.faults, fault, change.faults, view.datapath_type))
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if taken or late else asked_s + TAKEN_S - loop.time()):
                        await database.changed.wait()
                await asyncio.sleep(max(COALESCE_S, compared_s / COMPARING_SHARE))
                continue
            self._set(switch, QueueState(False, self._states[switch.name].fault, change.faults, view.datapath_type))
            try:
                asked, asked_s = await ask(database, change.operations), loop.time()
            except RefusedTransactionError as error:
                if not error.outdated:
                    raise
            else:
                self._set(switch, QueueState(False, None, change.faults, view.datapath_type))
                self._log(switch, change.made, change.mended)
            await asyncio.sleep(pace.next_s(loop.time()))

    def _log(self, switch: Switch, made: tuple[int, ...], mended: tuple[int, ...]) -> None:
        if made and self._limit.take((switch.name, "made")):
            log.info("queues made", switch=switch.name, ports=list(made))
        if mended and self._limit.take((switch.name, "mended")):
            log.warning("queues were otherwise than Beamer makes them, and are mended", switch=switch.name, ports=list(mended))

    def _set(self, switch: Switch, state: QueueState) -> None:
        if state != self._states[switch.name]:
            self._states[switch.name] = state
            self._on_change()


class _Pace:
    """How long to wait before the next change: longer where changes follow each other."""

    def __init__(self) -> None:
        self._last_s = -LAST_MEND_S
        self._pause_s = FIRST_MEND_S

    def next_s(self, now: float) -> float:
        """Return the seconds to wait after a change that is made now."""
        follows = now - self._last_s < 2 * self._pause_s + FIRST_MEND_S
        self._last_s, self._pause_s = now, min(2 * self._pause_s, LAST_MEND_S) if follows else FIRST_MEND_S
        return self._pause_s


def _compared(
    rows: Mapping[str, Mapping[str, Row]], dpid: int, wanted: tuple[WantedQueues, ...]
) -> tuple[BridgeView, QueueChange]:
    """Return a switch as its database has it, and what has to change. Raises `OvsdbError`."""
    view = bridge_view(rows, dpid)
    return view, change_of_queues(view, wanted, dpid)


async def ask(database: OvsdbConnection, operations: list[Operation] | tuple[Operation, ...]) -> int:
    """Carry operations out; return the number of the configuration that ovs-vswitchd then has to take over."""
    raised = {"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["next_cfg", "+=", 1]]}
    read = {"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["next_cfg"]}
    results = await database.transact([*operations, raised, read])
    try:
        return int(results[len(operations) + 1]["rows"][0]["next_cfg"])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise OvsdbError("it does not say which configuration it has") from error
