"""Meters on real switches: what TCP gets through them, and that they are gone with their plan."""

import asyncio
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from controller.openflow import held_rules
from controller.openflow.rules import JobRules
from tests.netns.lab import FABRIC, Lab, Listener
from tests.netns.promptness import until_prompt
from tests.support.tiers import long

pytestmark = pytest.mark.netns

LEFT, RIGHT = FABRIC.hosts
THERE = LEFT.ip, 7001, RIGHT.ip, 7000
BACK = RIGHT.ip, 7000, LEFT.ip, 7001
EDGE = FABRIC.edge_of[LEFT.name]
TOLERANCE = 0.05
WINDOWS = 3
PAYLOAD_SHARE = 1448 / 1514  # of frames; meters count these
BUSY_S = 6.0
SETTLE_S = 1.5  # the bucket that was full at the start is empty, and TCP has found its rate

# Prints the bits per second that arrive, for as many seconds as each line on stdin says.
SINK = """
import select, socket, sys, threading, time
listener = socket.create_server(("0.0.0.0", 7000))
print("ready", flush=True)
connection, _ = listener.accept()
total = 0
def drain():
    global total
    while data := connection.recv(1 << 16):
        total += len(data)
threading.Thread(target=drain, daemon=True).start()
for line in sys.stdin:
    before, began = total, time.monotonic()
    time.sleep(float(line))
    print(8 * (total - before) / (time.monotonic() - began), flush=True)
"""
SOURCE = """
import socket, sys
connection = socket.socket()
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[2].encode())
connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
connection.bind(("", 7001))
connection.connect((sys.argv[1], 7000))
print("ready", flush=True)
while True:
    connection.sendall(bytes(1 << 16))
"""


def job(cap_bps: int | None) -> JobRules:
    return JobRules("study/job", 1, 1, 2, frozenset({THERE, BACK}), {} if cap_bps is None else {LEFT.name: cap_bps})


@pytest.fixture(autouse=True)
def _short_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_rules, "LINGER_S", held_rules.SETTLE_S)


class Traffic:
    """A connection from left to right that always has something to send."""

    def __init__(self, lab: Lab, stack: ExitStack, congestion: str) -> None:
        self._sink = self._start(lab, stack, RIGHT.name, SINK)
        self._start(lab, stack, LEFT.name, SOURCE, RIGHT.ip, congestion)

    @staticmethod
    def _start(lab: Lab, stack: ExitStack, host: str, code: str, *args: str) -> "subprocess.Popen[str]":
        process = lab.python(host, code, *args)
        stack.callback(lambda: (process.kill(), process.communicate()))
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        return process

    async def rate_bps(self, seconds: float = BUSY_S) -> float:
        """Return what arrives, in bits of frames per second, once TCP has found its rate."""
        await asyncio.sleep(SETTLE_S)
        assert self._sink.stdin
        assert self._sink.stdout
        self._sink.stdin.write(f"{seconds}\n")
        self._sink.stdin.flush()
        return float(await asyncio.to_thread(self._sink.stdout.readline)) / PAYLOAD_SHARE

    async def keeps_to(self, expected_bps: int) -> None:
        """Check that traffic never exceeds a rate, and comes to it in one of a few windows: a busy machine may stop it."""
        for _ in range(WINDOWS):
            found = await self.rate_bps()
            assert found <= expected_bps * (1 + TOLERANCE)
            if found >= expected_bps * (1 - TOLERANCE):
                return
        raise AssertionError(f"{found:.0f} bit/s instead of {expected_bps}")

    async def exceeds(self, bps: int) -> None:
        """Check that traffic comes to more than a rate in one of a few windows, since cubic grows slowly at first."""
        found = [await self.rate_bps(1.0)]
        while found[-1] <= bps and len(found) < WINDOWS:
            found.append(await self.rate_bps(1.0))
        assert found[-1] > bps, f"bit/s found: {found}"


def meters(lab: Lab) -> dict[int, int]:
    """Return the rates of the meters that the edge holds by id, kbit/s, as its own tool shows them."""
    out = lab.run("ovs-ofctl", "-O", "OpenFlow13", "dump-meters", EDGE)
    return {int(number): int(rate) for number, rate in re.findall(r"meter=(\d+).*?rate=(\d+)", out, re.DOTALL)}


async def until_no_meters(lab: Lab) -> None:
    async with asyncio.timeout(20):
        while meters(lab):
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("congestion", ["reno", *long("cubic")])
def test_tcp_gets_the_rate_of_its_meter_and_all_of_the_link_without(tmp_path: Path, congestion: str) -> None:
    async def scenario(lab: Lab) -> None:
        with ExitStack() as stack:
            async with Listener() as listener:
                await listener.install(1)
                traffic = Traffic(lab, stack, congestion)
                for generation, cap_bps in ((2, 20_000_000), (3, 4_000_000), (4, 10_000_000)):
                    await listener.install(generation, job(cap_bps))
                    assert list(meters(lab).values()) == [cap_bps // 1000]
                    await traffic.keeps_to(cap_bps)
                await listener.install(5, job(None))
                assert await traffic.rate_bps(1.0) > 2 * cap_bps, "at once, while the rules of before are still there"
                await until_no_meters(lab)
                await traffic.exceeds(2 * 20_000_000)

    until_prompt(tmp_path, scenario)


def test_a_meter_ends_with_its_job_and_a_restarted_driver_finds_the_others(lab: Lab) -> None:
    async def scenario() -> None:
        with ExitStack() as stack:
            async with Listener() as first:
                await first.install(1)
                traffic = Traffic(lab, stack, "cubic")
                await first.install(2, job(4_000_000))
            before = {EDGE: lab.flows(EDGE)}, meters(lab)
            async with Listener() as second:
                assert {e.changes for e in (await second.install(2, job(4_000_000))).values()} == {0}
                assert ({EDGE: lab.flows(EDGE)}, meters(lab)) == before
                await second.install(3)
                await until_no_meters(lab)
                await traffic.exceeds(2 * 4_000_000)

    lab.drive(scenario)
