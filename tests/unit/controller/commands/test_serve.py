import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from beamer.network.protocol import Assignment, Hello
from controller.address import listen, parse_address
from controller.cli import main
from controller.identity.certificates import CONTROLLER_URI
from controller.identity.tokens import make_key
from tests.support import plain_http
from tests.support.served_controller import made_authority, signed
from tests.support.tiers import long
from topologies.single import build

MAIN = [sys.executable, "-m", "controller.cli"]


@pytest.fixture
def fabric(tmp_path: Path) -> Path:
    path = tmp_path / "fabric.json"
    path.write_text(json.dumps(build(hosts=2).to_dict()))
    return path


def arguments(path: Path, /, **options: str) -> list[str]:
    given = {
        "fabric": str(path),
        "journal": f"sqlite:///{path.parent / 'journal.db'}",
        "http": "127.0.0.1:0",
        "openflow": "127.0.0.1:0",
        **options,
    }
    return [*MAIN, *(f"--{name}={value}" for name, value in given.items())]


Refused = Callable[[list[str]], str]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Refused:
    def run(command: list[str]) -> str:
        monkeypatch.setattr(sys, "argv", ["beamer-controller", *command[len(MAIN) :]])
        monkeypatch.setattr("controller.commands.serve.log_to_stderr", lambda: None)  # loggers would keep this test's stderr
        with pytest.raises(SystemExit) as ended:
            main()
        output = capfd.readouterr().err
        assert (ended.value.code, output.count("\n")) == (2, 1), output
        return output

    return run


