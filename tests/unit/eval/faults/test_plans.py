"""The first decision after a kill is looked at: one that is not as it should be is found."""

import asyncio
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from beamer.network.events import PlanChanged
from beamer.network.plan import JobPlan
from beamer.network.policies import network_policy
from beamer.studies.events import (
    AttemptStarted,
    Event,
    Progressed,
    StageRegistered,
    StudyRegistered,
    TargetSet,
    TrialRegistered,
)
from beamer.studies.journal.location import Location, sqlite_url
from beamer.studies.journal.store import Journal
from beamer.studies.model import Profile, Worker
from controller.settings import ControllerSettings
from eval.faults.plans import witnessing
from eval.faults.site import FABRIC
from tests.support.served_controller import made_runtime


def events(name: str) -> list[Event]:
    workers = tuple(Worker(rank, host.name) for rank, host in enumerate(FABRIC.hosts[:2]))
    return [
        StudyRegistered(1.0, name),
        StageRegistered(1.0, name, "r"),
        TrialRegistered(1.0, name, "t"),
        TargetSet(1.0, f"{name}/t", 9, "r"),
        AttemptStarted(1.0, f"{name}/t", "1", workers, Profile(10**6)),
    ]


async def lived(journal: Location, policy: str, *taken: Event) -> None:
    """Have a controller live: it decides, takes events in, and is gone before it decides on these."""
    runtime = made_runtime(ControllerSettings(FABRIC, network_policy(policy)), Journal(journal))
    await runtime.start()
    for event in taken:
        runtime.record(event)
    await runtime.stop()


@pytest.mark.parametrize("policy", ["fifo", "beamer"])
@pytest.mark.parametrize("goes_wrong", [False, True])
def test_the_first_decision_after_a_kill_is_compared(tmp_path: Path, policy: str, goes_wrong: bool) -> None:
    journal = sqlite_url(tmp_path / "journal.db")
    asyncio.run(lived(journal, policy, *events("a")))
    asyncio.run(lived(journal, policy, *events("b")))
    with witnessing(journal, policy) as witness:
        witness.look(0.0)  # nothing has come since
        assert witness.compared == 0
        asyncio.run(lived(journal, policy, Progressed(2.0, "a/t", 1)))
        if goes_wrong:
            _misplace(journal)
        witness.look(float("inf"))
        assert (witness.compared, witness.differing) == (1, int(goes_wrong))


def _misplace(journal: Location) -> None:
    """Have the last life's first decision give other classes."""
    with closing(Journal(journal)) as written:
        entries = list(written.entries())
        first = max(i for i, (_, event) in enumerate(entries) if isinstance(event, PlanChanged))
        decided = entries[first][1]
        assert isinstance(decided, PlanChanged)
        other = {key: JobPlan((plan.klass + 1) % 8) for key, plan in decided.jobs.items()}
        assert other
        written.cut(entries[first - 1][0], 1)
        written.append(replace(decided, jobs=other), *(event for _, event in entries[first + 1 :]))
