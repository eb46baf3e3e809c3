"""How an agent's connection begins, whoever serves it: what is taken of its reports, and its hello."""

import asyncio
from typing import Any

from beamer.errors import InputError
from beamer.network.protocol import Hello, ReportLimits
from controller.limits import Limits
from controller.peer_session import HELLO_S, PeerSession


def report_limits(limits: Limits) -> ReportLimits:
    """Return what is taken of agents' reports, as an agent is told."""
    return ReportLimits(
        message_bytes=limits.message_bytes,
        connections=limits.agent_connections,
        leases=limits.agent_leases,
        ports=limits.agent_ports,
        classes=limits.agent_classes,
    )


async def receive_hello(name: str, session: PeerSession[Any]) -> Hello:
    """Return the first message of an agent's connection. Raises `InputError` where that is no hello of the agent `name`."""
    try:
        async with asyncio.timeout(HELLO_S):
            hello = await session.receive()
    except TimeoutError:
        raise InputError("hello", None, f"a hello of agent {name!r} within {HELLO_S:g} s") from None
    if not isinstance(hello, Hello) or hello.agent != name:
        got = f"a hello of {hello.agent!r}" if isinstance(hello, Hello) else hello.kind
        raise InputError("hello", got, f"a hello of agent {name!r} as the first message")
    return hello
