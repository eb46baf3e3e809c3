"""Hostile WebSocket frames, processes, controllers and answers: a bounded number from a fixed seed, and what would be found."""

import random
from collections.abc import Callable

import pytest

from beamer.client.transport import _Stream
from beamer.network.protocol import Assignment, Welcome
from beamer.versioned_messages import Decoded
from eval.fuzz import agent_link, attach, client, websocket
from eval.fuzz.findings import Findings
from eval.fuzz.websocket_frames import hostile_frames
from hostagent import agent as agent_module
from hostagent.workers import attach as attach_module
from hostagent.workers.attach import AttachRequest

SEED = 1
RUNS: dict[str, tuple[Callable[[float, int, int | None], Findings], int]] = {
    "websocket": (websocket.run, 100),
    "attach": (attach.run, 300),
    "agent-link": (agent_link.run, 60),
    "client": (client.run, 60),
}


@pytest.mark.parametrize("target", RUNS)
def test_nothing_hostile_disturbs_what_is_good(target: str) -> None:
    run, inputs = RUNS[target]
    findings = run(120, SEED, inputs)
    assert findings.failures == ()
    assert (findings.target, findings.inputs) == (target, inputs)
    assert findings.accepted > inputs / 20
    assert findings.refused > inputs / 20


def test_a_defect_of_the_attach_server_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = attach_module.parse_request

    def faulty(line: bytes) -> Decoded[AttachRequest]:
        if b"good" in line:
            return parse(line)
        raise KeyError("a fault")

    monkeypatch.setattr(attach_module, "parse_request", faulty)
    (failure,) = attach.run(60, SEED, 20).failures
    assert "KeyError('a fault')" in failure.what


def test_a_defect_of_the_agent_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = agent_module.parse_message

    def faulty(frame: str | bytes, version: int) -> Decoded[Assignment | Welcome]:
        if len(frame) > 1000:
            raise KeyError("a fault")
        return parse(frame, version)

    monkeypatch.setattr(agent_module, "parse_message", faulty)
    (failure,) = agent_link.run(60, SEED, 60).failures
    assert "KeyError('a fault')" in failure.what


def test_a_client_that_takes_any_answer_for_its_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Stream, "end_answer", lambda stream, body_bytes: None)
    (failure,) = client.run(120, SEED, 400).failures
    assert failure.what == "a report was not delivered"


@pytest.mark.parametrize("masked", [True, False])
def test_frames_are_the_same_for_the_same_seed(masked: bool) -> None:
    first, second = (
        [hostile_frames(rng, [b'{"kind":"hello"}'], masked) for _ in range(300)]
        for rng in (random.Random(SEED), random.Random(SEED))
    )
    assert first == second
    assert len(set(first)) > 150
