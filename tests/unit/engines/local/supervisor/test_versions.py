"""Supervisors and engines of different versions: who reads what, and what is left out, ignored and refused."""

import json
import shlex
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from beamer.engines.local.client import SupervisorClient
from beamer.engines.local.launchers import Ssh
from beamer.engines.local.spec import LocalNode
from beamer.engines.local.supervisor import codec, control, store
from beamer.engines.local.supervisor.messages import (
    ANSWERS,
    REQUESTS,
    Accepted,
    End,
    GetPort,
    GetStatus,
    Kill,
    Refused,
    Resume,
    SupervisorAnswer,
    SupervisorRequest,
    encode,
    read_answer,
    read_request,
)
from beamer.errors import InputError
from beamer.log_limit import DIFFERENCES_AGAIN_S, MAX_DIFFERENCES, VariedLogLimit
from beamer.protocol_version import FIRST_VERSION, PROTOCOL_VERSION, Since

PATIENCE_S = 30.0


@dataclass(frozen=True)
class Part:
    size: int
    colour: Annotated[str, Since(2)] = ""


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...] = ()
    pair: tuple[int, Part] | None = None
    late: Annotated[int, Since(2)] = 0


WHOLE = Whole((Part(1, "red"),), (2, Part(3, "blue")), 4)


def test_an_older_peer_is_sent_no_field_that_it_does_not_know() -> None:
    assert json.loads(codec.encode(WHOLE, 1)) == {"parts": [{"size": 1}], "pair": [2, {"size": 3}]}
    assert codec.decode(Whole, json.loads(codec.encode(WHOLE))) == WHOLE


def test_the_known_part_of_what_a_newer_peer_sends_is_read_and_the_rest_named() -> None:
    sent = {"parts": [{"size": 1, "x": 0}, {"size": 2, "x": 0}], "pair": [2, {"size": 3, "y": 1}], "z": {"a": 1}}
    unused: list[str] = []
    assert codec.decode(Whole, sent, "whole", unused) == Whole((Part(1), Part(2)), (2, Part(3)))
    assert sorted(unused) == ["whole.pair.y", "whole.parts.x", "whole.z"]


@pytest.mark.parametrize("sent", [3, {"parts": 3}, {"parts": [3]}, {"pair": [1]}, {"pair": [1, {"size": 1}, 3]}])
def test_what_is_wrong_is_left_for_decoding_to_refuse(sent: object) -> None:
    with pytest.raises(InputError):
        codec.decode(Whole, sent, unused=[])


def test_a_message_says_which_version_its_sender_speaks_unless_it_is_read_by_the_first() -> None:
    assert json.loads(encode(GetStatus(3), FIRST_VERSION)) == {"kind": "status", "after": 3}
    assert json.loads(encode(GetStatus(3))) == {"kind": "status", "after": 3, "protocol": PROTOCOL_VERSION}
    assert read_request(encode(GetStatus(3))).version == PROTOCOL_VERSION
    assert read_request('{"kind": "status"}').version == FIRST_VERSION


def test_a_newer_engine_is_understood_as_far_as_it_can_be() -> None:
    received = read_request('{"kind": "end", "forget": true, "soon": 1, "protocol": 3}')
    assert (received.message, received.version, received.unused) == (End(forget=True), 3, ("end.soon",))
    answered = read_answer('{"kind": "accepted", "since": 4, "protocol": 3}')
    assert (answered.message, answered.unused) == (Accepted(), ("accepted.since",))


@pytest.mark.parametrize("said", ["", ', "protocol": 2'])
def test_an_engine_that_is_not_newer_is_refused_what_is_unknown(said: str) -> None:
    with pytest.raises(InputError, match=r"status\.soon"):
        read_request('{"kind": "status", "soon": 1' + said + "}")


def test_an_engine_too_far_away_is_told_what_to_upgrade_first() -> None:
    with pytest.raises(InputError, match=r"protocol: got 4, .* 1 to 3: upgrade the supervisor to protocol version 3 first"):
        read_request('{"kind": "status", "protocol": 4}')
    with pytest.raises(InputError, match="upgrade the engine to protocol version 3 first"):
        read_answer('{"kind": "accepted", "protocol": 4}')


@pytest.mark.parametrize("protocol", ["0", '"2"', "true", "null", "2.0"])
def test_no_other_value_is_a_version(protocol: str) -> None:
    with pytest.raises(InputError, match=r"request\.protocol"):
        read_request('{"kind": "status", "protocol": ' + protocol + "}")


