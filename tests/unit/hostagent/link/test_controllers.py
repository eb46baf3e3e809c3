"""Finding the controller that leads among several, over real connections with and without TLS."""

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Thread

import pytest
from cryptography.hazmat.primitives import serialization
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from beamer.errors import InputError
from controller.identity.authority import Authority
from controller.identity.certificates import agent_uri
from hostagent.link import controllers as module
from hostagent.link.controllers import FIRST_PAUSE_S, LAST_PAUSE_S, ControllerConnection, ControllerLink, Rotation
from hostagent.link.tls import client_context, connection_failure
from tests.support.served_controller import made_authority, signed

PATIENCE_S = 20.0

Behaviour = Callable[[ServerConnection], Awaitable[None]]


async def lead(connection: ServerConnection) -> None:
    await connection.send("an assignment")
    await connection.wait_closed()


async def follow(connection: ServerConnection) -> None:
    await connection.close(4001, "not the leader")


async def say_nothing(connection: ServerConnection) -> None:
    await connection.wait_closed()


async def serve_and_close(connection: ServerConnection) -> None:
    await connection.send("an assignment")


async def send_too_much(connection: ServerConnection) -> None:
    await connection.send(bytes(module.MAX_MESSAGE_BYTES + 1))
    await connection.wait_closed()


class Server:
    """Listens on a free port and behaves as told to every connection."""

    def __init__(self, behaviour: Behaviour, tls: ssl.SSLContext | None = None) -> None:
        self.behaviour, self.tls = behaviour, tls
        self.connections = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.url = f"{'wss' if tls else 'ws'}://localhost:{self.port}"

    async def serve(self, connection: ServerConnection) -> None:
        self.connections += 1
        with suppress(ConnectionClosed):
            await self.behaviour(connection)


@pytest.fixture
def unused_url(own_port: int) -> str:
    return f"ws://localhost:{own_port}"


def exchange(
    *servers: Server,
    urls: Sequence[str] = (),
    tls: ssl.SSLContext | None = None,
    until: Callable[[int], bool] = lambda n: n > 0,
) -> list[int]:
    """Let an agent look for its controller until it has accepted enough; return the ports of those that it talked to."""
    talked: list[int] = []

    async def main() -> None:
        accepted, enough = 0, asyncio.Event()

        async def talk(connection: ControllerConnection) -> None:
            nonlocal accepted
            talked.append(connection.socket.remote_address[1])
            async for _ in connection.socket:
                connection.accept()
                accepted += 1
                if until(accepted):
                    enough.set()

        listening = [await serve(server.serve, sock=server.socket, ssl=server.tls) for server in servers]
        link = ControllerLink("h1", urls or [server.url for server in servers], tls, Random(0))
        connected = asyncio.create_task(link.stay_connected(talk))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await enough.wait()
        finally:
            connected.cancel()
            with suppress(asyncio.CancelledError):
                await connected
            for one in listening:
                one.close()
                await one.wait_closed()

    asyncio.run(main())
    return talked


def test_the_rotation_pauses_after_rounds_alone_longer_each_time_and_within_bounds() -> None:
    rotation = Rotation(["a", "b", "c"], Random(1))
    tried, pauses = [], []
    for _ in range(30):
        tried.append(rotation.url)
        pauses.append(rotation.move_on(served=False))
    assert tried == ["a", "b", "c"] * 10
    assert all(pause == 0 for place, pause in enumerate(pauses, 1) if place % 3)
    rounds = pauses[2::3]
    longest = [min(FIRST_PAUSE_S * 2**n, LAST_PAUSE_S) for n in range(10)]
    assert all(most / 2 <= pause <= most for pause, most in zip(rounds, longest, strict=True))
    assert len(set(rounds[4:])) > 1, "jitter spreads the agents of a controller that comes back"
    rotation.move_on(served=True)
    rotation.move_on(served=False)
    assert rotation.move_on(served=False) <= FIRST_PAUSE_S, "a new round"


def test_a_lone_controller_is_tried_again_after_a_pause_also_where_it_served() -> None:
    rotation = Rotation(["a"], Random(1))
    assert [0 < rotation.move_on(served) <= LAST_PAUSE_S for served in (False, True, False, True)] == [True] * 4


