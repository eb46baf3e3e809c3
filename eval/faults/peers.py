"""A switch and a host agent that exist in memory only and stay with the controller that leads, as the real ones do."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from beamer.network.connection import Connection
from beamer.network.protocol import Applied, Assignment, Connections, Hello
from controller.openflow.rules import RuleKey, Table
from eval.faults.base import PATIENCE_S
from eval.faults.site import ASK_S, FABRIC, POLL_S, ControllerProcess
from hostagent.desired import parse_message
from hostagent.link.controllers import ControllerConnection, ControllerLink
from tests.support.openflow_switch import FakeSwitch, FlowEntry, MeterMod

SWITCH, AGENT = FABRIC.switches[0], FABRIC.hosts[0].agent or ""
CONNECTION = Connection("steady/t", 0, FABRIC.hosts[0].ip, 4000, FABRIC.hosts[1].ip, 5000)
"""Of the trial that runs all the time, so that the switch has rules of a job."""
RECONNECT_S = 0.2  # A switch waits so long between attempts; Open vSwitch waits a second at first.
_DELETIONS = (3, 4)  # OFPFC_DELETE and OFPFC_DELETE_STRICT, OpenFlow 1.3.5, 7.3.4.1


class PeerTasks:
    """A peer whose tasks run for as long as the context lasts."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self.come()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.go()

    def come(self) -> None:
        """Start the tasks."""
        raise NotImplementedError

    async def go(self) -> None:
        """End the tasks, and the connections with them."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []


class FollowingSwitch(PeerTasks):
    """A switch that is connected to every one of some controllers that listens, and obeys the latest leader among them.

    entries: its flow entries, which outlive connections. deletions: of flow entries that it was asked for, ever, but those of
    the table of classes, whose rules another class replaces.
    """

    def __init__(self, controllers: Sequence[ControllerProcess]) -> None:
        super().__init__()
        self.entries: dict[RuleKey, FlowEntry] = {}
        self._meters: dict[int, MeterMod] = {}
        self._controllers = tuple(controllers)
        self._sessions: list[FakeSwitch] = []

    @property
    def deletions(self) -> int:
        """How many flow entries outside the table of classes it was asked to delete, over all connections."""
        mods = [mod for session in self._sessions for mod in session.mods]
        return sum(command in _DELETIONS and key[0] != Table.CLASS for command, key in mods)

    def come(self) -> None:
        """Connect, and again whenever a connection ends."""
        self._tasks = [asyncio.create_task(self._stay_connected(controller)) for controller in self._controllers]

    async def follows(self, controller: ControllerProcess) -> None:
        """Wait until a controller says that this switch has the rules of its latest plan. Raises `TimeoutError`."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                plan = await controller.plan()
                if plan["installed"]["switches"][SWITCH.name] and self.entries:
                    return
                await asyncio.sleep(ASK_S)

    async def _stay_connected(self, controller: ControllerProcess) -> None:
        while True:
            term = max((session.term for session in self._sessions), default=0)
            session = FakeSwitch(SWITCH.dpid, entries=self.entries, meters=self._meters, term=term)
            self._sessions.append(session)
            with suppress(OSError):
                await session.connect(*controller.openflow)
            if not session.mods:
                self._sessions.remove(session)
            await asyncio.sleep(RECONNECT_S)


class FollowingAgent(PeerTasks):
    """A host agent that finds the leader as the real one does, and reports a connection of the steady trial.

    generation: of the assignment that it was given last; 0: none since it came.
    """

    def __init__(self, controllers: Sequence[ControllerProcess]) -> None:
        super().__init__()
        self.generation = 0
        self._urls = [controller.url.replace("http", "ws", 1) for controller in controllers]

    def come(self) -> None:
        """Connect to one controller after the other until it is given an assignment."""
        self.generation = 0
        link = ControllerLink(AGENT, self._urls, None, random.Random(0))
        self._tasks = [asyncio.create_task(link.stay_connected(self._exchange))]

    async def is_assigned(self) -> None:
        """Wait until it has been given an assignment. Raises `TimeoutError`."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.generation:
                await asyncio.sleep(POLL_S)

    async def _exchange(self, connection: ControllerConnection) -> None:
        await connection.socket.send(Hello(agent=AGENT, generation=self.generation).model_dump_json())
        await connection.socket.send(Connections(connections=(CONNECTION,)).model_dump_json())
        async for text in connection.socket:
            message = parse_message(text, connection.protocol.version).message
            if not isinstance(message, Assignment):
                continue  # The message is what the controller says of itself.
            connection.accept()
            self.generation = message.generation
            await connection.socket.send(Applied(generation=self.generation, changes=0).model_dump_json())


def missing_rules(before: Mapping[RuleKey, FlowEntry], after: Mapping[RuleKey, FlowEntry], under_load: bool) -> int:
    """Return how many of the flow entries of before are gone; under load, without those that another class may replace."""
    return sum(not (under_load and key[0] == Table.CLASS) for key in before.keys() - after.keys())
