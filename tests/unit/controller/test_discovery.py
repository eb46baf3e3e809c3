"""When the search for a network ends: once nothing more is found, or after its longest time, which is told."""

import asyncio
import os
import signal
import socket
import time

import pytest

from controller.discovery import DiscoveryOptions, DiscoverySearch, discover
from controller.identity.credentials import NO_CREDENTIALS
from tests.support import openflow_samples as samples
from tests.support.openflow_switch import FakeSwitch


def search(quiet_s: float, longest_s: float) -> tuple[DiscoverySearch, float]:
    """Return what is found of a switch that connects, and the seconds that it took."""

    async def run() -> DiscoverySearch:
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = free.getsockname()[:2]
        switch = FakeSwitch(7, ports=(samples.port(1, "p1"),))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            searching = asyncio.create_task(
                discover(DiscoveryOptions(address, quiet_s, longest_s, 10, NO_CREDENTIALS), listener)
            )
            connecting = asyncio.create_task(connected(switch, *address))
            found = await searching
            connecting.cancel()
            return found

    began = time.monotonic()
    return asyncio.run(run()), time.monotonic() - began


async def connected(switch: FakeSwitch, host: str, port: int) -> None:
    while True:
        try:
            await switch.connect(host, port)
        except OSError:
            await asyncio.sleep(0.02)


def test_it_ends_once_nothing_more_is_found() -> None:
    found, took_s = search(quiet_s=4.0, longest_s=60.0)
    assert found.complete
    assert {dpid: sorted(one.ports) for dpid, one in found.seen.switches.items()} == {7: [1]}
    assert 4.0 <= took_s < 60.0


def test_it_ends_after_its_longest_time_and_says_so() -> None:
    found, _ = search(quiet_s=60.0, longest_s=1.0)
    assert not found.complete


def test_a_signal_to_end_takes_the_rules_off_the_switches() -> None:
    async def run() -> FakeSwitch:
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = free.getsockname()[:2]
        switch = FakeSwitch(7, ports=(samples.port(1, "p1"),))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            options = DiscoveryOptions(address, 60.0, 60.0, 10, NO_CREDENTIALS)
            searching = asyncio.create_task(discover(options, listener))
            connecting = asyncio.create_task(connected(switch, *address))
            while not switch.entries:
                await asyncio.sleep(0.02)
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(asyncio.CancelledError):
                await searching
            connecting.cancel()
        return switch

    assert not asyncio.run(run()).entries
