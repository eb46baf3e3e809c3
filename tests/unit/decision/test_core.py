"""The decision core of both levels: recall, seeds, checks, and what survives a policy's defect."""

import logging
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from beamer.decision.core import RETRY_S, DecisionCore, seeded
from beamer.decision.policy import Policy, Stateless
from beamer.errors import InputError
from beamer.gpu.events import Allocated
from beamer.studies.events import Decision

OLD = ("old",)


@dataclass(frozen=True)
class Count:
    """How often the policy was asked."""

    asked: int = 0


class Counting(Policy[Count]):
    """Remembers how often it was asked."""

    name = "counting"
    State = Count


class Forgetful(Policy[Stateless]):
    """Remembers nothing."""

    name = "forgetful"
    State = Stateless


View = tuple[str, ...]


def decide(state: Count, view: View, now: float, rng: Random) -> tuple[Count, View, float | None]:
    if "raise" in view:
        raise RuntimeError("a defect")
    return Count(state.asked + 1), view, now + rng.random()


def check(view: View, content: View) -> None:
    if "wrong" in content:
        raise InputError("content", content, "something that can be")


def core(last: Decision | None = None, seed: int = 0, live: bool = True) -> DecisionCore[Count, View, View]:
    return DecisionCore(Counting(), decide, check, last, seeded(seed), live)


def decided(state: Any, policy: str = "counting", generation: int = 7) -> Decision:
    return Allocated(1.0, policy, generation, state, {}, {})


def test_what_is_decided_is_remembered_when_it_is_adopted() -> None:
    made = core()
    first = made.propose(lambda: ("a",), OLD, 0.0, 9)
    assert (first.content, first.state, first.plain_state, first.failed) == (("a",), Count(1), {"asked": 1}, False)
    assert made.state == Count(0), "it is not in force yet"
    made.adopt(first)
    assert made.propose(lambda: ("a",), OLD, 0.0, 9).state == Count(2)
    assert made.standing(OLD).content == OLD


def test_a_restarted_core_draws_as_its_predecessor_would_have() -> None:
    first = core(seed=3)
    first.adopt(first.propose(lambda: ("a",), OLD, 0.0, 8))
    again = core(decided({"asked": 1}, generation=8), seed=3)
    assert again.state == Count(1)
    proposed = again.propose(lambda: ("a",), OLD, 0.0, 9)
    assert proposed == first.propose(lambda: ("a",), OLD, 0.0, 9)
    assert proposed.wake_s != core(decided({"asked": 1}), seed=3).propose(lambda: ("a",), OLD, 0.0, 10).wake_s
    assert proposed.wake_s != core(decided({"asked": 1}, generation=8), seed=4).propose(lambda: ("a",), OLD, 0.0, 9).wake_s


def test_another_policy_starts_afresh() -> None:
    made = core(decided({"order": []}, policy="other"))
    assert made.state == Count(0)


@pytest.mark.parametrize("view", [("raise",), ("wrong",)])
def test_a_failure_leaves_what_is_in_force(view: View, caplog: pytest.LogCaptureFixture) -> None:
    made = core(decided({"asked": 4}))
    proposed = made.propose(lambda: view, OLD, 0.0, 9)
    assert (proposed.content, proposed.state, proposed.plain_state, proposed.wake_s) == (OLD, Count(4), {"asked": 4}, RETRY_S)
    assert proposed.failed
    assert "policy counting failed, the old decision stays in force" in caplog.text
    assert made.propose(lambda: ("a",), OLD, 0.0, 9).content == ("a",), "the next decision is made as if nothing had happened"


def test_a_view_that_cannot_be_made_leaves_what_is_in_force() -> None:
    def view() -> View:
        raise OverflowError("too large")

    assert core().propose(view, OLD, 0.0, 1).failed


@pytest.mark.parametrize("state", [object(), Count(1.5), Count(float("inf")), {"asked": 1}])  # type: ignore[arg-type]
def test_a_state_that_the_journal_cannot_keep_leaves_what_is_in_force(state: Any) -> None:
    def unkept(before: Count, view: View, now: float, rng: Random) -> tuple[Any, View, None]:
        return state, view, None

    made: DecisionCore[Any, View, View] = DecisionCore(Counting(), unkept, check, None, seeded(0))
    assert made.propose(lambda: ("a",), OLD, 0.0, 9).failed


@pytest.mark.parametrize("state", [{"asked": "often"}, [1], None, {"asked": {}}])
def test_a_state_that_cannot_be_read_is_replaced(state: Any, caplog: pytest.LogCaptureFixture) -> None:
    made = core(decided(state))
    assert made.state == Count(0)
    assert "policy counting cannot read what it remembered and starts afresh" in caplog.text


def test_a_simulation_shows_defects(caplog: pytest.LogCaptureFixture) -> None:
    made = core(live=False)
    with pytest.raises(RuntimeError, match="a defect"):
        made.propose(lambda: ("raise",), OLD, 0.0, 9)
    with pytest.raises(InputError, match="something that can be"):
        made.propose(lambda: ("wrong",), OLD, 0.0, 9)
    with pytest.raises(InputError, match="state of counting"):
        core(decided([1]), live=False)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_policy_without_memory_has_its_state() -> None:
    made: DecisionCore[Stateless, View, View] = DecisionCore(
        Forgetful(), lambda state, view, now, rng: (state, view, None), check, None, seeded(0)
    )
    proposed = made.propose(lambda: ("a",), OLD, 0.0, 9)
    assert (proposed.state, proposed.plain_state) == (Stateless(), {})


def test_a_failure_is_logged_once_until_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    made = core()
    for view in (("raise",), ("raise",), ("wrong",), ("a",), ("wrong",)):
        made.propose(lambda view=view: view, OLD, 0.0, 1)  # type: ignore[misc]  # its default
    assert [record.levelno for record in caplog.records if "failed" in record.message] == [logging.ERROR] * 3
