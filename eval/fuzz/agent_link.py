"""A hostile controller against a real host agent, which has to go on with a good one that answers at the same address.

an opening      that is no WebSocket's, or another one's
frames          against the protocol, or assignments with parts replaced

The agent's kernel is in memory: what no host can carry out is refused before it gets there.
"""

import random
import socket
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from pydantic import TypeAdapter
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from beamer.network.protocol import Applied, Assignment, LocalWorker, Port, from_agent
from beamer.studies.model import Process
from eval.fuzz.findings import Findings
from eval.fuzz.json_values import hostile_json, to_json, value_of
from eval.fuzz.loops import PATIENCE_S, LoopThread
from eval.fuzz.mutations import mutated
from eval.fuzz.tally import Tally
from eval.fuzz.websocket_frames import TEXT, frame, hostile_frames
from hostagent import agent as agent_module
from hostagent.agent import Agent, AgentOptions
from hostagent.expiry.state import StateDirectory
from hostagent.link import controllers
from tests.support.agent_doubles import GuardInMemory, KernelInMemory

ASSIGNMENT: dict[str, Any] = TypeAdapter(Assignment).json_schema()
GOOD = Assignment(
    generation=1,
    ports=(Port(interface="data", rate_bps=10**9, classify="mark"),),
    workers=(LocalWorker(job="good/t", rank=0, process=Process(4242, 7), klass=1),),
    addresses=("10.77.0.1", "10.77.0.2"),
)
FIRST_GENERATION = 1 << 40  # Good assignments begin with this generation, which no hostile one has.
ANSWER_S = 0.03  # An answer is awaited so long after the last byte: it follows within a turn or two.
PAUSE_S = 0.001  # The agent pauses so long between attempts to connect, in place of its own pauses.
OPENINGS = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    b"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
    b"HTTP/1.1 503 Unavailable\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"HTTP/1.1 101 X\r\n" + b"X: y\r\n" * 5000,
    b"SSH-2.0-OpenSSH_9\r\n",
    b"\x16\x03\x01\x02\x00",
    b"",
)


def run(seconds: float, seed: int, most_inputs: int | None = None) -> Findings:
    """Try inputs for a time, or so many of them if that is sooner, and return what was found."""
    with in_memory() as folder, closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.settimeout(PATIENCE_S)
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}"
        agent = Agent(AgentOptions("h1", (url,)), StateDirectory(folder), random=random.Random(seed))
        with LoopThread(agent.run(), "beamer.hostagent") as loop:
            fuzzer = AgentLinkFuzzer(listener, loop, random.Random(seed))
            fuzzer.run(time.monotonic() + seconds, most_inputs)
            return fuzzer.tally.findings("agent-link", seed)


@contextmanager
def in_memory() -> Iterator[Path]:
    """Give agents a kernel in memory and short pauses; yield a directory for one's state."""
    with ExitStack() as stack:
        for module, name, other in (
            (agent_module, "Enforcer", KernelInMemory),
            (agent_module, "Guard", GuardInMemory),
            (controllers, "FIRST_PAUSE_S", PAUSE_S),
            (controllers, "LAST_PAUSE_S", PAUSE_S),
        ):
            stack.enter_context(mock.patch.object(module, name, other))
        yield Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="beamer-fuzz-")))


