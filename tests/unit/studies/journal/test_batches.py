"""Writing beside the event loop: when it is said to be done, and what happens while it cannot be."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from beamer.errors import PlatformError, SilentError
from beamer.network.events import Planned
from beamer.studies.events import EncodedEvent, Event, StageRegistered
from beamer.studies.journal import batches as module
from beamer.studies.journal.batches import Batches
from beamer.studies.journal.chain import BEGINNING
from beamer.studies.journal.store import Journal, JournalSnapshot

EVENTS = [StageRegistered(float(i), "s", f"r{i}") for i in range(10)]


class Gate:
    """Lets a journal write when it is told to, or refuses. batches: what it was given, each at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.refusing = False
        self.batches: list[Sequence[EncodedEvent]] = []
        append = Journal.append_encoded

        def gated(journal: Journal, events: Sequence[EncodedEvent]) -> None:
            assert threading.current_thread() is not threading.main_thread()
            assert self.open.wait(30)
            if self.refusing:
                raise PlatformError("the disk is full", "make room")
            self.batches.append(events)
            append(journal, events)

        monkeypatch.setattr(Journal, "append_encoded", gated)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    return Gate(monkeypatch)


@pytest.fixture
def scene(tmp_path: Path) -> Callable[[Callable[[Batches], Coroutine[Any, Any, None]]], list[Event]]:
    def run(play: Callable[[Batches], Coroutine[Any, Any, None]]) -> list[Event]:
        url = f"sqlite:///{tmp_path}/journal.db"

        async def all_of_it() -> None:
            batches = Batches(Journal(url))
            try:
                await play(batches)
            finally:
                await batches.close()

        asyncio.run(all_of_it())
        reader = Journal(url, writes=False)
        try:
            return list(reader.replay())
        finally:
            reader.close()

    return run


Scene = Callable[[Callable[[Batches], Coroutine[Any, Any, None]]], list[Event]]


def test_what_comes_while_one_is_written_is_written_at_once(gate: Gate, scene: Scene) -> None:
    async def play(batches: Batches) -> None:
        done: list[str] = []
        batches.put(EVENTS[0])
        first = asyncio.create_task(batches.written())
        await asyncio.sleep(0.01)  # the first one is being written
        for event in EVENTS[1:]:
            batches.put(event)
        batches.then(lambda: done.append("all"))
        await asyncio.sleep(0.02)
        assert not first.done(), "the loop goes on, and nobody is told too early"
        assert not done
        gate.open.set()
        await first
        await batches.written()
        assert done == ["all"]
        assert [len(batch) for batch in gate.batches] == [1, 9]
        await batches.written()

    assert scene(play) == EVENTS


def test_whoever_asks_once_all_is_durable_goes_on_after_what_was_to_be_done_then(gate: Gate, scene: Scene) -> None:
    async def play(batches: Batches) -> None:
        gate.open.set()
        done: list[int] = []
        for number, event in enumerate(EVENTS):
            batches.put(event)
            batches.then(lambda number=number: done.append(number))  # type: ignore[misc]
            while batches.waiting:
                await asyncio.sleep(0)
            await batches.written()
            assert done == list(range(number + 1))

    assert scene(play) == EVENTS


def test_a_journal_that_cannot_be_written_takes_nothing_new_and_loses_nothing(gate: Gate, scene: Scene) -> None:
    async def play(batches: Batches) -> None:
        gate.open.set()
        gate.refusing = True
        done: list[str] = []
        batches.put(EVENTS[0])
        batches.then(lambda: done.append("installed"))
        with pytest.raises(PlatformError, match="the disk is full"):
            await batches.written()
        for _ in range(3):
            with pytest.raises(PlatformError, match="the disk is full"):
                batches.put(EVENTS[1])
            await asyncio.sleep(0.02)
        with pytest.raises(PlatformError, match="the disk is full"):
            await batches.written()
        assert not done
        gate.refusing = False
        while batches.waiting:
            await asyncio.sleep(0.01)
        await batches.written()
        assert done == ["installed"]
        batches.put(EVENTS[1])
        await batches.written()

    assert scene(play) == EVENTS[:2]


