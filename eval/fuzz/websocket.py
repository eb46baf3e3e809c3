"""Hostile WebSocket frames against a served controller: what a library would not send, beside two good agents.

an opening   that is changed, or asks for what the controller does not know
frames       against the protocol, behind a good opening and mostly a good hello
"""

import asyncio
import random
import time

from beamer.network.protocol import Applied, Connections, Counters, Hello, Workers
from eval.fuzz.agents import CONNECTION, FREE, AgentFuzzer
from eval.fuzz.controller import PATIENCE_S, fuzzed_controller
from eval.fuzz.findings import Findings
from eval.fuzz.mutations import mutated
from eval.fuzz.websocket_frames import TEXT, frame, hostile_frames

OPENING = (
    "GET /v1/agents/{name} HTTP/1.1\r\nHost: c\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n{more}\r\n"
)
MORE = (
    "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=8\r\n",
    "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=99\r\n",
    "Sec-WebSocket-Protocol: \x01\r\n",
    "Sec-WebSocket-Version: 99\r\n",
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    f"X: {'y' * 20_000}\r\n",
)
STILL_CONNECTED_S = 0.05  # A refusal is awaited so long after the last byte: it follows within a turn or two.


def run(seconds: float, seed: int, most_inputs: int | None = None) -> Findings:
    """Try inputs for a time, or so many of them if that is sooner, and return what was found."""
    with fuzzed_controller() as fuzzed:
        asyncio.run(WebsocketFuzzer(fuzzed, random.Random(seed)).run(time.monotonic() + seconds, most_inputs))
        return fuzzed.tally.findings("websocket", seed)


class WebsocketFuzzer(AgentFuzzer):
    """Tries one connection after the other, of bytes."""

    async def _session(self) -> tuple[bool, bytes]:
        """Connect once and send some bytes; return whether the controller ended it, and what was sent."""
        rng = self._rng
        opening = OPENING.format(name=FREE, more=rng.choice(MORE) if rng.random() < 0.1 else "").encode()
        if rng.random() < 0.1:
            opening = mutated(rng, opening, (opening,))
        hello = frame(TEXT, Hello(agent=FREE, generation=0).model_dump_json().encode(), masked=True)
        said = (hello if rng.random() < 0.8 else b"") + hostile_frames(rng, [self._frame(), *MESSAGES], masked=True)
        reader, writer = await asyncio.open_connection(*self._fuzzed.served.address)
        try:
            async with asyncio.timeout(PATIENCE_S):
                refused = await _refuses(reader, writer, opening, said)
        except (OSError, TimeoutError):
            refused = True
        finally:
            writer.transport.abort()
        return refused, (opening + said)[:10_000]


async def _refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, opening: bytes, said: bytes) -> bool:
    """Send an opening, then frames; return whether the connection was ended."""
    writer.write(opening)
    try:
        async with asyncio.timeout(STILL_CONNECTED_S):
            while line := await reader.readline():
                if line == b"\r\n":
                    break
    except TimeoutError:
        pass  # The server waits for more of a changed opening.
    except ValueError:
        return True
    writer.write(said)
    try:
        async with asyncio.timeout(STILL_CONNECTED_S):
            await writer.drain()
            while await reader.read(65536):
                pass
    except TimeoutError:
        return False
    return True


MESSAGES = [
    message.model_dump_json().encode()
    for message in (
        Applied(generation=1, changes=0),
        Connections(connections=(CONNECTION,)),
        Workers(),
        Counters(at_s=1.0, ports=(), workers=()),
    )
]
