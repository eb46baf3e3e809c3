"""Two controllers on one PostgreSQL journal: one leads, the other one follows it and knows what it knew when it takes over."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from beamer.errors import PlatformError, SilentError, TakenError
from beamer.network.fabric import Fabric
from beamer.studies.events import Event, Progressed, StageRegistered, StudyRegistered, TargetSet, TrialRegistered
from beamer.studies.journal import batches as batches_module
from beamer.studies.journal.batches import Batches
from beamer.studies.journal.store import Journal
from beamer.studies.registry import Retention
from controller.journal.leadership import Lead, lead
from controller.journal.replay import snapshot
from tests.support.blackhole import blackhole
from tests.support.postgresql import PostgreSQL, socket_of
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
        return await lead(url, FABRIC, 1.0, Retention(), follows)


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
                first.journal.compact(snapshot(reader, FABRIC, Retention()))
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
        told: list[PlatformError] = []
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


def test_a_leader_that_its_database_does_not_answer_is_told_and_another_one_leads(url: str) -> None:
    async def play() -> None:
        async with blackhole(url) as hole:
            first = await leading(hole.url)
            lost: list[PlatformError] = []
            batches = Batches(first.journal, lost.append)
            batches.keep()
            batches.put(events("s")[0])
            await batches.written()
            hole.swallow()
            batches.put(events("s")[1])
            waiting = asyncio.create_task(batches.written())
            second = await leading(url)
            async with asyncio.timeout(PATIENCE_S):
                while not lost:
                    await asyncio.sleep(0.05)
                with pytest.raises(SilentError):
                    await waiting
            assert isinstance(lost[0], SilentError)
            assert list(second.recovered.tracker.studies) == ["s"]
            with pytest.raises(SilentError):
                batches.put(events("s")[2])
            await batches.close()
            second.journal.close()

    asyncio.run(play())


def test_a_leader_stays_while_another_session_locks_its_table(server: PostgreSQL, url: str) -> None:
    async def play() -> None:
        first = await leading(url)
        lost: list[PlatformError] = []
        batches = Batches(first.journal, lost.append)
        batches.keep()
        database = socket_of(url).database
        locking = asyncio.create_task(
            asyncio.to_thread(server.query, "BEGIN; LOCK TABLE events; SELECT pg_sleep(8); COMMIT", database)
        )
        await asyncio.sleep(1.0)
        batches.put(events("s")[0])
        with pytest.raises(PlatformError, match="lock timeout"):
            await batches.written()
        await locking
        async with asyncio.timeout(PATIENCE_S):
            while batches.waiting:
                await asyncio.sleep(0.05)
        assert not lost
        assert batches.failure is None
        await batches.close()

    asyncio.run(play())


def test_a_follower_waits_for_a_database_that_is_away(url: str) -> None:
    async def play() -> None:
        first = await leading(url)
        batches = Batches(first.journal)
        batches.keep()
        async with blackhole(url) as hole:
            follows = asyncio.Event()
            second = asyncio.create_task(leading(hole.url, follows.set))
            async with asyncio.timeout(PATIENCE_S):
                await follows.wait()
            hole.swallow()
            await asyncio.sleep(8.0)  # longer than it waits for an answer
            assert not second.done()
            hole.hand_on()
            batches.put(events("s")[0])
            await batches.close()
            taken = await second
            with closing(taken.journal):
                assert list(taken.recovered.tracker.studies) == ["s"]

    asyncio.run(play())


def test_a_term_is_raised_by_who_leads_alone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "KEEP_S", PATIENCE_S)

    async def play() -> None:
        first = await leading(url)
        batches = Batches(first.journal)
        assert await batches.raise_term(57) == 57
        assert await batches.raise_term(5) == 57
        second = await leading(url)  # after a silence
        assert second.journal.term == 58
        for _ in range(2):
            with pytest.raises(PlatformError):
                await batches.raise_term(100)
        assert second.journal.term == 58
        await batches.close()
        second.journal.close()
        third = await leading(url)
        assert third.journal.term == 59
        third.journal.close()

    asyncio.run(play())


def test_a_sqlite_journal_has_one_controller(tmp_path: Path) -> None:
    async def play() -> None:
        url = f"sqlite:///{tmp_path}/journal.db"
        first = await leading(url)
        with closing(first.journal), pytest.raises(TakenError, match="written by another process"):
            await leading(url)

    asyncio.run(play())