def test_what_waits_is_bounded(gate: Gate, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_EVENTS", 4)

    async def play(batches: Batches) -> None:
        for event in EVENTS[:4]:
            batches.put(event)
        with pytest.raises(PlatformError, match="4 events wait to be written"):
            batches.put(EVENTS[4])
        gate.open.set()
        await batches.written()
        batches.put(EVENTS[4])

    assert scene(play) == EVENTS[:5]


def test_closing_writes_what_is_left(gate: Gate, scene: Scene) -> None:
    async def play(batches: Batches) -> None:
        for event in EVENTS:
            batches.put(event)
        gate.open.set()

    assert scene(play) == EVENTS


def test_a_snapshot_is_written_between_events(gate: Gate, scene: Scene) -> None:
    gate.open.set()

    async def play(batches: Batches) -> None:
        for event in EVENTS[:5]:
            batches.put(event)
        await batches.written()
        head = batches._journal.head
        for event in EVENTS[5:]:
            batches.put(event)
        batches.compact(JournalSnapshot(head, "the first five"))

    assert scene(play) == EVENTS[5:]


@pytest.mark.parametrize("error", [PlatformError("the disk is full", "make room"), OSError("no"), KeyError("a defect")])
def test_a_snapshot_that_cannot_be_written_keeps_no_event_back(
    gate: Gate, scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def refuse(journal: Journal, snapshot: JournalSnapshot) -> Iterator[None]:
        yield
        raise error

    monkeypatch.setattr(Journal, "compacting", refuse)
    gate.open.set()

    async def play(batches: Batches) -> None:
        batches.put(EVENTS[0])
        await batches.written()
        batches.compact(JournalSnapshot(batches._journal.head, "the first one"))
        await asyncio.sleep(0.05)
        batches.put(EVENTS[1])
        await batches.written()
        assert batches.failure is None

    assert scene(play) == EVENTS[:2]
    assert "takes no snapshot" in caplog.text


def test_a_step_of_compacting_that_is_cut_off_confirms_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only an answer of the database does."""
    answers: list[str] = []

    def cut_off(journal: Journal, snapshot: JournalSnapshot) -> Iterator[None]:
        raise SilentError("the session is lost", "try again")
        yield

    monkeypatch.setattr(module, "RETRY_S", 0.01)
    monkeypatch.setattr(Journal, "compacting", cut_off)
    monkeypatch.setattr(Journal, "keep", lambda journal: answers.append("kept"))

    async def play() -> None:
        batches = Batches(Journal(f"sqlite:///{tmp_path}/journal.db"))
        monkeypatch.setattr(Journal, "is_shared", True)
        batches.compact(JournalSnapshot(batches._journal.head, "what came of it"))
        while batches.failure is None:
            await asyncio.sleep(0.001)
        await batches.confirm()
        assert answers == ["kept"]
        await batches.close()
        with pytest.raises(PlatformError, match="closed"):
            batches.put(EVENTS[0])

    asyncio.run(play())


def test_events_are_written_between_the_steps_of_compacting(gate: Gate, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.open.set()
    monkeypatch.setattr("beamer.studies.journal.store._DELETED_AT_ONCE", 1)
    deleted: list[int] = []

    async def play(batches: Batches) -> None:
        for event in EVENTS[:8]:
            batches.put(event)
        await batches.written()
        batches.compact(JournalSnapshot(batches._journal.head, "the first eight"))
        for event in EVENTS[8:]:
            await asyncio.sleep(0)
            batches.put(event)
            await batches.written()
            deleted.append(8 - sum(number <= 8 for number, _, _ in batches._journal.rows_after(BEGINNING)))

    assert scene(play) == EVENTS[8:]
    assert max(deleted) < 8


def test_an_action_that_fails_keeps_nothing_back(gate: Gate, scene: Scene) -> None:
    gate.open.set()

    async def play(batches: Batches) -> None:
        failed: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failed.append(context["exception"]))
        batches.put(EVENTS[0])
        batches.then(lambda: [][0])
        batches.put(EVENTS[1])
        await batches.written()
        assert [type(error) for error in failed] == [IndexError]

    assert scene(play) == EVENTS[:2]


def test_an_event_that_has_no_form_is_refused_at_once(gate: Gate, scene: Scene) -> None:
    gate.open.set()

    async def play(batches: Batches) -> None:
        with pytest.raises(Exception, match="Unable to serialize"):
            batches.put(Planned(1.0, "beamer", 1, object(), 8, {}))
        batches.put(EVENTS[0])
        await batches.written()

    assert scene(play) == EVENTS[:1]


def test_what_is_durable_is_said_so_while_nothing_more_can_be(gate: Gate, scene: Scene) -> None:
    gate.open.set()

    async def play(batches: Batches) -> None:
        batches.put(EVENTS[0])
        await batches.written()
        gate.refusing = True
        batches.put(EVENTS[1])
        with pytest.raises(PlatformError):
            await batches.written()
        gate.refusing = False
        while batches.waiting:
            await asyncio.sleep(0.01)
        await batches.written()

    assert scene(play) == EVENTS[:2]
