"""Engines and supervisors of 0.1.0, as recorded, with today's supervisor and engine."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beamer.engines.local.spec import LaunchSpec
from beamer.engines.local.states import RanksState
from beamer.engines.local.supervisor import control, messages, store
from beamer.engines.local.supervisor.messages import Accepted, End, GetStatus, Kill, Launch, Status
from tests.support.recordings import TRAINER, check, entries

PATIENCE_S = 20.0
RECORDING = [entry.json for entry in entries("supervisor")]
REQUESTS, ANSWERS = RECORDING[::2], RECORDING[1::2]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Start a supervisor, and end it."""
    made = tmp_path / "job"
    control.run(control.supervisor_command(str(made), "signals", sys.executable), PATIENCE_S)
    yield made
    control.ask(made, End(), PATIENCE_S)


def say(directory: Path, request: Any) -> Any:
    with store.connect(directory, PATIENCE_S) as client, client.makefile("rwb") as stream:
        stream.write(json.dumps(request).encode() + b"\n")
        stream.flush()
        return json.loads(stream.readline())


def test_every_kind_of_request_is_recorded() -> None:
    assert {request["kind"] for request in REQUESTS} == set(messages.REQUESTS)
    assert {answer["kind"] for answer in ANSWERS} == set(messages.ANSWERS)


def test_a_recorded_engine_is_served_as_it_was(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINER)
    port = 0
    for request, recorded in zip(REQUESTS, ANSWERS, strict=True):
        if request["kind"] == "end":
            break
        if request["kind"] == "launch":
            spec = request["spec"] | {"command": [sys.executable, str(tmp_path / "train.py")]}
            request = request | {"spec": spec, "master_port": port}
        if request["kind"] == "status" and recorded["run"]["number"]:  # as far as it was when this was recorded
            _until(directory, recorded["run"]["state"], len(recorded["reports"]))
        answer = say(directory, request)
        check(f"answer.{answer['kind']}", {name: value for name, value in answer.items() if name != "kind"})
        assert answer.keys() == recorded.keys()
        assert answer["kind"] == recorded["kind"]
        if answer["kind"] == "refused":
            assert answer == recorded
        port = answer.get("port", port)


def _until(directory: Path, state: str, reports: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        status = control.ask(directory, GetStatus(), PATIENCE_S)
        assert isinstance(status, Status)
        if status.run.state == state and (status.count > 2 or not reports):
            return
        time.sleep(0.05)
    raise AssertionError(f"it does not come to be {state}")


def test_recorded_answers_are_read_by_todays_engine() -> None:
    for answer in ANSWERS:
        received = messages.read_answer(json.dumps(answer))
        assert (received.version, received.unused) == (1, ())


def test_what_todays_engine_asks_of_a_supervisor_of_0_1_0_is_what_that_knows() -> None:
    spec = LaunchSpec(("true",))
    for request in (Launch(1, spec, (0,), (), 1, "", 0, 1), GetStatus(), Kill(), End()):
        said = json.loads(messages.encode(request, 1))
        check(f"request.{said.pop('kind')}", said)


def test_a_supervisor_outlives_an_engine_of_another_version(directory: Path) -> None:
    launched = Launch(1, LaunchSpec(("sleep", "60")), (0,), (), 1, "127.0.0.1", 1, 1)
    assert say(directory, json.loads(messages.encode(launched, 1))) == {"kind": "accepted"}
    status = control.ask(directory, GetStatus(), PATIENCE_S)
    assert isinstance(status, Status)
    assert status.run.state is RanksState.RUNNING
    assert say(directory, {"kind": "suspend", "timeout_s": 5.0, "protocol": 2}) == {"kind": "accepted", "protocol": 2}
    assert say(directory, {"kind": "resume", "timeout_s": 5.0}) == {"kind": "accepted"}
    assert control.ask(directory, Kill(), PATIENCE_S) == Accepted()


def test_a_newer_engines_fields_are_named_once_in_the_supervisors_log(directory: Path) -> None:
    for _ in range(2):
        answer = say(directory, {"kind": "status", "after": 0, "soon": True, "protocol": 3})
        assert (answer["kind"], answer["protocol"]) == ("status", 2)
    assert (directory / "log").read_text().count("the engine speaks version 3: status.soon is not used") == 1
    refused = say(directory, {"kind": "status", "protocol": 4})
    assert refused["reason"] == "protocol: got 4, expected version 1 to 3: upgrade the supervisor to protocol version 3 first"