class AgentLinkFuzzer:
    """Is a hostile controller to each other connection of the agent, and a good one to the next."""

    def __init__(self, listener: socket.socket, loop: LoopThread, rng: random.Random) -> None:
        self.tally = Tally(loop.probe)
        self._listener = listener
        self._loop = loop
        self._rng = rng
        self._generation = FIRST_GENERATION

    def run(self, until: float, most_inputs: int | None) -> None:
        """Try inputs until a time, in monotonic seconds, or so many."""
        while self.tally.goes_on(until, most_inputs):
            sent = bytearray()
            try:
                refused = self._be_hostile(sent)
                disturbance = self._be_good()
            except TimeoutError:
                refused, disturbance = True, f"the agent did not connect within {PATIENCE_S:g} s"
            self.tally.add(refused, self._loop.disturbance() or disturbance, [sent[:10_000]])

    def _be_hostile(self, sent: bytearray) -> bool:
        """Take the agent's next connection and mistreat it; return whether the agent has ended it."""
        rng = self._rng
        with closing(self._accept()) as sock:
            protocol, opening = _opened(sock)
            if rng.random() < 0.15:
                sent += mutated(rng, rng.choice((*OPENINGS, opening)), OPENINGS)
            else:
                sent += opening
                messages = [self._assignment() for _ in range(2)]
                if rng.random() < 0.6:
                    sent += b"".join(frame(TEXT, message, masked=False) for message in messages)
                else:
                    sent += hostile_frames(rng, messages, masked=False)
            with suppress(OSError):
                sock.sendall(sent)
                return _is_refused(sock, protocol)
        return True

    def _be_good(self) -> str | None:
        """Give the agent an assignment; return what is wrong with its answer, None if nothing is."""
        self._generation += 1
        wanted = GOOD.model_copy(update={"generation": self._generation})
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with closing(self._accept()) as sock:
                protocol, opening = _opened(sock)
                try:
                    sock.sendall(opening + frame(TEXT, wanted.model_dump_json().encode(), masked=False))
                    return self._answer(sock, protocol, deadline)
                except OSError:  # The agent has given up the connection meanwhile.
                    continue
        return f"a good assignment was not applied within {PATIENCE_S:g} s"

    def _answer(self, sock: socket.socket, protocol: ServerProtocol, deadline: float) -> str | None:
        while time.monotonic() < deadline:
            for event in protocol.events_received():
                if not isinstance(event, Frame) or event.opcode is not Opcode.TEXT:
                    continue
                message = from_agent.validate_json(bytes(event.data))
                if isinstance(message, Applied) and message.generation == self._generation:
                    return message.error and f"a good assignment was not applied: {message.error}"
            data = sock.recv(65536)
            if not data:
                raise ConnectionError("the agent has closed the connection")
            protocol.receive_data(data)
        raise TimeoutError("no answer")

    def _assignment(self) -> bytes:
        """Return an assignment after its schema, or the good one, mostly with parts replaced."""
        rng = self._rng
        value: Any = GOOD.model_dump(mode="json") if rng.random() < 0.5 else value_of(rng, ASSIGNMENT, ASSIGNMENT["$defs"])
        data = to_json(hostile_json(rng, value) if rng.random() < 0.8 else value)
        return mutated(rng, data, (data,)) if rng.random() < 0.15 else data

    def _accept(self) -> socket.socket:
        sock, _ = self._listener.accept()
        sock.settimeout(PATIENCE_S)
        # The socket is closed at once, whatever was not read: the agent is to connect again.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return sock


def _opened(sock: socket.socket) -> tuple[ServerProtocol, bytes]:
    """Read the agent's request; return the connection's state and the answer to it, which is not sent."""
    protocol = ServerProtocol()
    while True:
        for event in protocol.events_received():
            if isinstance(event, Request):
                protocol.send_response(protocol.accept(event))
                return protocol, b"".join(protocol.data_to_send())
        data = sock.recv(65536)
        if not data:
            raise TimeoutError("the agent asked for nothing")
        protocol.receive_data(data)


def _is_refused(sock: socket.socket, protocol: ServerProtocol) -> bool:
    """Return whether the agent ends the connection, or answers that it cannot do something."""
    sock.settimeout(ANSWER_S)
    try:
        while data := sock.recv(65536):
            protocol.receive_data(data)
    except TimeoutError:
        frames = (event for event in protocol.events_received() if isinstance(event, Frame) and event.opcode is Opcode.TEXT)
        answers = [from_agent.validate_json(bytes(one.data)) for one in frames]
        return any(isinstance(answer, Applied) and answer.error is not None for answer in answers)
    return True
