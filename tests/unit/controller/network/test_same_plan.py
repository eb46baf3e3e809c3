"""What a controller that starts again decides: the same at the same instant; later, what the one before would decide then."""

import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from beamer.errors import InputError
from beamer.network.plan import JobPlan
from beamer.network.policies import network_policy
from beamer.studies.events import (
    AttemptStarted,
    Event,
    Progressed,
    StageRegistered,
    StudyRegistered,
    TargetSet,
    TrialEnded,
    TrialRegistered,
)
from beamer.studies.model import Profile, Rung, TrialStatus, Worker
from controller.liveness.watch import WatchOptions
from tests.unit.controller.test_runtime import HOSTS, Desk, run, until

START_S = 1000.0
LATER_S = 4 * 3600.0
SEEDS = range(12)
PATIENT = WatchOptions(silence_s=0.0)

Classes = Mapping[str, JobPlan]


def searches(rng: random.Random) -> Iterator[Event]:
    """Yield events of some searches, in a random order; what is not legal is to be left out."""
    at_s = START_S
    for number in range(6):
        study = f"s{number}"
        yield StudyRegistered(at_s, study, "1", rng.choice((1.0, 3.0)), (Rung("r0", 3, 40), Rung("r1", 1, 200)))
        yield StageRegistered(at_s, study, "r0")
        for name in "abc":
            key = f"{study}/{name}"
            workers = tuple(Worker(rank, host) for rank, host in enumerate(rng.sample(HOSTS, 2)))
            yield TrialRegistered(at_s, study, name)
            yield TargetSet(at_s, key, rng.randrange(10, 100), "r0")
            yield AttemptStarted(at_s, key, "1", workers, Profile(rng.choice((10**5, 10**6, 10**7)), compute_s=0.1))
            at_s += rng.uniform(0, 600)
    for _ in range(60):
        key = f"s{rng.randrange(6)}/{rng.choice('abc')}"
        at_s += rng.uniform(0, 60)
        if rng.random() < 0.1:
            yield TrialEnded(at_s, key, TrialStatus.KILLED)
        else:
            yield Progressed(at_s, key, rng.randrange(1, 60), rng.random())


async def begun(path: Path, seed: int) -> Desk:
    """Return a controller that has taken searches in and decided, at the time of the last event."""
    desk = Desk(path, network_policy("beamer"), clock_s=START_S, watch=PATIENT)
    await desk.runtime.start()
    for event in searches(random.Random(seed)):
        desk.clock.now = event.at_s
        with suppress(InputError):
            desk.runtime.record(event)
    await desk.runtime._planner.start()
    await desk.runtime.written()
    return desk


async def started_again(path: Path, copy: Path, at_s: float) -> Classes:
    """Return the plan of a controller that starts on a copy of a journal at a time."""
    copy.mkdir()
    for file in path.glob("journal.db*"):
        shutil.copy(file, copy)
    desk = Desk(copy, network_policy("beamer"), clock_s=at_s, watch=PATIENT)
    await desk.runtime.start()
    plan = dict(desk.runtime.plan.jobs)
    await desk.runtime.stop()
    return plan


@pytest.mark.parametrize("seed", SEEDS)
def test_a_controller_that_starts_again_decides_as_the_one_before_would(tmp_path: Path, seed: int) -> None:
    async def play() -> None:
        (tmp_path / "first").mkdir()
        desk = await begun(tmp_path / "first", seed)
        now = desk.clock.now
        assert len(desk.runtime.plan.jobs) > 3
        assert await started_again(tmp_path / "first", tmp_path / "now", now) == dict(desk.runtime.plan.jobs)
        later = await started_again(tmp_path / "first", tmp_path / "later", now + LATER_S)
        desk.clock.now = now + LATER_S
        generation = desk.runtime.installation.generation
        await desk.runtime._planner.start()
        await until(lambda: not desk.runtime.batches.waiting)
        assert dict(desk.runtime.plan.jobs) == later, "at the same time"
        assert desk.runtime.installation.generation - generation in (0, 1)
        await desk.runtime.stop()

    run(play())


def test_the_time_alone_changes_plans(tmp_path: Path) -> None:
    """Otherwise nothing was shown above: what has been waited for much longer goes first, until both have been for long."""

    async def play() -> None:
        desk = Desk(tmp_path, network_policy("beamer"), clock_s=START_S, watch=PATIENT)
        await desk.runtime.start()
        workers = tuple(Worker(rank, host) for rank, host in enumerate((HOSTS[0], HOSTS[2])))
        for study, at_s, steps in (("long", START_S, 1000), ("short", START_S + LATER_S, 100)):
            desk.clock.now = at_s
            desk.record(
                StudyRegistered(at_s, study),
                StageRegistered(at_s, study, "r"),
                TrialRegistered(at_s, study, "t"),
                TargetSet(at_s, f"{study}/t", steps, "r"),
                AttemptStarted(at_s, f"{study}/t", "1", workers, Profile(10**6)),
            )
        orders = []
        for passed_s in (1.0, 1000 * LATER_S):
            desk.clock.now = START_S + LATER_S + passed_s
            await desk.runtime._planner.start()
            classes = {key: job.klass for key, job in desk.runtime.plan.jobs.items()}
            orders.append(sorted(classes, key=lambda key: classes[key]))
        assert orders == [["long/t", "short/t"], ["short/t", "long/t"]]
        await desk.runtime.stop()

    run(play())
