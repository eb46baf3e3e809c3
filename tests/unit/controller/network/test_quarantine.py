import asyncio
import math
from collections.abc import Callable, Coroutine, Generator, Sequence
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest

from beamer.decision.policy import Stateless
from beamer.network.policies import NetworkPolicy, Order
from beamer.network.policy import Tier
from beamer.network.snapshot import Snapshot
from beamer.studies.events import AttemptStarted, Event, StudyRegistered, TrialEnded, TrialRegistered
from beamer.studies.journal.store import Journal
from beamer.studies.model import Profile, TrialStatus, Worker
from beamer.studies.tracker import Tracker
from beamer.units import frame_bytes
from controller.http.responses import plan_response, trial_response
from controller.network.quarantine import MAX_TRIES, Group, culprits
from controller.runtime import Runtime
from controller.settings import ControllerSettings
from tests.support.served_controller import made_runtime
from topologies.single import build

FABRIC = build(hosts=3)
WORKERS = (Worker(0, FABRIC.hosts[0].name), Worker(1, FABRIC.hosts[1].name))
PROFILE = Profile(600_000)

STUDIES = [tuple(f"s{s}/t{t}" for t in range(8)) for s in range(16)]
ALL = frozenset(job for study in STUDIES for job in study)


class Policy:
    """Fails where it is given any of `bad`, or all of `together`, and counts how often it is asked."""

    def __init__(self, bad: frozenset[str], together: frozenset[str] = frozenset()) -> None:
        self.bad, self.together, self.asked = bad, together, 0

    def __call__(self, jobs: frozenset[str]) -> bool:
        self.asked += 1
        return not (jobs & self.bad) and not (self.together and self.together <= jobs)

    def culprits(self, studies: Sequence[Group] = STUDIES) -> frozenset[str]:
        """Return what is found with it."""
        search = culprits(studies)
        try:
            question = next(search)
            while True:
                question = search.send(self(question))
        except StopIteration as end:
            found: frozenset[str] = end.value
            return found


@pytest.mark.parametrize(
    "bad",
    [
        {"s0/t0"},
        {"s15/t7"},
        {"s3/t4", "s3/t5"},
        {"s1/t1", "s9/t2"},
        set(STUDIES[2]),
        {"s1/t1", "s5/t5", "s9/t0"},
    ],
)
def test_exactly_those_that_fail_are_found(bad: set[str]) -> None:
    policy = Policy(frozenset(bad))
    assert policy.culprits() == bad
    assert policy.asked <= MAX_TRIES


def test_one_culprit_takes_as_many_tries_as_the_halvings_twice() -> None:
    policy = Policy(frozenset({"s7/t3"}))
    policy.culprits()
    assert policy.asked <= 2 * math.log2(len(ALL)) + 3


@pytest.mark.parametrize("together", list(combinations(("s0/t0", "s0/t7", "s8/t1"), 2)))
def test_of_those_that_fail_only_together_the_others_are_planned(together: tuple[str, ...]) -> None:
    policy = Policy(frozenset(), frozenset(together))
    found = policy.culprits()
    assert found
    assert policy(ALL - found)
    assert policy.asked <= MAX_TRIES + 1


def test_where_many_fail_the_tries_are_bounded_and_some_are_planned() -> None:
    policy = Policy(frozenset(study[0] for study in STUDIES))
    found = policy.culprits()
    assert found >= policy.bad
    assert found != ALL
    assert policy.asked <= MAX_TRIES


def test_a_policy_that_always_fails_has_no_culprit() -> None:
    policy = Policy(ALL)
    assert policy.culprits() == frozenset()
    assert policy.culprits([]) is None
    assert Policy(frozenset({"a/b"})).culprits([("a/b",)]) == frozenset()


class Choosy(NetworkPolicy[Stateless]):
    """Orders jobs by name, and raises for one that synchronises `POISON` bytes."""

    name = "choosy"
    State = Stateless
    POISON_BITS = 8 * 1_000_003

    def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
        longest = snapshot.jobs.longest_bits / frame_bytes(1.0, FABRIC.mtu)
        if any(round(float(bits)) == self.POISON_BITS for bits in longest):
            raise ZeroDivisionError("a policy's defect")
        return state, tuple(Tier((key,)) for key in sorted(snapshot.jobs.key)), None


POISONED = Profile(1_000_003)


def started(study: str, name: str, profile: Profile = PROFILE, attempt: str = "one") -> tuple[Event, ...]:
    key = f"{study}/{name}"
    return TrialRegistered(1.0, study, name), AttemptStarted(1.0, key, attempt, WORKERS, profile)


