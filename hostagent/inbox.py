"""The assignments that an agent has received: the newest one is applied."""

import asyncio
from contextlib import suppress

from hostagent.desired import DesiredState


class Inbox:
    """The newest assignment received; it replaces one that was not taken yet."""

    def __init__(self) -> None:
        self._newest: DesiredState | None = None
        self._arrived = asyncio.Event()

    def put(self, wanted: DesiredState) -> None:
        """Take in an assignment."""
        self._newest = wanted
        self._arrived.set()

    def renew(self) -> None:
        """Have the assignment that was taken last applied again."""
        if self._newest is not None:
            self._arrived.set()

    async def take(self) -> DesiredState:
        """Wait for an assignment, and return it."""
        await self._arrived.wait()
        self._arrived.clear()
        assert self._newest is not None
        return self._newest

    async def arrival(self, patience_s: float) -> bool:
        """Wait for an assignment and leave it there; return whether one has arrived."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._arrived.wait()
        return self._arrived.is_set()