def of_version_1(line: bytes) -> bytes:
    """Answer as a supervisor of 0.1.0 does."""
    values = json.loads(line)
    if "protocol" in values:
        reason = f"{values['kind']}.protocol: got {values['protocol']}, expected a field of GetStatus: one of after"
        return json.dumps({"kind": "refused", "reason": reason}).encode()
    return b'{"kind": "accepted"}'


@contextmanager
def supervisor(directory: Path, answer: Callable[[bytes], bytes]) -> Iterator[list[bytes]]:
    """Answer at a directory's socket; yield the lines that come in."""
    lines: list[bytes] = []
    server = store.listen(directory)

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client, client.makefile("rwb") as stream:
                lines.append(stream.readline())
                stream.write(answer(lines[-1]) + b"\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield lines
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(PATIENCE_S)


@pytest.mark.parametrize("request_", [GetStatus(3), GetPort(), Resume(2.0), Kill()])
def test_a_supervisor_of_version_1_is_asked_again_without_a_version(tmp_path: Path, request_: SupervisorRequest) -> None:
    with supervisor(tmp_path, of_version_1) as lines:
        assert control.ask(tmp_path, request_, PATIENCE_S) == Accepted()
    assert [json.loads(line).get("protocol") for line in lines] == [PROTOCOL_VERSION, None]


def test_another_refusal_is_an_answer(tmp_path: Path) -> None:
    with supervisor(tmp_path, lambda _: b'{"kind": "refused", "reason": "it is idle", "protocol": 2}') as lines:
        assert control.ask(tmp_path, Kill(), PATIENCE_S) == Refused("it is idle")
    assert len(lines) == 1


def test_what_a_newer_supervisor_says_beyond_this_version_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_unused", VariedLogLimit(MAX_DIFFERENCES, DIFFERENCES_AGAIN_S))
    with supervisor(tmp_path, lambda _: b'{"kind": "accepted", "mood": 1, "protocol": 3}'):
        assert [control.ask(tmp_path, Kill(), PATIENCE_S) for _ in range(2)] == [Accepted()] * 2
    assert [r.getMessage() for r in caplog.records] == ["a supervisor speaks version 3: accepted.mood is not used"]


def test_a_node_whose_program_speaks_version_1_is_asked_by_its_own_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run(command: list[str], timeout_s: float) -> str:
        remote = shlex.split(command[-1])  # The last argument is handed to ssh.
        asked.append(remote[remote.index("beamer.engines.local.supervisor.control") + 2])
        if "protocol" in json.loads(asked[-1]):
            raise control.Unreachable("python ... exited with 1: status.protocol: got 2, expected a field of GetStatus")
        return '{"kind": "accepted"}'

    monkeypatch.setattr(control, "run", run)
    first: set[str] = set()
    node = LocalNode("far", 1, launcher=Ssh("far"))
    for _ in range(2):
        answer: SupervisorAnswer = SupervisorClient(node, tmp_path, None, first).ask(GetStatus(), PATIENCE_S)
        assert answer == Accepted()
    assert [json.loads(line).get("protocol") for line in asked] == [2, None, None], "it is found out once"
    assert first == {"far"}


def test_a_command_answers_an_older_engine_in_its_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with supervisor(tmp_path, lambda _: b'{"kind": "accepted", "protocol": 2}'):
        control.main([str(tmp_path), '{"kind": "kill"}'])
        assert json.loads(capsys.readouterr().out) == {"kind": "accepted"}
        control.main([str(tmp_path), '{"kind": "kill", "protocol": 2}'])
        assert json.loads(capsys.readouterr().out) == {"kind": "accepted", "protocol": 2}


def shapes(kind: Any) -> Iterator[Any]:
    """Yield a type and all that it consists of."""
    yield kind
    inner = get_args(kind) or (get_type_hints(kind).values() if is_dataclass(kind) else ())
    for one in inner:
        if one not in (Ellipsis, NoneType):
            yield from shapes(one)


@pytest.mark.parametrize("kind", [*REQUESTS.values(), *ANSWERS.values()])
def test_messages_consist_of_what_is_read_of_newer_peers_as_well(kind: type) -> None:
    for shape in shapes(kind):
        if get_origin(shape) is UnionType:
            assert len([one for one in get_args(shape) if one is not NoneType]) == 1, "a union of several types"
        else:
            assert get_origin(shape) in (None, tuple), f"{shape}: `codec.decode` does not look into it"
