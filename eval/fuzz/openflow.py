"""Hostile OpenFlow peers against a real `SwitchDriver` on loopback, beside one switch that has to be served all the time.

The driver runs in a thread of its own, so that a turn that never ends is found out instead of ending the run. Its inputs:

    a stream     frames of every type, most of them changed, behind a handshake or none
    a switch     that keeps to the protocol until one of its frames is changed
    a flood      of connections, echo requests, claims to be the good switch, entries; and one that never reads
"""

import asyncio
import random
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from beamer.network.fabric import Fabric
from beamer.testing.fabrics import two_spines
from controller.openflow.reports import SwitchConnected, SwitchEvent, SwitchInstalled, SwitchLost
from controller.openflow.rules import JobRules
from eval.fuzz.findings import Findings
from eval.fuzz.mutations import mutated
from eval.fuzz.tally import Tally
from eval.fuzz.turns import TurnProbe
from tests.support.openflow_samples import (
    IPV4,
    METADATA,
    NOT_READ,
    READ,
    features_reply,
    flow_entry,
    frame,
    hello,
    match,
    multipart,
)
from tests.support.openflow_switch import FakeSwitch, MeterMod, desired_rules, leading_driver

FABRIC = two_spines()
GOOD_NAME = FABRIC.switches[0].name
GOOD, FREE, UNKNOWN = 1, 2, 0xBAD  # datapath ids: of the good switch, of one that nobody else is, of none of the fabric
PATIENCE_S = 20.0  # The driver has so long for what it does in milliseconds.
STILL_CONNECTED_S = 0.1  # A drop is awaited so long after a changed frame: it comes within a turn or two.
REMOVAL_S = 2.0  # The driver has so long to remove the rules that it was told of.
MARK = b"still there?"
ECHO_REQUEST, MULTIPART_REQUEST, BARRIER_REQUEST, BARRIER_REPLY = 2, 18, 20, 21  # OpenFlow 1.3.5, 7.1.1
FLOW, METERS, REPLY_MORE = 1, 10, 1  # OpenFlow 1.3.5, 7.3.5
FRAMES = (*READ.values(), *NOT_READ.values())


def run(seconds: float, seed: int, most_inputs: int | None = None) -> Findings:
    """Try inputs for a time, or so many of them if that is sooner, and return what was found."""
    with DriverThread(FABRIC) as driver:
        return asyncio.run(OpenflowFuzzer(driver, seed).run(time.monotonic() + seconds, most_inputs))


