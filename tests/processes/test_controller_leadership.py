"""Two controllers on one PostgreSQL journal: one leads, the other one follows it and knows what it knew when it takes over."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from beamer.errors import PlatformError, TakenError
from beamer.network.fabric import Fabric
from beamer.studies.events import Event, Progressed, StageRegistered, StudyRegistered, TargetSet, TrialRegistered
from beamer.studies.journal import batches as batches_module
from beamer.studies.journal.batches import Batches
from beamer.studies.journal.store import Journal
from beamer.studies.known import Kept
from beamer.testing.postgresql import PostgreSQL
from controller.journal.leadership import Lead, lead
from controller.journal.replay import snapshot
from topologies.single import build

FABRIC: Fabric = build(hosts=2)
PATIENCE_S = 30.0


def events(study: str) -> list[Event]:
    return [
        StudyRegistered(1.0, study),
        StageRegistered(1.0, study, "r"),
        TrialRegistered(2.0, study, "t"),
        TargetSet(3.0, f"{study}/t", 9, "r"),
        *(Progressed(4.0 + step, f"{study}/t", step, 0.1 * step) for step in range(1, 9)),
    ]


async def leading(url: str, follows: Callable[[], None] = lambda: None) -> Lead:
    async with asyncio.timeout(PATIENCE_S):
        return await lead(url, FABRIC, 1.0, Kept(), follows)


def write(led: Lead, *taken: Event) -> None:
    for event in taken:
        assert led.recovered.tracker.check(event)
        led.journal.append(event)
        led.recovered.tracker.apply(event)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_follower_knows_what_the_leader_knew(url: str, compacted: bool) -> None:
    async def play() -> None:
        first = await leading(url)
        write(first, *events("before"))
        follows = asyncio.Event()
        second = asyncio.create_task(leading(url, follows.set))
        async with asyncio.timeout(PATIENCE_S):
            await follows.wait()
        write(first, *events("meanwhile"))
        if compacted:
            with closing(Journal(url, writes=False)) as reader:
                first.journal.compact(snapshot(reader, FABRIC, Kept()))
        await asyncio.sleep(1.0)  # it looks again several times
        assert not second.done()
        write(first, *events("at-last"))
        first.journal.close()
        taken_over = await second
        with closing(taken_over.journal):
            assert taken_over.recovered.tracker == first.recovered.tracker
            assert taken_over.journal.term == first.journal.term + 1
            write(taken_over, *events("after"))
        third = await leading(url)
        with closing(third.journal):
            assert third.recovered.tracker == taken_over.recovered.tracker

    asyncio.run(play())


def test_a_leader_of_whom_nothing_is_heard_is_replaced_and_told(
    server: PostgreSQL, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches_module, "KEEP_S", 0.2)

    async def play() -> None:
        first = await leading(url)
        write(first, *events("s"))
        second = asyncio.create_task(leading(url))
        taken = await second  # the first one is silent for longer than the server waits
        assert taken.recovered.tracker == first.recovered.tracker
        told: list[TakenError] = []
        batches = Batches(first.journal, told.append)
        batches.keep()
        async with asyncio.timeout(PATIENCE_S):
            while not told:
                await asyncio.sleep(0.05)
        write(taken, *events("t"))
        await batches.close()
        taken.journal.close()

    asyncio.run(play())


def test_a_leader_knows_that_it_leads_only_as_of_when_it_asked(
    server: PostgreSQL, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches_module, "KEEP_S", PATIENCE_S)

    async def play() -> None:
        first = await leading(url)
        batches = Batches(first.journal)
        batches.put(events("s")[0])
        await batches.confirm()
        assert not batches.waiting, "what is written confirms as much"
        await asyncio.gather(*(batches.confirm() for _ in range(10)))
        second = await leading(url)  # after a silence
        with closing(second.journal):
            for _ in range(2):
                with pytest.raises(PlatformError):
                    await batches.confirm()
        await batches.close()

    asyncio.run(play())


def test_a_leader_that_gives_signs_of_life_stays(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "KEEP_S", 0.5)

    async def play() -> None:
        first = await leading(url)
        batches = Batches(first.journal)
        batches.keep()
        second = asyncio.create_task(leading(url))
        await asyncio.sleep(5.0)  # longer than the server waits for a silent session
        assert not second.done()
        batches.put(events("s")[0])
        await batches.written()
        await batches.close()
        taken = await second
        with closing(taken.journal):
            assert list(taken.recovered.tracker.studies) == ["s"]

    asyncio.run(play())


def test_a_sqlite_journal_has_one_controller(tmp_path: Path) -> None:
    async def play() -> None:
        url = f"sqlite:///{tmp_path}/journal.db"
        first = await leading(url)
        with closing(first.journal), pytest.raises(TakenError, match="written by another process"):
            await leading(url)

    asyncio.run(play())
