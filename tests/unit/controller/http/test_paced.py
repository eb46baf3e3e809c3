"""What one peer can make the controller do at a time: its share of the event loop and of the memory, and no more."""

import asyncio
import json
import socket
import struct
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from beamer.log_limit import LogLimit
from controller.http.connections import OpenConnections
from controller.http.paced import PIECE_BYTES, SLICE_S, PacedConnection
from controller.limits import Limits
from tests.support.served_controller import PATIENCE_S, Served, served
from topologies.single import build

FABRIC = build(hosts=2)
AGENT = FABRIC.hosts[0].agent
UPGRADE = (
    "Host: c\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)
CONTINUED, TEXT, PING = 0, 1, 9


class Recorder(asyncio.Protocol):
    """Takes down what it is given. takes_s: how long each piece keeps the loop."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.seen: list[Any] = []
        self._takes_s = takes_s

    def data_received(self, data: bytes) -> None:
        self.seen.append(bytes(data))
        time.sleep(self._takes_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self.seen.append("lost")


class Wire(asyncio.Transport):
    """A transport that leads nowhere. reading: whether it would read on. ends: of what was done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = True
        self.ends: list[str] = []

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return bool(self.ends)

    def close(self) -> None:
        self.ends.append("close")

    def abort(self) -> None:
        self.ends.append("abort")


def joined(recorder: Recorder, flush_s: float = 10.0, count: OpenConnections | None = None) -> tuple[PacedConnection, Wire]:
    paced, wire = (
        PacedConnection(lambda connection: recorder, count or OpenConnections(1, 1, LogLimit(1, 1.0)), flush_s),
        Wire(),
    )
    paced.connection_made(wire)
    return paced, wire


async def reads_on(wire: Wire) -> None:
    """Return when a transport reads, which is later where a slow machine has taken more than a slice for a piece."""
    while not wire.reading:
        await asyncio.sleep(0.01)


def play(scene: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await scene

    asyncio.run(limited())


def test_others_have_their_turn_between_the_pieces_of_what_has_come() -> None:
    async def scene() -> None:
        recorder = Recorder()
        paced, wire = joined(recorder)
        paced.data_received(bytes(3 * PIECE_BYTES + 1))
        assert not wire.reading, "what is kept is no more than one reading"
        while sum(one != "other" for one in recorder.seen) < 4:
            recorder.seen.append("other")  # several times where the machine was slow to take a piece
            await asyncio.sleep(0)
        assert [len(x) for x in recorder.seen if x != "other"] == [PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, 1]
        assert all("other" in neighbours for neighbours in pairwise(recorder.seen))
        await reads_on(wire)

    play(scene())


def test_a_peer_whose_input_is_costly_has_half_of_the_time() -> None:
    async def scene() -> None:
        recorder = Recorder(takes_s=SLICE_S)
        paced, wire = joined(recorder)
        began = time.monotonic()
        paced.data_received(bytes(8 * PIECE_BYTES))
        while not wire.reading:
            await asyncio.sleep(0)
        assert len(recorder.seen) == 8
        assert time.monotonic() - began >= 2 * 8 * SLICE_S - SLICE_S

    play(scene())


def test_nothing_is_read_while_the_peer_takes_nothing() -> None:
    async def scene() -> None:
        recorder = Recorder()
        paced, wire = joined(recorder)
        paced.pause_writing()
        assert not wire.reading
        paced.data_received(b"kept")
        assert not recorder.seen
        paced.resume_writing()
        await asyncio.sleep(0)
        assert recorder.seen == [b"kept"]
        await reads_on(wire)

    play(scene())


def test_what_a_protocol_does_not_want_yet_is_kept() -> None:
    async def scene() -> None:
        recorder = Recorder()
        paced, wire = joined(recorder)
        paced.pause_reading()
        paced.data_received(b"kept")
        await asyncio.sleep(0)
        assert (recorder.seen, wire.reading) == ([], False)
        paced.resume_reading()
        await asyncio.sleep(0)
        assert recorder.seen == [b"kept"]
        await reads_on(wire)

    play(scene())


def test_a_surplus_connection_is_closed_at_once_and_its_protocol_hears_nothing() -> None:
    async def scene() -> None:
        count = OpenConnections(1, 1, LogLimit(1, 1.0))
        counted, surplus = Recorder(), Recorder()
        paced, wire = joined(counted, count=count)
        late, closed = joined(surplus, count=count)
        assert (wire.ends, closed.ends) == ([], ["abort"])
        late.data_received(b"too late")
        late.connection_lost(None)
        assert (surplus.seen, count.total) == ([], 1)
        paced.uncount()
        assert count.total == 0
        paced.connection_lost(None)
        assert (counted.seen, count.total) == (["lost"], 0)

    play(scene())


def test_a_closed_connection_does_not_wait_for_ever() -> None:
    async def scene() -> None:
        recorder = Recorder()
        paced, wire = joined(recorder, flush_s=0.01)
        paced.data_received(bytes(2 * PIECE_BYTES))
        paced.close()
        while "abort" not in wire.ends:
            await asyncio.sleep(0)
        assert wire.ends == ["close", "abort"]
        assert len(recorder.seen) == 1, "what has come beyond is of no use"
        paced.connection_lost(None)
        assert recorder.seen[-1] == "lost"

    play(scene())


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Served]:
    with served(FABRIC, tmp_path / "journal.db", limits=Limits(request_s=1)) as controller:
        yield controller


def frame(kind: int, data: bytes = b"", last: bool = True) -> bytes:
    """Return a client's frame, masked by zeros (RFC 6455, section 5.2)."""
    size = bytes([0x80 | len(data)]) if len(data) < 126 else bytes([0x80 | 126]) + struct.pack("!H", len(data))
    return bytes([last << 7 | kind]) + size + bytes(4) + data


@contextmanager
def upgraded(controller: Served) -> Iterator[socket.socket]:
    """Give the connection of an agent that has said hello and has its assignment."""
    with socket.create_connection(controller.address, timeout=PATIENCE_S) as peer:
        peer.sendall(f"GET /v1/agents/{AGENT} HTTP/1.1\r\n{UPGRADE}\r\n".encode())
        receive_until(peer, b"\r\n\r\n")
        peer.sendall(frame(TEXT, json.dumps({"kind": "hello", "agent": AGENT, "generation": 0}).encode()))
        receive_until(peer, b"assignment")
        yield peer


def receive_until(peer: socket.socket, end: bytes) -> None:
    """Receive what comes before an end, and it."""
    received = b""
    while end not in received:
        data = peer.recv(65536)
        assert data, received
        received += data


def rest(peer: socket.socket) -> bytes:
    """Return what comes until the other side closes."""
    received = b""
    while data := peer.recv(65536):
        received += data
    return received


@pytest.mark.parametrize(
    "header",
    ["Content-Length: 5", "Transfer-Encoding: chunked", "A: " + "b" * 12_000, "\r\n".join(f"A{i}: b" for i in range(200))],
)
def test_an_upgrade_that_websockets_cannot_read_is_answered_and_ended(controller: Served, header: str) -> None:
    with socket.create_connection(controller.address, timeout=PATIENCE_S) as peer:
        peer.sendall(f"GET /v1/agents/{AGENT} HTTP/1.1\r\n{UPGRADE}{header}\r\n\r\n".encode())
        answer = rest(peer)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert "WebSocket" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


@pytest.mark.parametrize("data", [b"", b" "])
def test_a_message_in_endless_pieces_is_refused(controller: Served, data: bytes) -> None:
    with upgraded(controller) as peer:
        peer.sendall(frame(TEXT, b"{", last=False) + frame(CONTINUED, data, last=False) * 2000)
        assert struct.pack("!H", 1009) in rest(peer)
    assert controller.until(lambda runtime: not runtime.agents.connected)


def test_a_message_in_some_pieces_is_read(controller: Served) -> None:
    text = b'{"kind": "applied", "generation": 1, "changes": 0}'
    pieces = [frame(CONTINUED, text[i : i + 1], last=False) for i in range(1, len(text))]
    with upgraded(controller) as peer:
        peer.sendall(frame(TEXT, text[:1], last=False) + b"".join(pieces) + frame(CONTINUED))
        assert controller.until(lambda runtime: runtime.installation.agents[AGENT] == 1)


def test_an_agent_that_takes_no_answers_is_not_read_on(controller: Served) -> None:
    """Its pings would be answered into the memory; without reading it is given up as dead."""
    with upgraded(controller) as peer:
        peer.settimeout(1)
        sent, most = 0, 1 << 27
        with suppress(TimeoutError, ConnectionError):  # Either the frames are not read, or the connection has ended.
            while sent < most:
                sent += peer.send(frame(PING, bytes(125)) * 1000)
        assert sent < most
        assert controller.until(lambda runtime: not runtime.agents.connected)
