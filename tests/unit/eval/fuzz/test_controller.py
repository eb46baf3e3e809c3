"""Hostile HTTP and agents' input: a bounded number from a fixed seed, and whether a fault of the controller would be found."""

import random

import pytest

from controller.http import api, responses
from controller.runtime import Runtime
from eval.fuzz import agents, http
from eval.fuzz.json_values import HOSTILE, hostile_json, to_json
from tests.support.tiers import long

SEED = 1


@pytest.mark.parametrize("inputs", [400, *long(2000)])
def test_no_request_disturbs_the_study_that_behaves(inputs: int) -> None:
    findings = http.run(seconds=60, seed=SEED, most_inputs=inputs)
    assert findings.failures == ()
    assert findings.inputs == inputs
    assert findings.accepted > inputs / 10
    assert findings.refused > inputs / 10


def test_no_agent_disturbs_the_good_ones() -> None:
    findings = agents.run(seconds=60, seed=SEED, most_inputs=150)
    assert findings.failures == ()
    assert findings.inputs == 150
    assert findings.accepted > 10
    assert findings.refused > 50


def test_an_error_of_the_controllers_own_is_a_finding_with_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(runtime: Runtime) -> dict[str, object]:
        raise KeyError("a fault")

    monkeypatch.setattr(responses, "latencies_response", faulty)
    findings = http.run(seconds=60, seed=SEED, most_inputs=600)
    (failure,) = findings.failures
    assert failure.what == "answered 500"
    assert b"/v1/latencies" in bytes.fromhex(failure.data[0])


def test_a_plan_that_changes_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = responses.plan_response

    def without_good(runtime: Runtime) -> dict[str, object]:
        plan = answered(runtime)
        return plan if len(runtime.tracker.studies) < 2 else {**plan, "jobs": {}}

    monkeypatch.setattr(api.responses, "plan_response", without_good)
    (failure,) = http.run(seconds=60, seed=SEED, most_inputs=600).failures
    assert "the plan of the study that behaves has changed" in failure.what


def test_an_agent_that_speaks_for_others_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def let_in(self: object, name: str, reading: object) -> None:
        """Let the newest agent of a name in beside the one that is served."""

    monkeypatch.setattr("controller.agents.hub.AgentHub._succeed", let_in)
    assert agents.run(seconds=60, seed=SEED, most_inputs=200).failures


def test_changes_are_the_same_for_the_same_seed_and_have_a_json_form() -> None:
    value = {"workers": [{"rank": 0, "host": "h1"}], "sync_bytes": 3}
    first, second = (
        [to_json(hostile_json(rng, value)) for _ in range(300)] for rng in (random.Random(SEED), random.Random(SEED))
    )
    assert first == second
    assert len(set(first)) > 100
    assert all(to_json(hostile) for hostile in HOSTILE)
