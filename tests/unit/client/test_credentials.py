"""Tokens and certificates: where they come from, what is sent, and that a token is never shown."""

import os
import socket
import ssl
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from beamer.client import Client
from beamer.client.credentials import CA_VARIABLE, INSECURE_VARIABLE, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from beamer.errors import InputError
from tests.support.fake_controller import PATIENCE_S, FakeBeamer, raw_server, warnings

TOKEN = "abc.DEF-123_~+/="


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (TOKEN_VARIABLE, TOKEN_FILE_VARIABLE, CA_VARIABLE, INSECURE_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


@pytest.fixture
def secure(authority: trustme.CA) -> Iterator[FakeBeamer]:
    """A controller at https, whose certificate is for localhost."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    fake = FakeBeamer(context=context)
    yield fake
    fake.stop()


def authorizations(client: Client, requests: list[bytes]) -> list[bytes]:
    """Return what the client's requests prove who asks with."""
    with client:
        client.study("s")
        assert client.flush(PATIENCE_S)
    lines = [line for request in requests for line in request.split(b"\r\n")]
    return [line.partition(b": ")[2] for line in lines if line.lower().startswith(b"authorization:")]


@pytest.mark.parametrize("url", ["http://10.0.0.1:8657", "http://127.0.0.1:1,http://c2.example:8657", "http://[2001:db8::1]"])
@pytest.mark.parametrize("source", ["argument", "variable", "file"])
def test_a_token_does_not_leave_the_machine_in_the_clear(
    url: str, source: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    if source == "variable":
        monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    elif source == "file":
        monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(file))
    if source == "argument":
        with pytest.raises(
            InputError, match=r"url: got 'http://.*expected https:// beside a token.*BEAMER_INSECURE=1"
        ) as raised:
            Client(url, token=TOKEN)
        said = str(raised.value)
    else:
        with Client(url) as client:
            client.study("s")
        [record] = caplog.records
        said = record.getMessage()
        assert "url beside BEAMER_TOKEN: got 'http://" in said
        assert "expected https:// beside a token" in said
    assert TOKEN not in said
    monkeypatch.setenv(INSECURE_VARIABLE, "1")
    Client(url, token=TOKEN if source == "argument" else None).close(0.0)


@pytest.mark.parametrize("url", ["http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1", "https://c1.example:1"])
def test_a_token_may_be_sent_where_nobody_is_on_the_way_or_can_read_it(url: str) -> None:
    Client(url, token=TOKEN).close(0.0)


def test_without_a_token_nothing_has_to_be_protected() -> None:
    Client("http://10.0.0.1:8657").close(0.0)


def test_a_url_holds_no_password() -> None:
    with pytest.raises(InputError, match="without a user or a password") as raised:
        Client("https://user:secret@c1.example:8657")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("source", ["argument", "variable", "file", "none"])
def test_a_token_is_sent_with_every_request(source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    requests: list[bytes] = []
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    if source in ("argument", "variable"):
        monkeypatch.setenv(TOKEN_VARIABLE, TOKEN if source == "variable" else "another")
        monkeypatch.setenv(TOKEN_FILE_VARIABLE, "/nonexistent")
    elif source == "file":
        monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(file))

    def respond(connection: socket.socket, request: bytes) -> None:
        requests.append(request)
        connection.sendall(answer)

    with raw_server(respond) as url:
        client = Client(url, PATIENCE_S, token=TOKEN if source == "argument" else None)
        assert authorizations(client, requests) == ([] if source == "none" else [b"Bearer " + TOKEN.encode()])
    assert len(requests) == 1


@pytest.mark.parametrize("token", ["", "secret secret", "secret\r\nHost: x", "sécret", "secret" * 1000, "=secret"])
def test_a_token_that_cannot_be_is_refused_and_not_shown(
    token: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(token, "utf-8", newline="")

    def refused(**given: str) -> str:
        with pytest.raises(InputError) as caught:
            Client(**given)  # type: ignore[arg-type]
        return "".join(traceback.format_exception(caught.value))

    def logged() -> str:
        """Return what is logged of an environment's token, with which nothing is sent and nothing raised."""
        caplog.clear()
        with Client() as client:
            client.study("s").trial("t").progress(1)
            assert not client.flush(PATIENCE_S)
        [record] = caplog.records
        return f"{record.getMessage()} {record.exc_info}"

    shown = [refused(token=token)]
    if token:
        monkeypatch.setenv(TOKEN_VARIABLE, token)
        shown.append(logged())
        monkeypatch.delenv(TOKEN_VARIABLE)
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(file))
    shown.append(logged())
    assert ["token: got" in shown[0], all(token not in text for text in shown if token)] == [True, True]
    assert TOKEN_FILE_VARIABLE in shown[-1]


def test_a_file_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, "/nonexistent/token")
    Client().close()
    assert "BEAMER_TOKEN_FILE: got '/nonexistent/token'" in caplog.text
    with pytest.raises(InputError, match=r"ca: got '/nonexistent/ca.pem'"):
        Client("https://localhost:1", token=TOKEN, ca="/nonexistent/ca.pem")


def test_a_token_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    statuses = iter([b"500 X", b"401 Unauthorized", b"99999 X", b"422 X"])

    def respond(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % next(statuses, b"200 OK"))

    with raw_server(respond) as url, Client(url, PATIENCE_S, token="s3cret-token") as client:
        for name in "abc":
            client.study(name)
        assert client.flush(PATIENCE_S)
        assert "s3cret" not in repr(client) + repr(vars(client._outbox))
    assert caplog.messages
    assert "s3cret-token" not in caplog.text


def at_localhost(beamer: FakeBeamer) -> str:
    return beamer.url.replace("http://127.0.0.1", "https://localhost")


@pytest.mark.parametrize("source", ["argument", "variable"])
def test_a_controller_whose_certificate_is_trusted_is_told(
    secure: FakeBeamer, ca: str, source: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if source == "variable":
        monkeypatch.setenv(CA_VARIABLE, ca)
    with Client(at_localhost(secure), PATIENCE_S, token=TOKEN, ca=ca if source == "argument" else None) as client:
        client.study("s").trial("t").finish()
        assert client.flush(PATIENCE_S)
        assert not client.wait_stage("s", "r", 0.05)
    assert len(secure.paths()) == 3
    assert warnings(caplog) == []


def test_a_forked_child_has_a_secure_connection_of_its_own(secure: FakeBeamer, ca: str) -> None:
    with Client(at_localhost(secure), PATIENCE_S, ca=ca) as client:
        client.study("parent")
        assert client.flush(PATIENCE_S)
        child = os.fork()
        if child == 0:
            client.study("child")
            os._exit(0 if client.flush(PATIENCE_S) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        client.study("again")
        assert client.flush(PATIENCE_S)
    assert secure.paths() == [f"/v1/studies/{name}" for name in ("parent", "child", "again")]
    assert secure.connections == 2, "the parent's was broken"


@pytest.mark.parametrize("reason", ["another authority", "another name", "no authority"])
def test_a_controller_whose_certificate_is_not_trusted_is_told_nothing(
    secure: FakeBeamer, ca: str, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    trusted = {"another authority": str(other), "another name": ca, "no authority": None}[reason]
    url = at_localhost(secure).replace("localhost", "127.0.0.1" if reason == "another name" else "localhost")
    with Client(url, PATIENCE_S, ca=trusted) as client:
        client.study("s")
        assert not client.flush(0.5)
        client.close(0.0)
    assert secure.paths() == []
    assert "certificate verify failed" in warnings(caplog)[0].lower()
