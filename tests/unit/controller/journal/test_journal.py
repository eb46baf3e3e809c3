"""What the controller does about a journal that takes nothing, and one that grows."""

import asyncio
import itertools
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from beamer.errors import InputError, PlatformError
from beamer.studies.events import Event, Progressed, StudyRegistered, encode
from beamer.studies.journal.chain import ChainLink
from beamer.studies.journal.store import Journal, JournalSnapshot
from controller.http.metrics import exposition
from controller.http.responses import health_response
from controller.journal import compaction
from tests.unit.controller.test_runtime import REGISTERED, Desk, attached, run, until


def test_what_the_journal_refuses_is_not_remembered(tmp_path: Path) -> None:
    async def play() -> None:
        desk = Desk(tmp_path)
        await desk.runtime.start()
        desk.record(*REGISTERED)
        heard = desk.runtime.watch._silence._heard_s
        before = set(heard)

        def refuse(event: Event) -> int:
            raise PlatformError("the disk is full", "make room")

        desk.runtime.batches.put = refuse  # type: ignore[method-assign]
        for i in range(100):
            with pytest.raises(PlatformError):
                desk.runtime.record(StudyRegistered(1000.0, f"s{i}"))
            with pytest.raises(InputError):
                desk.runtime.record(Progressed(1000.0, f"mnist/unknown{i}", 1))
        assert set(heard) == before
        assert not desk.runtime.record(REGISTERED[0]), "a repeat is heard, and takes no place in the journal"
        await desk.runtime.stop()

    run(play())


def test_health_says_that_the_journal_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        desk = Desk(tmp_path)
        await desk.runtime.start()
        assert health_response(desk.runtime)["status"] == "ok"
        assert b"beamer_journal_takes_events 1.0" in exposition(desk.runtime)

        def refuse(journal: Journal, events: object) -> None:
            raise PlatformError("the disk is full", "make room")

        with monkeypatch.context() as failing:
            failing.setattr(Journal, "append_encoded", refuse)
            desk.record(REGISTERED[0])
            with pytest.raises(PlatformError):
                await desk.runtime.written()
            health = health_response(desk.runtime)
            assert (health["status"], health["journal"]["waiting"]) == ("read-only", 1)
            assert "the disk is full" in health["journal"]["failure"]
            assert b"beamer_journal_takes_events 0.0" in exposition(desk.runtime)
        await until(lambda: health_response(desk.runtime)["status"] == "ok")
        await desk.runtime.stop()

    run(play())


@pytest.mark.parametrize("error", [OSError("no more processes"), PlatformError("no", "try"), KeyError("a defect")])
def test_a_snapshot_that_cannot_be_made_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    made: list[float] = []

    async def fail(*_: object) -> JournalSnapshot:
        made.append(asyncio.get_running_loop().time())
        raise error

    async def play() -> None:
        desk = Desk(tmp_path, snapshot_events=5)
        await desk.runtime.start()
        desk.record(*REGISTERED, attached("mnist/a", 0, 7))
        step = itertools.count(1)

        def tried(times: int) -> bool:
            desk.record(Progressed(1000.0, "mnist/a", next(step)))
            return len(made) >= times

        with capture_logs() as lines:
            await until(lambda: tried(3))
        assert sum(line["event"] == "the journal is not compacted" for line in lines) >= 3
        assert made[1] - made[0] >= 0.05
        await desk.runtime.stop()

    monkeypatch.setattr(compaction, "RETRY_S", 0.05)
    monkeypatch.setattr(compaction, "made_in_child", fail)
    run(play())


def test_a_journal_of_long_events_is_compacted_before_it_has_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def made(*_: object) -> JournalSnapshot:
        return JournalSnapshot(ChainLink(1, 1), "x" * 3000)

    async def play() -> None:
        desk = Desk(tmp_path, snapshot_events=10**9)
        await desk.runtime.start()
        taken: list[int] = []
        desk.runtime.batches.compact = lambda snapshot: taken.append(len(desk.recorded))  # type: ignore[method-assign]
        for i in range(100):
            desk.record(StudyRegistered(1000.0, f"s{i}", "r" * 60))
            await asyncio.sleep(0.001)
        sizes = [len(encode(event)[1]) for event in desk.recorded]
        first, second = taken[:2]
        assert sum(sizes[: first - 1]) < 1000 + max(sizes) * 3
        assert sum(sizes[first:second]) + max(sizes) * 3 >= 6000, "twice as much as the snapshot has"
        await desk.runtime.stop()

    monkeypatch.setattr(compaction, "CHARACTERS", 1000)
    monkeypatch.setattr(compaction, "made_in_child", made)
    run(play())