def test_the_leader_is_found_among_those_that_do_not_lead_or_are_not_there(
    unused_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Server(follow), Server(lead)
    with caplog.at_level(logging.WARNING):
        talked = exchange(first, second, urls=[unused_url, first.url, second.url])
    assert talked == [first.port, second.port]
    assert caplog.text == "", "it is no failure"


def test_when_the_leader_changes_the_next_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Server(follow), Server(follow)

    async def step_down(connection: ServerConnection) -> None:
        one.behaviour, other.behaviour = follow, lead
        await connection.send("an assignment")
        await connection.close(4001, "not the leader")

    one.behaviour = step_down
    assert exchange(one, other, until=lambda accepted: accepted == 2) == [one.port, other.port]


def test_where_nobody_leads_it_is_said_once_with_every_reason(unused_url: str, caplog: pytest.LogCaptureFixture) -> None:
    tries = 0

    async def lead_late(connection: ServerConnection) -> None:
        nonlocal tries
        tries += 1
        await (lead if tries == 4 else follow)(connection)

    late, absent = Server(lead_late), unused_url
    with caplog.at_level(logging.WARNING):
        exchange(late, urls=[late.url, absent])
    assert len(caplog.records) == 1
    assert f"{late.url}: closed: 4001 (private use) not the leader" in caplog.text
    assert absent in caplog.text


@pytest.mark.parametrize("behaviour", [say_nothing, send_too_much])
def test_one_that_is_of_no_use_does_not_keep_the_agent_from_the_leader(
    behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ASSIGNMENT_S", 0.3)
    useless, leader = Server(behaviour), Server(lead)
    assert exchange(useless, leader) == [useless.port, leader.port]


def test_one_that_never_answers_does_not_keep_the_agent_from_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CONNECT_S", 0.3)
    leader = Server(lead)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert exchange(leader, urls=[f"ws://localhost:{silent.getsockname()[1]}", leader.url]) == [leader.port]


@pytest.mark.parametrize("times", [1, 2])
def test_a_redirection_is_not_followed_and_said_as_what_it_is(times: int, caplog: pytest.LogCaptureFixture) -> None:
    leader, other = Server(lead), Server(lead)
    answer = "HTTP/1.1 301 Moved\r\n" + times * f"Location: {other.url}/\r\n" + "\r\n"
    with socket.create_server(("127.0.0.1", 0)) as redirecting, caplog.at_level(logging.WARNING):
        redirecting.settimeout(PATIENCE_S)

        def redirect() -> None:
            with redirecting.accept()[0] as accepted:
                accepted.recv(4096)
                accepted.sendall(answer.encode())

        thread = Thread(target=redirect)
        thread.start()
        url = f"ws://localhost:{redirecting.getsockname()[1]}"
        assert exchange(leader, other, urls=[url, leader.url]) == [leader.port]
        thread.join()
    assert not other.connections
    assert not caplog.records, "it is no defect"


def test_one_that_drips_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of a message that never ends count as no assignment."""
    monkeypatch.setattr(module, "_ASSIGNMENT_S", 0.5)

    async def drip(connection: ServerConnection) -> None:
        async def parts() -> object:
            while True:
                yield "["
                await asyncio.sleep(0.05)

        await connection.send(parts())

    dripping, leader = Server(drip), Server(lead)
    assert exchange(dripping, leader) == [dripping.port, leader.port]


def test_one_that_closes_at_once_is_tried_at_a_bounded_rate_and_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    move_on = Rotation.move_on

    def noted(rotation: Rotation, served: bool) -> float:
        paused.append(move_on(rotation, served))
        return paused[-1] / 10  # so that the test takes no longer

    monkeypatch.setattr(Rotation, "move_on", noted)
    closing = Server(serve_and_close)
    with caplog.at_level(logging.WARNING):
        exchange(closing, until=lambda accepted: accepted == 8)
    assert paused[0] < LAST_PAUSE_S / 2 <= min(paused[5:]), "the pauses grow although it sends assignments"
    assert len(caplog.records) == 1


def test_a_defect_of_the_exchange_is_logged_with_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    leader = Server(lead)

    async def main() -> None:
        ended = asyncio.Event()

        async def fail(_: ControllerConnection) -> None:
            ended.set()
            raise KeyError("defect")

        async with serve(leader.serve, sock=leader.socket):
            connected = asyncio.create_task(ControllerLink("h1", [leader.url], None, Random(0)).stay_connected(fail))
            for _ in range(2):
                ended.clear()
                await asyncio.wait_for(ended.wait(), PATIENCE_S)
            connected.cancel()
            with suppress(asyncio.CancelledError):
                await connected

    asyncio.run(main())
    assert ["KeyError('defect')" in repr(record.exc_info) for record in caplog.records if record.exc_info] == [True]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return made_authority(tmp_path)


def server_context(authority: Authority, host: str, *, ask: bool = False) -> ssl.SSLContext:
    """Return a server's context. ask: for a certificate of this authority's from clients."""
    files = signed(authority, host, dns=host)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    if ask:
        context.load_verify_locations(authority.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.mark.parametrize("ask", [False, True])
def test_a_controller_with_a_certificate_is_followed(authority: Authority, ask: bool) -> None:
    leader = Server(lead, server_context(authority, "localhost", ask=ask))
    own = signed(authority, "h1", agent_uri("h1"))
    shown = (own.certificate, own.key) if ask else (None, None)
    assert exchange(leader, tls=client_context(authority.certificate, *shown)) == [leader.port]


def test_what_tls_fails_of_is_said_in_words(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong name, the wrong authority, no TLS at all, no certificate of the agent's own; then the right one."""
    wrong = {
        Server(lead, server_context(authority, "other")): "certificate is refused: .*'localhost'",
        Server(lead, server_context(made_authority(tmp_path / "another"), "localhost")): "certificate is refused: .*issuer",
        Server(lead, server_context(authority, "localhost", ask=True)): "may ask for a certificate",
        Server(lead): "speak no TLS",
    }
    leader = Server(lead, server_context(authority, "localhost"))
    urls = [f"wss://localhost:{server.port}" for server in (*wrong, leader)]
    reasons: dict[str, str] = {}
    monkeypatch.setattr(module.ControllerLink, "_talk", noting(module.ControllerLink._talk, reasons))
    assert exchange(*wrong, leader, urls=urls, tls=client_context(authority.certificate))[-1] == leader.port
    for server, reason in wrong.items():
        assert re.search(reason, reasons[f"wss://localhost:{server.port}"])


def noting(talk: Callable[..., Awaitable[bool]], reasons: dict[str, str]) -> Callable[..., Awaitable[bool]]:
    async def noted(link: ControllerLink, url: str, exchange: object) -> bool:
        try:
            return await talk(link, url, exchange)
        finally:
            reasons.update(link._reasons)

    return noted


def test_a_key_with_a_passphrase_is_refused_instead_of_asked_for(authority: Authority) -> None:
    own = signed(authority, "h1", agent_uri("h1"))
    key = serialization.load_pem_private_key(own.key.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    own.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))
    with pytest.raises(InputError, match="without a passphrase"):
        client_context(authority.certificate, own.certificate, own.key)


def test_old_tls_is_not_spoken(authority: Authority) -> None:
    assert client_context(authority.certificate).minimum_version == ssl.TLSVersion.TLSv1_2
    assert client_context(authority.certificate).check_hostname


@pytest.mark.parametrize(
    ("reason", "tls", "said"),
    [
        ("WRONG_VERSION_NUMBER", True, "does not speak TLS"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", True, "refuses the agent's certificate"),
        ("UNSUPPORTED_PROTOCOL", True, "TLS fails: UNSUPPORTED_PROTOCOL"),
    ],
)
def test_openssls_reasons_are_put_in_words(reason: str, tls: bool, said: str) -> None:
    error = ssl.SSLError(1, "[SSL] error")
    error.reason = reason
    assert said in connection_failure(error, tls)


def test_a_failure_without_tls_is_what_the_system_says() -> None:
    assert connection_failure(ConnectionResetError(), tls=False) == "ConnectionResetError"
    assert connection_failure(OSError(111, "Connection refused"), tls=False) == "[Errno 111] Connection refused"