def scene(path: Path, play: Callable[[Runtime], Coroutine[Any, Any, None]], policy: NetworkPolicy[Any] | None = None) -> None:
    async def run() -> None:
        journal = Journal(f"sqlite:///{path / 'journal.db'}")
        runtime = made_runtime(ControllerSettings(FABRIC, policy or Choosy()), journal)
        await runtime.start()
        try:
            await play(runtime)
        finally:
            await runtime.stop()

    asyncio.run(run())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def test_one_that_breaks_decisions_is_quarantined_and_all_others_are_planned(tmp_path: Path) -> None:
    good = {f"{study}/{name}" for study in ("x", "y") for name in "abcd"}

    async def begin(runtime: Runtime) -> None:
        for study in ("x", "y"):
            runtime.record(StudyRegistered(1.0, study, barriers=False))
            for name in "abcd":
                for event in started(study, name):
                    runtime.record(event)
        for event in started("y", "bad", POISONED):
            runtime.record(event)
        await until(lambda: runtime.plan.jobs.keys() == good)
        assert dict(runtime.quarantine.reasons) == {"y/bad": "ZeroDivisionError: a policy's defect"}
        assert plan_response(runtime)["quarantined"] == {"y/bad": "ZeroDivisionError: a policy's defect"}
        trial = trial_response(runtime, "y", None, "bad")
        assert (trial["class"], trial["quarantined"]) == (None, "ZeroDivisionError: a policy's defect")
        assert trial_response(runtime, "y", None, "a")["quarantined"] is None
        for event in started("x", "late"):
            runtime.record(event)
        await until(lambda: runtime.plan.jobs.keys() == good | {"x/late"})

    async def go_on(runtime: Runtime) -> None:
        assert runtime.plan.jobs.keys() == good | {"x/late"}
        await until(lambda: runtime.quarantine.reasons.keys() == {"y/bad"})
        assert runtime.plan.jobs.keys() == good | {"x/late"}
        runtime.record(started("y", "bad", attempt="two")[1])
        await until(lambda: "y/bad" in runtime.plan.jobs)
        assert not runtime.quarantine.reasons
        runtime.record(started("y", "bad", POISONED, "three")[1])
        await until(lambda: "y/bad" not in runtime.plan.jobs)
        runtime.record(TrialEnded(1.0, "y/bad", TrialStatus.KILLED))
        await until(lambda: not runtime.quarantine.reasons)

    scene(tmp_path, begin)
    scene(tmp_path, go_on)


@pytest.mark.parametrize("late", ["bad", "good"])
def test_what_starts_while_a_decision_is_prepared_has_no_other_job_quarantined(tmp_path: Path, late: str) -> None:
    """late: which starts then; the bad one may end before it is found."""
    good = {f"{study}/{name}" for study in "wxyz" for name in "abc"}
    of_late = started("w", "bad", POISONED) if late == "bad" else started("z", "late")

    async def play(runtime: Runtime) -> None:
        prepare, waiting = runtime.network.prepare, list(of_late)

        def prepared(tracker: Tracker) -> Generator[int, None, None]:
            if len(runtime.tracker.running) >= len(good):
                while waiting:
                    runtime.record(waiting.pop(0))
            yield from prepare(tracker)

        runtime.network.prepare = prepared  # type: ignore[method-assign]
        for study in "wxyz":
            runtime.record(StudyRegistered(1.0, study, barriers=False))
            for name in "abc":
                for event in started(study, name):
                    runtime.record(event)
        if late == "good":
            for event in started("w", "bad", POISONED):
                runtime.record(event)
        await until(lambda: runtime.quarantine.reasons.keys() == {"w/bad"} and good <= runtime.plan.jobs.keys())

    scene(tmp_path, play)


def test_a_policy_that_always_fails_is_not_asked_about_the_same_jobs_again_and_again(tmp_path: Path) -> None:
    asked: list[int] = []

    class Broken(Choosy):
        def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
            asked.append(len(snapshot.jobs.key))
            raise ZeroDivisionError("always")

    async def play(runtime: Runtime) -> None:
        runtime.record(StudyRegistered(1.0, "x", barriers=False))
        for name in "abcd":
            for event in started("x", name):
                runtime.record(event)
        await until(lambda: 4 in asked)
        before = len(asked)
        for weight in range(2, 12):
            runtime.record(StudyRegistered(1.0, "x", weight=float(weight), barriers=False))
            await until(lambda: len(asked) > before + weight - 2)  # noqa: B023  # awaited at once
        assert len(asked) <= before + 2 * 10
        assert not runtime.quarantine.reasons

    scene(tmp_path, play, Broken())


def test_the_search_leaves_time_for_everything_else_between_decisions(tmp_path: Path) -> None:
    asked: list[int] = []

    class Counting(Choosy):
        def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
            asked.append(len(snapshot.jobs.key))
            return super().order(state, snapshot, now, rng)

    async def play(runtime: Runtime) -> None:
        runtime.record(StudyRegistered(1.0, "x", barriers=False))
        for number in range(64):
            for event in started("x", f"t{number}", POISONED if number == 40 else PROFILE):
                runtime.record(event)
        in_a_turn = [0]
        before = len(asked)
        while not runtime.quarantine.reasons:
            await asyncio.sleep(0)
            in_a_turn.append(len(asked) - before)
            before = len(asked)
        assert sum(in_a_turn) > 6
        assert max(in_a_turn) == 1

    scene(tmp_path, play, Counting())
