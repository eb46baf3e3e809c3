"""Switches that connect by mutual TLS: each may speak for the datapath id of its certificate, and nobody else connects."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from beamer.errors import InputError
from beamer.testing.fabrics import two_spines
from controller.identity.authority import Authority
from controller.identity.certificates import CONTROLLER_URI, agent_uri, mutual_tls, switch_uri
from controller.openflow import driver, session
from controller.openflow.driver import SwitchDriver
from controller.openflow.reports import SwitchLost
from tests.support import openflow_samples as samples
from tests.support.openflow_switch import FakeSwitch, leading_driver
from tests.support.served_controller import made_authority, signed
from tests.unit.controller.openflow.test_driver import FABRIC, Bench

FABRIC_OF_FOUR = two_spines()


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "FLUSH_S", 0.001)


class Keys:
    """Contexts signed by one authority."""

    def __init__(self, folder: Path) -> None:
        self.authority = made_authority(folder)

    def server(self) -> ssl.SSLContext:
        files = signed(self.authority, "controller", CONTROLLER_URI, dns="localhost")
        return mutual_tls(ssl.Purpose.CLIENT_AUTH, files.certificate, files.key, self.authority.certificate)

    def client(self, *uris: str, trusting: Authority | None = None) -> ssl.SSLContext:
        files = signed(self.authority, "peer", *uris)
        trusted = (trusting or self.authority).certificate
        return mutual_tls(ssl.Purpose.SERVER_AUTH, files.certificate, files.key, trusted)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "fabric")


@asynccontextmanager
async def secured(keys: Keys) -> AsyncIterator[Bench]:
    made = Bench(FABRIC_OF_FOUR)
    made.driver = leading_driver(FABRIC_OF_FOUR, made.events.append, tls=keys.server(), serve_again_s=0.01)
    made.driver.install(1, [])
    await made.driver.start()
    try:
        yield made
    finally:
        async with asyncio.timeout(made.patience_s):
            await made.driver.stop()
            await asyncio.gather(*made.connections, return_exceptions=True)


def connect(made: Bench, switch: FakeSwitch, tls: ssl.SSLContext | None) -> "asyncio.Task[None]":
    task = asyncio.create_task(switch.connect(*made.driver.address, tls=tls))
    made.connections.append(task)
    return task


def test_switches_are_served_by_tls(keys: Keys) -> None:
    async def scenario() -> None:
        async with secured(keys) as b:
            switches = [FakeSwitch(dpid) for dpid in (1, 2, 3, 4)]
            for switch in switches:
                connect(b, switch, keys.client(switch_uri(switch.dpid)))
            await b.installed(1, times=4)
            assert all(switch.entries for switch in switches)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("dpid", "uris", "reason"),
    [
        (1, [switch_uri(2)], "0000000000000001: its certificate is for 0000000000000002"),
        (2, [switch_uri(1)], "0000000000000002: its certificate is for 0000000000000001"),
        (0xBAD, [switch_uri(0xBAD)], "the topology names no such switch"),
        (1, [agent_uri("h1")], "spiffe://beamer/agent/h1"),
        (1, [CONTROLLER_URI], "spiffe://beamer/controller"),
        (1, [], "exactly one URI"),
        (1, [switch_uri(1), switch_uri(2)], "exactly one URI"),
    ],
)
def test_a_switch_with_the_certificate_of_another_is_refused_and_logged_once(
    dpid: int, uris: Sequence[str], reason: str, keys: Keys, capfd: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        async with secured(keys) as b:
            switch = FakeSwitch(1)
            connect(b, switch, keys.client(switch_uri(1)))
            await b.installed(1)
            before = len(switch.mods)
            for _ in range(5):
                impostor = FakeSwitch(dpid)
                async with asyncio.timeout(10):
                    await connect(b, impostor, keys.client(*uris))
                assert impostor.mods == []
            b.driver.install(2, [])
            await b.installed(2)
            assert SwitchLost("l1") not in b.events
            assert len(switch.mods) == before

    asyncio.run(scenario())
    assert capfd.readouterr().out.count(reason) == 1


def test_without_a_certificate_of_the_authority_nothing_is_said(keys: Keys, tmp_path: Path) -> None:
    stranger = Keys(tmp_path / "elsewhere").client(switch_uri(1), trusting=keys.authority)
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nobody.check_hostname = False
    nobody.load_verify_locations(keys.authority.certificate)
    old = keys.client(switch_uri(1))
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2

    async def scenario() -> None:
        async with secured(keys) as b:
            for tls in (stranger, nobody, None):
                switch = FakeSwitch(1)
                task = connect(b, switch, tls)
                await asyncio.wait({task}, timeout=10)
                assert task.done()
                assert (switch.entries, b.events) == ({}, [])
            connect(b, FakeSwitch(1), old)
            await b.installed(1)

    asyncio.run(scenario())


def test_a_peer_that_says_nothing_gets_no_tls_either(keys: Keys) -> None:
    most = driver.UNSERVED + 2 * len(FABRIC_OF_FOUR.switches)

    async def scenario() -> None:
        async with secured(keys) as b:
            silent = [await asyncio.open_connection(*b.driver.address) for _ in range(most + 50)]
            await b.until(lambda: len(b.driver._connections) == most)
            connect(b, FakeSwitch(1), keys.client(switch_uri(1)))
            await b.installed(1)
            for _, writer in silent:
                writer.close()

    asyncio.run(scenario())


def test_what_is_no_tls_at_all_ends_quietly(keys: Keys, capfd: pytest.CaptureFixture[str]) -> None:
    faults: list[object] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        async with secured(keys) as b:
            for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(99), samples.hello(), b"\x16", b""):
                for _ in range(5):
                    reader, writer = await asyncio.open_connection(*b.driver.address)
                    writer.write(data)
                    writer.write_eof()
                    async with asyncio.timeout(10):
                        with suppress(ConnectionError):
                            await reader.read()
                    writer.transport.abort()
            connect(b, FakeSwitch(1), keys.client(switch_uri(1)))
            await b.installed(1)

    asyncio.run(scenario())
    assert faults == []
    assert capfd.readouterr().out.count("no mutual TLS") == 1


def test_a_switch_that_goes_away_ends_quietly(keys: Keys) -> None:
    faults: list[object] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        async with secured(keys) as b:
            peer = connect(b, FakeSwitch(1), keys.client(switch_uri(1)))
            await b.installed(1)
            peer.cancel()
            await asyncio.wait([peer])
            await b.until(lambda: not b.driver._connections)

    asyncio.run(scenario())
    assert faults == []


def test_a_context_that_lets_anybody_in_is_refused() -> None:
    with pytest.raises(InputError, match="verify_mode"):
        SwitchDriver(FABRIC, "127.0.0.1", 0, tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
