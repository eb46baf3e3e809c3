"""HTTP over TLS: trainers come with tokens, agents with their certificates, no handshake holds anything for long."""

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from beamer.client import Client
from beamer.network.protocol import Assignment, Hello
from beamer.testing.fabrics import star
from controller.identity.authority import Authority, KeyFiles
from controller.identity.certificates import CONTROLLER_URI, agent_uri, switch_uri
from controller.identity.credentials import Credentials, read_credentials
from controller.identity.tokens import DAY_S, Claims, TokenRole, make_key, read_key, sign_token
from controller.limits import Limits
from tests.support.served_controller import PATIENCE_S, Served, made_authority, served, signed

FABRIC = star(2)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return made_authority(tmp_path / "authority")


@pytest.fixture
def credentials(authority: Authority, tmp_path: Path) -> Credentials:
    make_key(tmp_path / "token.key")
    own = signed(authority, "controller", CONTROLLER_URI, dns="localhost")
    return read_credentials(own.certificate, own.key, authority.certificate, tmp_path / "token.key")


@pytest.fixture
def controller(request: pytest.FixtureRequest, credentials: Credentials, tmp_path: Path) -> Iterator[Served]:
    """Serve. An indirect parameter is `request_s`; without one it is long, as handshakes take long on a busy machine."""
    limits = Limits(request_s=getattr(request, "param", int(PATIENCE_S)), connections=40, connections_per_address=40)
    with served(FABRIC, tmp_path / "journal.db", limits=limits, credentials=credentials) as controller:
        yield controller


def url(controller: Served, scheme: str = "https") -> str:
    return f"{scheme}://localhost:{controller.address[1]}"


def context(authority: Authority, shown: KeyFiles | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=authority.certificate)
    if shown is not None:
        made.load_cert_chain(shown.certificate, shown.key)
    return made


def agent(controller: Served, name: str, tls: ssl.SSLContext, headers: Mapping[str, str] | None = None) -> connect:
    """Return a connection to enter; of asyncio, as the blocking one reads and writes one TLS connection in two threads."""
    target = f"{url(controller, 'wss')}/v1/agents/{name}"
    return connect(target, ssl=tls, additional_headers=headers, open_timeout=PATIENCE_S, proxy=None)


async def greet(connection: ClientConnection) -> str | bytes:
    """Send an agent's hello and return the answer."""
    await connection.send(Hello(agent="h1", generation=0).model_dump_json())
    async with asyncio.timeout(PATIENCE_S):
        return await connection.recv()


async def reason_of(connection: ClientConnection) -> str:
    """Return what a connection is closed with: the code and the reason."""
    with suppress(ConnectionClosed):
        await greet(connection)
    return f"{connection.close_code} {connection.close_reason}"


def test_a_trainer_needs_a_token_and_no_certificate(controller: Served, authority: Authority, tmp_path: Path) -> None:
    key = read_key(tmp_path / "token.key", "key")
    token = sign_token(key, Claims("mnist", TokenRole.TRAINER), time.time(), DAY_S)
    with (
        Client(url(controller), PATIENCE_S, token, str(authority.certificate)) as client,
        client.study("mnist", run="r") as study,
    ):
        study.trial("one")
        assert client.flush(PATIENCE_S)
        assert controller.ask(lambda runtime: set(runtime.tracker.studies)) == {"mnist"}
    assert httpx.get(f"{url(controller)}/v1/studies", verify=context(authority)).status_code == 401


def test_a_client_trusts_no_other_authority(controller: Served, tmp_path: Path) -> None:
    with pytest.raises(httpx.ConnectError, match="certificate"):
        httpx.get(f"{url(controller)}/v1/health", verify=context(made_authority(tmp_path / "other")))


def test_an_agent_with_its_certificate_is_served(controller: Served, authority: Authority) -> None:
    async def scenario() -> None:
        async with agent(controller, "h1", context(authority, signed(authority, "h1", agent_uri("h1")))) as connection:
            assert Assignment.model_validate_json(await greet(connection))
            assert controller.ask(lambda runtime: runtime.agents.connected) == {"h1"}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("uris", "reason"),
    [
        ([agent_uri("h2")], "agent 'h1': its certificate is for h2"),
        ([switch_uri(1)], "agent 'h1': certificate: got 'spiffe://beamer/switch/0000000000000001'"),
        ([CONTROLLER_URI], "agent 'h1': certificate: got 'spiffe://beamer/controller'"),
        ([agent_uri("h1"), agent_uri("h2")], "exactly one URI"),
        (None, "exactly one URI"),
    ],
)
def test_another_agents_name_is_refused_logged_once_and_nothing_changed(
    uris: list[str] | None, reason: str, controller: Served, authority: Authority, capfd: pytest.CaptureFixture[str]
) -> None:
    genuine = context(authority, signed(authority, "genuine", agent_uri("h1")))
    other = context(authority, None if uris is None else signed(authority, "other", *uris))

    async def scenario() -> None:
        async with agent(controller, "h1", genuine) as served_one:
            await greet(served_one)
            for _ in range(3):
                async with agent(controller, "h1", other) as impostor:
                    assert (await reason_of(impostor)).startswith("1008 ")
            assert controller.ask(lambda runtime: runtime.agents.connected) == {"h1"}
            async with asyncio.timeout(PATIENCE_S):
                await (await served_one.ping())  # it has not been replaced

    asyncio.run(scenario())
    assert capfd.readouterr().out.count(reason) == 1