class DriverThread:
    """A driver on an event loop in a thread of its own. faults: exceptions that nobody handled."""

    def __init__(self, fabric: Fabric) -> None:
        self.events: list[SwitchEvent] = []
        self.faults: list[str] = []
        self.probe = TurnProbe()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _, context: self.faults.append(repr(context.get("exception") or context)))
        self._driver = leading_driver(fabric, self.events.append, serve_again_s=0)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "DriverThread":
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._call(self._stop())
        except TimeoutError:
            return  # The driver's loop is caught in a turn, which the findings say.
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    @property
    def address(self) -> tuple[str, int]:
        """Where switches connect."""
        return self._driver.address

    def install(self, generation: int, jobs: list[JobRules]) -> None:
        """Have a generation installed, soon."""
        self._loop.call_soon_threadsafe(self._driver.install, generation, jobs)

    def _call(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _start(self) -> None:
        await self._driver.start()
        self._probing = asyncio.create_task(self.probe.run())

    async def _stop(self) -> None:
        self._probing.cancel()
        await self._driver.stop()


@dataclass
class HostileInput:
    """One input while it is tried. sent: by connection. refused: whether the driver ended any of them."""

    sent: list[bytearray] = field(default_factory=list)
    refused: bool = False

    def connection(self) -> bytearray:
        """Return where to note what one more connection sends."""
        self.sent.append(bytearray())
        return self.sent[-1]


class OpenflowFuzzer:
    """Tries one input after the other on a driver, and looks after each whether the good switch is served as before."""

    def __init__(self, driver: DriverThread, seed: int) -> None:
        self._driver = driver
        self._seed = seed
        self._rng = random.Random(seed)
        left, right = FABRIC.hosts[0], FABRIC.hosts[-1]
        connections = frozenset({(left.ip, 1, right.ip, 2), (right.ip, 2, left.ip, 1)})
        self._jobs = [JobRules("study/trial", 1, 0, 2, connections)]
        self._rules = desired_rules(FABRIC, self._jobs)
        self._good = FakeSwitch(GOOD)
        # It is set once a peer has said to be the free switch: what the good one holds for its hosts goes by what that can do.
        self._adapts = False
        self._generation = 0

    async def run(self, until: float, most_inputs: int | None) -> Findings:
        """Try inputs until a time, in monotonic seconds, or so many."""
        serving = asyncio.create_task(self._good.connect(*self._driver.address))
        tally = Tally(self._driver.probe)
        try:
            if what := await self._disturbance():
                tally.fail(what)
            while tally.goes_on(until, most_inputs):
                one = HostileInput()
                await self._rng.choices(*_SHARES)[0](self, one)
                disturbance = await self._disturbance()
                tally.add(one.refused, disturbance, one.sent)
        finally:
            serving.cancel()
            await asyncio.wait({serving})
        return tally.findings("openflow", self._seed)

    async def _disturbance(self) -> str | None:
        """Return in what the good switch is served worse than before the input, None if in nothing."""
        self._generation += 1
        self._driver.install(self._generation, self._jobs)
        deadline = time.monotonic() + PATIENCE_S
        while (done := self._installed()) is None:
            if time.monotonic() > deadline:
                return f"no generation was installed for {PATIENCE_S:g} s"
            await asyncio.sleep(0.001)
        lost = SwitchLost(GOOD_NAME) in self._driver.events
        self._adapts |= any(isinstance(event, SwitchConnected) and event.switch != GOOD_NAME for event in self._driver.events)
        self._driver.events.clear()
        if self._driver.faults:
            return f"not handled: {self._driver.faults[0]}"
        if lost:
            return "the good switch was lost"
        first = self._generation == 1
        wanted, held = (
            {rule.slot for rule in self._rules[GOOD_NAME]},
            {(table, match) for table, _, match in self._good.entries},
        )
        if not wanted <= held or (not self._adapts and (held != wanted or (done.changes and not first))):
            return "the good switch's rules have changed"
        return None

    def _installed(self) -> SwitchInstalled | None:
        """Return the good switch's acknowledgement of the latest generation."""
        found = (e for e in self._driver.events if isinstance(e, SwitchInstalled) and e.generation == self._generation)
        return next((event for event in found if event.switch == FABRIC.switches[0].name), None)

    async def _stream(self, one: HostileInput) -> None:
        rng = self._rng
        handshake = hello() + features_reply(rng.choice((FREE, FREE, FREE, GOOD, UNKNOWN)))
        data = rng.choice((b"", handshake, handshake, handshake))
        for _ in range(rng.choice((1, 1, 3, 10))):
            part = rng.choice(FRAMES)
            data += _changed(rng, part) if rng.random() < 0.8 else part
        await self._send(one, data)

    async def _send(self, one: HostileInput, data: bytes) -> None:
        """Send all of `data` and an echo request; the input is refused if that is not answered."""
        one.connection().extend(data)
        reader, writer = await asyncio.open_connection(*self._driver.address)
        heard = b""
        try:
            async with asyncio.timeout(PATIENCE_S):
                writer.write(data + frame(ECHO_REQUEST, MARK))
                writer.write_eof()
                while piece := await reader.read(1 << 16):
                    heard = heard[-len(MARK) :] + piece
                    if MARK in heard:
                        return
        except (OSError, TimeoutError):
            pass
        finally:
            writer.transport.abort()
        one.refused = True

    async def _switch(self, one: HostileInput) -> None:
        rng, countdown, changed = self._rng, self._rng.randrange(7), asyncio.Event()
        sent = one.connection()

        def distort(data: bytes) -> bytes:
            nonlocal countdown
            countdown -= 1
            if countdown == -1:
                data = _changed(rng, data)
                changed.set()
            sent.extend(data)
            return data

        switch = FakeSwitch(rng.choice((FREE, FREE, FREE, GOOD)), entries=dict(self._good.entries), distort=distort)
        switch.meters[0xB001] = MeterMod(0, 1, 0xB001, struct.pack("!HHIII", 1, 16, 1000, 300, 0))
        serving = asyncio.create_task(switch.connect(*self._driver.address))
        waiting = asyncio.create_task(changed.wait())
        await asyncio.wait({serving, waiting}, timeout=STILL_CONNECTED_S, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({serving}, timeout=STILL_CONNECTED_S)
        one.refused = serving.done()
        waiting.cancel()
        serving.cancel()
        await asyncio.wait({serving, waiting})

    async def _silence(self, one: HostileInput) -> None:
        streams = [await asyncio.open_connection(*self._driver.address) for _ in range(120)]
        await asyncio.sleep(STILL_CONNECTED_S)
        one.refused = any(reader.at_eof() for reader, _ in streams)
        for _, writer in streams:
            writer.transport.abort()

    async def _echoes(self, one: HostileInput) -> None:
        request = frame(ECHO_REQUEST, bytes(self._rng.choice((0, 100, 1000))))
        await self._send(one, hello() + features_reply(FREE) + request * 3000)

    async def _claims(self, one: HostileInput) -> None:
        claimants = [asyncio.create_task(FakeSwitch(GOOD).connect(*self._driver.address)) for _ in range(10)]
        done, others = await asyncio.wait(claimants, timeout=PATIENCE_S)
        one.refused = bool(done)
        for task in others:
            task.cancel()

    async def _entries(self, one: HostileInput) -> None:
        """Answer the first request by parts that are as large as can be, without an end or by rules that are to be removed."""
        sent = one.connection()
        reader, writer = await asyncio.open_connection(*self._driver.address)
        parts = self._rng.choice((1, 4, 20, 60))
        flags = self._rng.choice((0, REPLY_MORE))
        matched = self._rng.choice((match(), match(IPV4, METADATA)))
        most = 65000 // len(flow_entry(matched))
        try:
            async with asyncio.timeout(PATIENCE_S):
                writer.write(hello() + features_reply(FREE))
                xid = await _next_xid(reader, MULTIPART_REQUEST)
                for part in range(parts):
                    entries = (flow_entry(matched, priority=(part * most + i) & 0xFFFF) for i in range(most))
                    sent[:] = multipart(FLOW, *entries, xid=xid, flags=flags if part == parts - 1 else REPLY_MORE)
                    writer.write(sent)
                    await writer.drain()
                if flags == 0:  # The switch has no meters either.
                    xid = await _next_xid(reader, MULTIPART_REQUEST)
                    writer.write(multipart(METERS, xid=xid))
                    with suppress(TimeoutError):
                        async with asyncio.timeout(REMOVAL_S):
                            while True:
                                writer.write(frame(BARRIER_REPLY, xid=await _next_xid(reader, BARRIER_REQUEST)))
                await asyncio.sleep(STILL_CONNECTED_S)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            one.refused = True
        finally:
            writer.transport.abort()

    async def _deaf(self, one: HostileInput) -> None:
        """Send echo requests and read no answer."""
        data = hello() + features_reply(FREE) + frame(ECHO_REQUEST, bytes(60_000)) * 40
        one.connection().extend(data)
        _, writer = await asyncio.open_connection(*self._driver.address)
        writer.write(data)
        await asyncio.sleep(STILL_CONNECTED_S)
        writer.transport.abort()


def _changed(rng: random.Random, data: bytes) -> bytes:
    """Return a changed frame, most often with the length that it now has: otherwise its inside is never looked at."""
    data = mutated(rng, data, FRAMES)
    if len(data) >= 4 and rng.random() < 0.7:
        data = data[:2] + struct.pack("!H", min(len(data), 0xFFFF)) + data[4:]
    return data


async def _next_xid(reader: asyncio.StreamReader, kind: int) -> int:
    """Return the transaction of the next frame of a type."""
    while True:
        _, got, length, xid = struct.unpack("!BBHI", await reader.readexactly(8))
        await reader.readexactly(length - 8)
        if got == kind:
            return int(xid)


_KINDS: Mapping[Callable[[OpenflowFuzzer, HostileInput], Awaitable[None]], int] = {
    OpenflowFuzzer._stream: 60,
    OpenflowFuzzer._switch: 30,
    OpenflowFuzzer._silence: 1,
    OpenflowFuzzer._echoes: 1,
    OpenflowFuzzer._claims: 2,
    OpenflowFuzzer._entries: 2,
    OpenflowFuzzer._deaf: 1,
}
_SHARES = (tuple(_KINDS), tuple(_KINDS.values()))
