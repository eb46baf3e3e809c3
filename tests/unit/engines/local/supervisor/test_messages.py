"""Messages between engine and supervisor: all of them survive the line, and what is none is refused by name."""

import math
from typing import get_args

import pytest

from beamer.engines.local.spec import LaunchSpec
from beamer.engines.local.states import RanksState
from beamer.engines.local.supervisor import codec
from beamer.engines.local.supervisor.messages import (
    ANSWERS,
    REQUESTS,
    Accepted,
    Checkpoint,
    End,
    FreePort,
    GetPort,
    GetStatus,
    Kill,
    Launch,
    Refused,
    Resume,
    RunStatus,
    Status,
    Stop,
    SupervisorAnswer,
    SupervisorRequest,
    Suspend,
    encode,
    read_answer,
    read_request,
)
from beamer.engines.local.supervisor.progress import NodeReport, Progress
from beamer.errors import InputError

SPEC = LaunchSpec(("python", "train.py"), env=(("A", "1"),), grace_s=2.5, batch_size=32)
SENT: tuple[SupervisorRequest, ...] = (
    GetStatus(12),
    GetPort(keep=False),
    Launch(3, SPEC, (1, 2), ("0", "GPU-3"), 4, "10.0.0.1", 4711, 64, Progress(4.0, 2.0, 1.5, 0.5), 0.25, 60.0, 30.0),
    Suspend(5.0, 2.5),
    Resume(5.0),
    Resume(5.0, ("0", "GPU-3")),
    Stop(5.0),
    Checkpoint(),
    Kill(),
    End(forget=True, run=3),
)
REPORTS = (NodeReport(1.0, 2.0, 0.5, 3.0), NodeReport(2.0, 3.0, 0.25, 4.0, accuracy=0.5, gradient_sqr=1.0, gradient_var=2.0))
RUN = RunStatus(
    3, RanksState.STOPPED, "a note", "an exit", 0.5, Progress(4.0), 1.5, 0.25, 20.0, "a line", True, 60.0, 30.0, 2.5
)
ANSWERED: tuple[SupervisorAnswer, ...] = (
    Status(RUN, 100.0, 0.5, REPORTS, 2, True, "signals", 4711),
    Status(RunStatus(), 100.0, 0.5, (), 0, False, "cgroup2", 4711),
    FreePort(4711),
    Accepted(),
    Refused("it is suspended"),
)


def test_every_kind_of_message_has_a_name() -> None:
    assert set(REQUESTS.values()) == set(get_args(SupervisorRequest)) == {type(one) for one in SENT}
    assert set(ANSWERS.values()) == set(get_args(SupervisorAnswer)) == {type(one) for one in ANSWERED}


@pytest.mark.parametrize("request_", SENT, ids=lambda one: type(one).__name__)
def test_requests_survive_the_line(request_: SupervisorRequest) -> None:
    line = encode(request_)
    assert "\n" not in line
    assert read_request(line).message == read_request(line.encode()).message == request_


@pytest.mark.parametrize("answer", ANSWERED, ids=lambda one: type(one).__name__)
def test_answers_survive_the_line(answer: SupervisorAnswer) -> None:
    assert read_answer(encode(answer)).message == answer


def test_losses_that_are_no_numbers_survive_the_line() -> None:
    reports = (NodeReport(1.0, 2.0, math.inf, 3.0), NodeReport(1.0, 2.0, math.nan, 3.0))
    answer = read_answer(encode(Status(RUN, 100.0, 0.5, reports, 2, False, "signals", 4711))).message
    assert isinstance(answer, Status)
    assert answer.reports[0].loss == math.inf
    assert math.isnan(answer.reports[1].loss)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("suspend", r"request: got 'suspend', expected a line of JSON"),
        ("[" * 100_000, "expected a line of JSON"),
        ("[]", r'request: got \[\], expected a JSON object with "kind"'),
        ('{"call": "status"}', 'expected a JSON object with "kind"'),
        ('{"kind": "suspends"}', r"request\.kind: got 'suspends', expected one of .* \(did you mean 'suspend'\?\)"),
        ('{"kind": ["suspend"]}', r"request\.kind: got \['suspend'\], expected one of checkpoint"),
        ('{"kind": "accepted"}', r"request\.kind: got 'accepted', expected one of checkpoint"),
        ('{"kind": "suspend"}', r"suspend\.timeout_s: got None, expected a value, as Suspend requires it"),
        (
            '{"kind": "suspend", "timeout": 5}',
            r"suspend\.timeout: got 5, expected a field of Suspend: one of offloads, park_after_s, timeout_s",
        ),
        ('{"kind": "suspend", "timeout_s": "5"}', r"suspend\.timeout_s: got '5', expected a value of type float"),
        ('{"kind": "suspend", "timeout_s": true}', r"suspend\.timeout_s: got True, expected a value of type float"),
        ('{"kind": "end", "forget": 1}', r"end\.forget: got 1, expected a value of type bool"),
        ('{"kind": "status", "after": 1.5}', r"status\.after: got 1\.5, expected a value of type int"),
        ('{"kind": "launch", "run": 1, "spec": {"command": []}}', r"launch\.spec\.command: got \(\), expected a program"),
        ('{"kind": "launch", "run": 1, "spec": {"command": ["a", 1]}}', r"launch\.spec\.command\[1\]: got 1, expected a value"),
        (
            '{"kind": "launch", "run": 1, "spec": {"command": ["a"], "env": [["A"]]}}',
            r"launch\.spec\.env\[0\]: .*a list of 2",
        ),
        ('{"kind": "launch", "run": 1, "spec": 3}', r"launch\.spec: got 3, expected an object with the fields of LaunchSpec"),
    ],
)
def test_what_is_no_request_is_named(line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_request(line)


def test_what_is_no_answer_is_named() -> None:
    with pytest.raises(InputError, match=r"RunStatus\.state: got 'asleep', expected one of .*"):
        codec.decode(RunStatus, {"state": "asleep"}, "RunStatus")
    with pytest.raises(InputError, match=r"answer\.kind: got 'launch', expected one of accepted, port, refused, status"):
        read_answer(encode(SENT[2]))
    assert codec.decode(RunStatus, {"restart_s": None}) == RunStatus()
    assert codec.decode(RunStatus, {"restart_s": 2}) == RunStatus(restart_s=2.0)
