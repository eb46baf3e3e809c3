"""Removes what Beamer has made in the database of a switch: its queues, and its ports' references to them."""

import asyncio
import ssl
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

from beamer.network.ovsdb_address import OvsdbAddress
from controller.ovsdb.connection import ANSWER_S, OvsdbConnection, RefusedTransactionError, connected
from controller.ovsdb.keeper import TAKEN_S, ask
from controller.ovsdb.messages import Operation, OvsdbError, the_row
from controller.ovsdb.queues import change_of_queues
from controller.ovsdb.tables import COLUMNS, applied, bridge_view, datapath_ids

AGAIN_S = 1.0
"""For so many seconds it is watched whether somebody makes the queues again, which a controller does at once."""
MOST_TRIES = 20  # Each change of another program may refuse one transaction.


@dataclass(frozen=True)
class RemovedQueues:
    """What was removed from a switch's database.

    ports: by name, whose queues were removed. rows: of QoS and Queue. left: rows of Beamer's that stay, as others refer to
    them. strays: rows of Beamer's for datapath ids that no bridge has. again: whether somebody makes the queues again. taken:
    whether ovs-vswitchd has taken the database over as it is now.
    """

    ports: tuple[str, ...] = ()
    rows: int = 0
    left: int = 0
    strays: int = 0
    again: bool = False
    taken: bool = True


async def remove_queues(address: OvsdbAddress, dpid: int, tls: ssl.SSLContext | None) -> RemovedQueues:
    """Remove Beamer's queues from the switch of a datapath id, and no others. Raises `OvsdbError`.

    tls: shows the controller's certificate. What somebody else refers to stays. It may be done again.
    """
    async with connected(address, dpid, tls) as database:
        await database.watch(COLUMNS)
        removal = _Removal(database, dpid)
        again = not await removal.carried_out()
        if not again:
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    while not (again := bool(removal.operations())):
                        database.changed.clear()
                        await database.changed.wait()
        taken = await _is_taken(database)
        return RemovedQueues(tuple(sorted(removal.cleared)), removal.rows, removal.left(), removal.strays(), again, taken)


async def _is_taken(database: OvsdbConnection) -> bool:
    """Return whether ovs-vswitchd takes the database over in time."""
    asked = await ask(database, [])
    with suppress(TimeoutError):
        async with asyncio.timeout(TAKEN_S):
            while applied(database.rows) < asked:
                database.changed.clear()
                await database.changed.wait()
    return applied(database.rows) >= asked


class _Removal:
    """The removal from one switch. cleared: how often each port's reference was, by its name. rows: that were removed."""

    def __init__(self, database: OvsdbConnection, dpid: int) -> None:
        self.cleared: Counter[str] = Counter()
        self.rows = 0
        self._database = database
        self._dpid = dpid

    def operations(self) -> list[Operation]:
        """Return what is to be done: ports' references first, then the rows that nothing refers to any more."""
        return list(change_of_queues(bridge_view(self._database.rows, self._dpid), (), self._dpid).operations)

    def left(self) -> int:
        """Return how many rows are marked as made for this switch."""
        return self._made_for()[f"{self._dpid:016x}"]

    def strays(self) -> int:
        """Return how many rows are marked as made for datapath ids that no bridge has, such as a bridge's earlier one."""
        return sum(count for dpid, count in self._made_for().items() if dpid not in datapath_ids(self._database.rows))

    def _made_for(self) -> Counter[str]:
        """Return how many rows are marked as Beamer's, by the datapath id of their mark."""
        view = bridge_view(self._database.rows, self._dpid)
        tags = [*(one.tag for one in view.qos.values()), *(one.tag for one in view.queues.values())]
        return Counter(tag.partition("/")[0] for tag in tags if tag is not None)

    async def carried_out(self) -> bool:
        """Remove until nothing is left to remove; return False where somebody makes it again."""
        for _ in range(MOST_TRIES):
            operations = self.operations()
            if not operations:
                return True
            if max(self.cleared.values(), default=0) > 1:
                return False
            names = self._cleared_by(operations)
            self._database.changed.clear()
            try:
                await self._database.transact(operations)
            except RefusedTransactionError as error:  # Another program was faster.
                if not error.outdated:
                    raise
            else:
                self.cleared.update(names)
                self.rows += sum(one["op"] == "delete" for one in operations)
            await self._followed(operations)
        raise OvsdbError(f"other programs have changed it {MOST_TRIES} times meanwhile: try again")

    def _cleared_by(self, operations: list[Operation]) -> list[str]:
        """Return the names of the ports whose references are cleared."""
        cleared = [one["where"] for one in operations if (one["op"], one["table"]) == ("update", "Port")]
        return [str(port["name"]) for row, port in self._database.rows["Port"].items() if the_row(row) in cleared]

    async def _followed(self, operations: list[Operation]) -> None:
        """Wait until the rows that are watched are as the database has them after a transaction."""
        try:
            async with asyncio.timeout(ANSWER_S):
                while self.operations() == operations:
                    await self._database.changed.wait()
                    self._database.changed.clear()
        except TimeoutError:
            raise OvsdbError(f"it has not said for {ANSWER_S:.0f} s how its rows are") from None