@pytest.mark.parametrize(
    ("options", "output"),
    [
        ({"policy": "beemer"}, "policy: got 'beemer', expected one of"),
        ({"policy": "aalo"}, "policy: got 'aalo', expected one that does without what coflows in flight have sent"),
        ({"policy": "fifo-lm"}, "policy: got 'fifo-lm', expected one that does without what coflows in flight have sent"),
        ({"queues": "9"}, "queues: got 9, expected 1 to 8"),
        ({"queues": "0"}, "queues: got 0, expected 1 to 8"),
        ({"codepoints": "dscp"}, "--codepoints: got 'dscp', expected one of local, precedence, precedence-roce"),
        ({"codepoints": "precedence", "queues": "7"}, "queues: got 7, expected 1 to 6, as many classes as have a codepoint"),
        ({"http": "localhost"}, "--http: got 'localhost', expected HOST:PORT"),
        ({"grace": "0"}, "--grace: got 0.0, expected seconds, above 0"),
        ({"silence": "inf"}, "--silence: got inf, expected seconds, at least 0"),
        ({"openflow": "127.0.0.1:65536"}, "--openflow: got '127.0.0.1:65536', expected HOST:PORT"),
        ({"fabric": "/nowhere/fabric.json"}, "--fabric: got '/nowhere/fabric.json', expected a readable file"),
        ({"journal": "sqlite:////nowhere/journal.db"}, "journal"),
        ({"joint": "placement"}, "--joint: got 'placement', expected --gpu-policy beside it"),
        ({"gpu-policy": "fifo", "joint": "placemnt"}, "--joint: got 'placemnt', expected one of"),
        (
            {"gpu-policy": "fifo", "joint": "phases"},
            "--joint: got 'phases', expected placement, resizing: the others are parts",
        ),
    ],
)
def test_bad_input_is_one_line(fabric: Path, refused: Refused, options: dict[str, str], output: str) -> None:
    assert output in refused(arguments(fabric, **options))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Return the options of all credentials."""
    made_key, authority = tmp_path / "token.key", made_authority(tmp_path / "authority")
    make_key(made_key)
    own = signed(authority, "controller", CONTROLLER_URI, dns="localhost")
    given = {"tls-cert": own.certificate, "tls-key": own.key, "tls-ca": authority.certificate, "token-key": made_key}
    return {option: str(path) for option, path in given.items()}


@pytest.mark.parametrize("address", ["0.0.0.0:0", "10.1.2.3:0", "[::]:0", "[2001:db8::1]:0", "no.such.host.invalid:0"])
@pytest.mark.parametrize("option", ["http", "openflow"])
def test_an_address_that_others_reach_needs_credentials(
    fabric: Path, refused: Refused, files: dict[str, str], option: str, address: str
) -> None:
    said = refused(arguments(fabric, **{option: address}))
    assert f"--{option}: got {address!r}" in said
    needed = ["tls-cert", "tls-key", "tls-ca", *(["token-key"] if option == "http" else [])]
    assert all(f"--{name}" in said for name in (*needed, "insecure"))
    del files[needed[-1]]  # Half of them is not enough either.
    assert "expected" in refused(arguments(fabric, **{option: address}, **files))


@pytest.mark.parametrize(
    ("address", "given"),
    [*long(("0.0.0.0:0", "--insecure")), ("0.0.0.0:0", "credentials"), *long(("127.9.9.9:0", ""), ("localhost:0", ""))],
)
def test_a_controller_listens_where_it_may(fabric: Path, files: dict[str, str], address: str, given: str) -> None:
    command = arguments(fabric, http=address, openflow=address, **(files if given == "credentials" else {}))
    if given.startswith("--"):
        command.append(given)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert any("serving" in line for line in process.stderr)
        finally:
            process.kill()


def test_a_database_that_others_could_change_on_the_way_is_refused(fabric: Path, refused: Refused) -> None:
    data = json.loads(fabric.read_text())
    data["switches"][0] = {key: value for key, value in data["switches"][0].items() if key != "agent"}
    data["switches"][0]["ovsdb"] = "tcp:10.0.0.5:6640"
    fabric.write_text(json.dumps(data))
    assert "fabric.switches[0].ovsdb: got 'tcp:10.0.0.5:6640', expected ssl: instead of tcp:" in refused(arguments(fabric))


@pytest.mark.parametrize("missing", ["tls-cert", "tls-key", "tls-ca"])
def test_tls_is_given_whole(fabric: Path, refused: Refused, files: dict[str, str], missing: str) -> None:
    del files[missing]
    assert f"--{missing}: got None, expected a file" in refused(arguments(fabric, **files))


def test_files_that_are_no_credentials_are_one_line(fabric: Path, refused: Refused, files: dict[str, str]) -> None:
    assert "--token-key: got" in refused(arguments(fabric, **{**files, "token-key": files["tls-cert"]}))
    assert "cannot use the TLS files" in refused(arguments(fabric, **{**files, "tls-key": files["token-key"]}))


@pytest.mark.parametrize("text", ["[", "[]", "{hosts: [}"])
def test_a_file_that_is_no_fabric_is_one_line(fabric: Path, refused: Refused, text: str) -> None:
    fabric.write_text(text)
    assert "--fabric: got" in refused(arguments(fabric))


@pytest.mark.parametrize("option", ["http", "openflow"])
def test_a_taken_port_is_one_line(fabric: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = subprocess.run(arguments(fabric, **{option: address}), capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
    assert address in ended.stderr
    assert f"--{option}" in ended.stderr


def test_addresses() -> None:
    assert parse_address("10.0.0.1:80", "http") == ("10.0.0.1", 80)
    assert parse_address("[::1]:80", "http") == ("::1", 80)


def test_answers_do_not_wait_for_acknowledgements() -> None:
    with listen("127.0.0.1:0") as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@contextlib.contextmanager
def running(fabric: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = arguments(fabric, http=f"127.0.0.1:{port}")
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                plain_http.get(f"http://127.0.0.1:{port}/v1/health").raise_for_status()
                break
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


def test_more_sockets_than_descriptors_disturb_nobody_who_is_served(fabric: Path, own_port: int) -> None:
    """Six hundred sockets against three hundred descriptors: an agent is heard, health is answered, the log stays short."""
    log_path = fabric.parent / "log"
    limits = fabric.parent / "limits.yaml"
    limits.write_text("request_s: 1\n")
    command = arguments(fabric, http=f"127.0.0.1:{own_port}", limits=str(limits))
    health = f"http://127.0.0.1:{own_port}/v1/health"
    with log_path.open("wb") as log, contextlib.ExitStack() as stack:
        process = subprocess.Popen(["bash", "-c", 'ulimit -n 300; exec "$@"', "bash", *command], stderr=log)
        stack.callback(process.wait)
        stack.callback(process.kill)
        wait_for_health(health)
        agent = stack.enter_context(connect(f"ws://127.0.0.1:{own_port}/v1/agents/h1"))
        agent.send(Hello(agent="h1", generation=0).model_dump_json())
        agent.recv()
        for _ in range(600):
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_connection(("127.0.0.1", own_port), 30))
        wait_for_health(health)  # while they are open: the idle ones are given up
        agent.ping().wait(30)
        assert plain_http.get(health).json()["agents"]["connected"] == 1
        assert process.poll() is None
    assert len(log_path.read_text().splitlines()) < 30


def wait_for_health(url: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            plain_http.get(url, timeout=30).raise_for_status()
            return
        time.sleep(0.02)
    raise AssertionError("health was never answered")


@pytest.mark.parametrize("limits", ["study: 3", "[]"])
def test_limits_that_cannot_be_are_one_line(fabric: Path, refused: Refused, limits: str) -> None:
    path = fabric.parent / "limits.yaml"
    path.write_text(limits)
    assert "limits" in refused(arguments(fabric, limits=str(path)))


@pytest.mark.parametrize("number", [signal.SIGTERM, *long(signal.SIGINT)])
def test_a_signal_ends_it_and_no_thread_holds_it_back(fabric: Path, own_port: int, number: signal.Signals) -> None:
    with running(fabric, own_port) as process:
        os.kill(process.pid, number)
        assert process.wait(timeout=30) == 0


def test_a_connected_agent_does_not_hold_it_back_either(fabric: Path, own_port: int) -> None:
    with running(fabric, own_port) as process, connect(f"ws://127.0.0.1:{own_port}/v1/agents/h1") as agent:
        agent.send(Hello(agent="h1", generation=0).model_dump_json())
        assert Assignment.model_validate_json(agent.recv()).ports[0].classify == "mark"
        os.kill(process.pid, signal.SIGTERM)
        with pytest.raises(ConnectionClosed):
            agent.recv()
        assert process.wait(timeout=30) == 0


def test_what_was_registered_survives_a_kill(fabric: Path, own_port: int) -> None:
    url = f"http://127.0.0.1:{own_port}/v1/studies"
    with running(fabric, own_port) as process:
        for path in ("mnist", "mnist/stages/rung0", "mnist/trials/a"):
            plain_http.put(f"{url}/{path}", json={}).raise_for_status()
        placed = {"workers": [{"rank": 0, "host": "h1"}, {"rank": 1, "host": "h2"}], "sync_bytes": 1000}
        plain_http.put(f"{url}/mnist/trials/a/attempts/one", json=placed).raise_for_status()
        before = plain_http.get(url).json()
        process.kill()
        process.wait()
    with running(fabric, own_port):
        after = plain_http.get(url).json()
    before["studies"][0]["trials"][0]["class"] = 0  # the decision may not have been due yet
    assert after == before