def test_a_token_is_no_agents_certificate(controller: Served, authority: Authority, tmp_path: Path) -> None:
    token = sign_token(read_key(tmp_path / "token.key", "key"), Claims("*", TokenRole.OPERATOR), time.time(), DAY_S)
    headers = {"Authorization": f"Bearer {token}"}

    async def scenario() -> None:
        async with agent(controller, "h1", context(authority), headers) as impostor:
            assert (await reason_of(impostor)).startswith("1008 ")

    asyncio.run(scenario())


def test_an_agents_certificate_is_no_token(controller: Served, authority: Authority) -> None:
    shown = context(authority, signed(authority, "h1", agent_uri("h1")))
    assert httpx.get(f"{url(controller)}/v1/studies", verify=shown).status_code == 401


def test_a_certificate_of_another_authority_or_an_expired_one_is_refused_by_tls_and_logged_once(
    controller: Served, authority: Authority, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    foreign = signed(made_authority(tmp_path / "other"), "h1", agent_uri("h1"))
    expired = signed(authority, "old", agent_uri("h1"), valid_s=-1)

    async def scenario() -> None:
        for shown in (foreign, expired):
            for _ in range(3):
                with pytest.raises((OSError, EOFError, WebSocketException)) as refused:
                    async with agent(controller, "h1", context(authority, shown)) as impostor:
                        await greet(impostor)
                assert not isinstance(refused.value, TimeoutError)

    asyncio.run(scenario())
    assert controller.ask(lambda runtime: runtime.agents.connected) == frozenset()
    assert capfd.readouterr().out.count("no TLS with a peer") == 1


def test_plain_text_is_no_tls(controller: Served) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(url(controller, "http") + "/v1/health", timeout=PATIENCE_S)


def test_old_tls_is_not_spoken(credentials: Credentials) -> None:
    for context in (credentials.http, credentials.switches):
        assert context is not None
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert credentials.switches is not None
    assert credentials.switches.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("controller", [2], indirect=True)
def test_peers_that_begin_no_handshake_are_counted_and_given_up(controller: Served, authority: Authority) -> None:
    """Forty connections that say nothing are as many as may be; after `request_s` they are closed and others are served."""
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(controller.address, PATIENCE_S)) for _ in range(40)]
        surplus = stack.enter_context(socket.create_connection(controller.address, PATIENCE_S))
        assert ended(surplus)
        assert all(ended(one) for one in silent)
        assert httpx.get(f"{url(controller)}/v1/health", verify=context(authority)).status_code == 200


def ended(connection: socket.socket) -> bool:
    """Wait until the other side closes a connection; return whether it does."""
    connection.settimeout(PATIENCE_S)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_many_requests_that_come_with_the_handshake_are_answered(controller: Served, authority: Authority) -> None:
    """What a client sends in the handshake's last flight may arrive before the server knows that it is over."""

    async def ask() -> bytes:
        made = context(authority)
        host, port = controller.address
        reader, writer = await asyncio.open_connection(host, port, ssl=made, server_hostname="localhost")
        writer.write(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()
        return answer

    async def all_of_them() -> list[bytes]:
        return await asyncio.gather(*(ask() for _ in range(30)))

    assert [answer.startswith(b"HTTP/1.1 200") for answer in asyncio.run(all_of_them())] == [True] * 30


def test_early_data_is_handed_on(controller: Served, authority: Authority) -> None:
    """Handshake's end and request in one segment: the request is not lost."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context(authority).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(controller.address, PATIENCE_S) as raw:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                raw.sendall(outgoing.read())
                incoming.write(raw.recv(65536))
        tls.write(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        raw.sendall(outgoing.read())  # its Finished, and the request with it
        answer = b""
        while b"installed_everywhere" not in answer:
            with suppress(ssl.SSLWantReadError):
                answer += tls.read(65536)
                continue
            data = raw.recv(65536)
            assert data
            incoming.write(data)
    assert answer.startswith(b"HTTP/1.1 200")


def test_a_foreign_key_signs_no_token(controller: Served, authority: Authority, tmp_path: Path) -> None:
    make_key(tmp_path / "other.key")
    token = sign_token(read_key(tmp_path / "other.key", "key"), Claims("*", TokenRole.OPERATOR), time.time(), DAY_S)
    answer = httpx.get(f"{url(controller)}/v1/studies", verify=context(authority), headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 401
