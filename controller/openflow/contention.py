"""Which of the connections that say to be one switch is served: one at a time, and of those that wait the newest that is alive.

    nobody is served or waits  -> served at once
    otherwise                  -> has to answer an echo request, and waits
    one is served              -> where that one answers, all that wait are turned away; where it does not, it is given up
    nobody is served any more  -> the newest that waits is served, `serve_again_s` after the one before began

Open vSwitch connects anew at each change of its controllers, and anybody who reaches the port may say to be a switch. A
connection is read while it waits, and leaves when it ends: peers that come and go take no turn from one that stays.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from controller.openflow.channel import Channel, DuplicateError, ExcessError, UnansweredError

# So many connections of a switch may wait; a switch has one, and the one before while that is not found dead.
MAX_CONTENDING = 16


@dataclass(eq=False)
class _Contender:
    """A connection that is served or waits. task: that ends with it. alive: whether it has answered while it waits."""

    task: asyncio.Task[None]
    channel: Channel
    turn: asyncio.Future[None]
    alive: bool = False


class Contention:
    """The connections that say to be one switch.

    switch: its name. serve_again_s: the least time between the beginnings of two services. alive_s: for an answer to an echo
    request.
    """

    def __init__(self, switch: str, serve_again_s: float, alive_s: float) -> None:
        self._switch = switch
        self._serve_again_s = serve_again_s
        self._alive_s = alive_s
        self._may_serve_at = 0.0
        self._served: _Contender | None = None
        self._waiting: list[_Contender] = []  # oldest first
        self._deciding: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def turn(self, channel: Channel, task: asyncio.Task[None]) -> AsyncIterator[None]:
        """Wait until a connection is the one that is served, which it is until the block ends.

        task: the connection's, which is cancelled where it is given up. `Channel.serve` has to run meanwhile, and its end has
        to cancel the wait. Raises `ChannelError` for one that does not answer, and where others are preferred.
        """
        loop = asyncio.get_running_loop()
        me = _Contender(task, channel, loop.create_future())
        try:
            if self._served is None and not self._waiting and loop.time() >= self._may_serve_at:
                self._serve(me)
            else:
                await self._wait(me)
            yield
        finally:
            if me.turn.done() and not me.turn.cancelled():
                me.turn.exception()  # The error may have come when the wait had just been cancelled.
            if self._served is me:
                self._served = None
                self._decide()

    async def stop(self) -> None:
        """Decide nothing further."""
        if self._deciding is not None:
            self._deciding.cancel()
            await asyncio.wait({self._deciding})

    async def _wait(self, me: _Contender) -> None:
        self._make_room()
        self._waiting.append(me)
        try:
            answering = asyncio.create_task(me.channel.is_alive(self._alive_s))
            awaited: set[asyncio.Future[Any]] = {answering, me.turn}
            try:
                await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            finally:
                answering.cancel()
            if not me.turn.done():
                if not answering.result():
                    raise UnansweredError(f"it does not answer within {self._alive_s:g} s, and others say to be {self._switch}")
                me.alive = True
                self._decide()
            await me.turn
        finally:
            self._waiting.remove(me)

    def _make_room(self) -> None:
        """Turn away the oldest that waits, of those that have not answered if there are any."""
        waiting = [one for one in self._waiting if not one.turn.done()]
        if len(waiting) >= MAX_CONTENDING:
            oldest = min(waiting, key=lambda one: one.alive)
            oldest.turn.set_exception(ExcessError(f"more than {MAX_CONTENDING} connections say to be {self._switch}"))

    def _decide(self) -> None:
        """Have the next one served, unless that is being decided."""
        if self._waiting and (self._deciding is None or self._deciding.done()):
            self._deciding = asyncio.create_task(self._decide_until_nobody_waits())

    async def _decide_until_nobody_waits(self) -> None:
        loop = asyncio.get_running_loop()
        while alive := self._alive():
            served = self._served
            if served is None:
                await asyncio.sleep(self._may_serve_at - loop.time())
                if self._served is None and (alive := self._alive()):
                    self._serve(alive[-1])
                continue
            answers = await served.channel.is_alive(self._alive_s)
            if self._served is not served:
                continue
            if answers:
                for one in alive:
                    if not one.turn.done():
                        one.turn.set_exception(DuplicateError(f"{self._switch} is connected already, and answers there"))
            else:
                served.task.cancel()
                await asyncio.wait({served.task})

    def _alive(self) -> list[_Contender]:
        return [one for one in self._waiting if one.alive and not one.turn.done()]

    def _serve(self, one: _Contender) -> None:
        self._served = one
        self._may_serve_at = asyncio.get_running_loop().time() + self._serve_again_s
        one.turn.set_result(None)
