"""A proxy before a database that can fall silent: it takes what is sent and hands nothing on, and ends no connection.

So does a firewall that drops packets, or a switch without power, but for the acknowledgements of TCP, which still come: what is
noticed here has to be noticed without the kernel's help.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.support.postgresql import socket_of

_PIECE = 65536


class Blackhole:
    """A proxy on loopback. url: of the database behind it, as SQLAlchemy writes it."""

    def __init__(self, url: str) -> None:
        self._behind = url
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    def swallow(self) -> None:
        """Hand nothing on from now on, also of connections that are made later."""
        self._open.clear()

    def hand_on(self) -> None:
        """Hand everything on again."""
        self._open.set()

    async def serve(self) -> asyncio.Server:
        """Listen."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = socket_of(self._behind).through(*server.sockets[0].getsockname()[:2])
        return server

    async def stop(self) -> None:
        """End every connection."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._open.wait()
            behind_reader, behind_writer = await asyncio.open_unix_connection(socket_of(self._behind).path)
            try:
                async with asyncio.TaskGroup() as ways:
                    ways.create_task(self._hand_on(reader, behind_writer))
                    ways.create_task(self._hand_on(behind_reader, writer))
            finally:
                behind_writer.close()
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(_PIECE):
            await self._open.wait()
            writer.write(piece)
            await writer.drain()
        await self._open.wait()
        raise ConnectionError("the other end has closed")


@asynccontextmanager
async def blackhole(url: str) -> AsyncIterator[Blackhole]:
    """Run a proxy before a database of `tests.support.postgresql` until the context ends."""
    made = Blackhole(url)
    server = await made.serve()
    try:
        yield made
    finally:
        server.close()
        with suppress(asyncio.CancelledError):
            await made.stop()
