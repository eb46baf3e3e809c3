"""Databases that do not do as they should: each is named, and holds nothing else up. Real ones: `tests/netns/test_ovsdb.py`."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from beamer.network.fabric import Fabric
from beamer.testing.fabrics import star
from controller.ovsdb import connection, keeper
from controller.ovsdb.keeper import QueueKeeper
from controller.ovsdb.messages import Splitter
from controller.ovsdb.queues import QueueChange

PATIENCE_S = 20
Answer = Callable[[dict[str, Any]], Any]
FABRIC = star(2)
NOTHING = {"set": []}
EMPTY: list[Any] = ["map", []]
ROWS: dict[str, dict[str, dict[str, Any]]] = {
    "Open_vSwitch": {"o": {"cur_cfg": 0, "next_cfg": 0}},
    "Bridge": {
        "b": {
            "name": "s1",
            "datapath_id": f"{FABRIC.switches[0].dpid:016x}",
            "datapath_type": "netdev",
            "ports": ["set", [["uuid", "p1"], ["uuid", "p2"]]],
        }
    },
    "Port": {f"p{n}": {"name": f"eth{n}", "interfaces": ["uuid", f"i{n}"], "qos": ["set", []]} for n in (1, 2)},
    "Interface": {f"i{n}": {"name": f"eth{n}", "ofport": n} for n in (1, 2)},
    "QoS": {},
    "Queue": {},
}


def initial(rows: dict[str, dict[str, dict[str, Any]]]) -> dict[str, Any]:
    return {table: {row: {"new": new} for row, new in of_table.items()} for table, of_table in rows.items()}


class Database:
    """A peer that answers as a test says. answer: what to a request, None for nothing."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        splitter = Splitter()
        try:
            while data := await reader.read(65536):
                for message in splitter.feed(data):
                    self.asked.append(message)
                    if (answer := self.answer(message)) is not None:
                        writer.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()

    @asynccontextmanager
    async def at(self, path: str) -> AsyncIterator[None]:
        """Listen at a socket's file."""
        async with await asyncio.start_unix_server(self.serve, path):
            yield
        for writer in self.writers:
            writer.transport.abort()
        await asyncio.sleep(0)


def result(message: dict[str, Any], content: Any) -> dict[str, Any]:
    return {"id": message["id"], "result": content, "error": None}


def with_queues(message: dict[str, Any]) -> Any:
    """Answer as a database whose ovs-vswitchd takes nothing over."""
    if message.get("method") == "monitor":
        return result(message, initial(ROWS))
    if message.get("method") != "transact":
        return None
    operations = message["params"][1:]
    return result(message, [*({} for _ in operations[:-1]), {"rows": [{"next_cfg": 1}]}])


def of_switches(*addresses: str) -> Fabric:
    """Return a star whose switch has a database, and further switches beside it that have others."""
    first = FABRIC.switches[0]
    more = tuple(replace(first, name=f"s{n}", dpid=n, ovsdb=one) for n, one in enumerate(addresses[1:], 2))
    return replace(FABRIC, switches=(replace(first, ovsdb=addresses[0]), *more))


@asynccontextmanager
async def kept(fabric: Fabric) -> AsyncIterator[QueueKeeper]:
    made = QueueKeeper(fabric, 2, None, lambda: None)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.005)


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def garbage(message: dict[str, Any]) -> bytes:
    return b"HTTP/1.1 400 Bad Request\r\n\r\n{}"


def refusing(message: dict[str, Any]) -> Any:
    if message["method"] == "monitor":
        return result(message, initial(ROWS))
    return result(message, [{"error": "permission error", "details": "role beamer may not"}])


def misspelt(message: dict[str, Any]) -> Any:
    return (
        result(message, initial({**ROWS, "Bridge": {"b": {"name": "s1"}}}))
        if message["method"] == "monitor"
        else with_queues(message)
    )


def otherwise(message: dict[str, Any]) -> Any:
    rows = {**ROWS, "Bridge": {"b": {**ROWS["Bridge"]["b"], "datapath_id": "00000000000000ff"}}}
    return result(message, initial(rows)) if message["method"] == "monitor" else with_queues(message)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda message: None, "it has not answered for"),
        (garbage, "it sends what is no JSON: is this a database's address?"),
        (lambda message: {"id": message["id"], "result": None, "error": "unknown database"}, "it refuses: unknown database"),
        (lambda message: result(message, {"Port": 7}), "it describes its rows otherwise than RFC 7047 does"),
        (lambda message: result(message, {"Flow": {"1": {"new": {}}}}), "it describes its rows otherwise than RFC 7047 does"),
        (refusing, "permission error: role beamer may not"),
        (misspelt, "its rows cannot be understood (KeyError"),
        (otherwise, "it has no bridge of the datapath id 0000000000000001; its bridges: s1 (00000000000000ff)"),
    ],
    ids=[
        "silent",
        "another protocol",
        "no such database",
        "no rows",
        "another table",
        "refuses",
        "other columns",
        "no such bridge",
    ],
)
def test_a_database_that_is_of_no_use_is_named_and_tried_again(
    answer: Answer, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ANSWER_S", 0.2)
    monkeypatch.setattr(connection, "SILENCE_S", 0.1)
    monkeypatch.setattr(keeper, "FIRST_PAUSE_S", 0.01)

    async def scenario() -> None:
        path = str(tmp_path / "db.sock")
        database = Database(answer)
        async with database.at(path), kept(of_switches(f"unix:{path}")) as made:
            await until(lambda: bool(made.faults))
            (fault,) = made.faults
            assert (fault.kind, fault.switch, fault.port) == ("no database", "s1", 0)
            assert fault.text.startswith(f"the database of s1 at unix:{path} is of no use: {reason}")
            assert made.unread == {"s1"}
            await until(lambda: len(database.writers) > 1)
            database.answer = with_queues
            await until(lambda: not made.faults)

    play(scenario())


def test_a_database_without_the_switch_is_not_written_to(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = str(tmp_path / "db.sock")
        database = Database(otherwise)
        async with database.at(path), kept(of_switches(f"unix:{path}")) as made:
            await until(lambda: bool(made.faults))
        assert {message["method"] for message in database.asked} == {"monitor"}

    play(scenario())


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b'{"method":"update","id":null,"params":[1]}', "it describes its rows otherwise than RFC 7047 does"),
        (
            b'{"method":"echo","id":"e","params":["' + bytes(1 << 20).replace(b"\0", b"x") + b'"]}',
            "it does not read the answers",
        ),
    ],
    ids=["an update of no rows", "questions whose answers it does not read"],
)
def test_what_a_database_sends_unasked_is_no_fault_of_the_controllers(sent: bytes, reason: str, tmp_path: Path) -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(sent)
                await writer.drain()
                await asyncio.sleep(0.001)
        except OSError:
            writer.transport.abort()

    async def scenario() -> None:
        path = str(tmp_path / "db.sock")
        async with await asyncio.start_unix_server(flood, path), kept(of_switches(f"unix:{path}")) as made:
            await until(lambda: bool(made.faults))
            assert f"is of no use: {reason}" in made.faults[0].text

    play(scenario())


def test_one_that_cannot_be_reached_delays_no_other(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1) as deaf:  # It accepts nothing, and answers nothing.
        closed = socket.create_server(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        closed.close()

        async def scenario() -> None:
            path = str(tmp_path / "db.sock")
            addresses = f"unix:{path}", f"tcp:127.0.0.1:{deaf.getsockname()[1]}", f"tcp:127.0.0.1:{port}", f"unix:{tmp_path}/no"
            database = Database(with_queues)
            async with database.at(path), kept(of_switches(*addresses)) as made:
                await until(lambda: any(len(one["params"]) > 3 for one in database.asked))
                await until(lambda: {one.switch for one in made.faults} >= {"s3", "s4"})
                texts = {one.switch: one.text for one in made.faults}
                assert texts["s3"].endswith("is of no use: Connection refused")
                assert texts["s4"].endswith("is of no use: No such file or directory")
                assert made.unread == {"s1", "s2", "s3", "s4"}

        play(scenario())


def test_what_ovs_vswitchd_does_not_take_over_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "TAKEN_S", 0.1)
    monkeypatch.setattr(keeper, "change_of_queues", lambda *given: QueueChange((), (), (), {}))

    async def scenario() -> None:
        path = str(tmp_path / "db.sock")
        database = Database(with_queues)
        async with database.at(path), kept(of_switches(f"unix:{path}")) as made:
            await until(lambda: bool(made.faults))
            assert made.faults[0].text == "s1 has its queues in its database alone: ovs-vswitchd does not take them over"
            assert (made.datapath_types, made.unread) == ({"s1": "netdev"}, {"s1"})
            taken = {"Open_vSwitch": {"o": {"old": {}, "new": {"cur_cfg": 1, "next_cfg": 1}}}}
            for part in (b'{"id":null,"method":"update","params":[null,', json.dumps(taken).encode(), b"]}"):
                database.writers[0].write(part)
                await asyncio.sleep(0.01)
            await until(lambda: not made.faults and not made.unread)

    play(scenario())


@pytest.mark.parametrize("answers", [True, False])
def test_one_that_has_nothing_to_say_is_asked_whether_it_is_there(
    answers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SILENCE_S", 0.05)
    monkeypatch.setattr(keeper, "TAKEN_S", 0.01)
    monkeypatch.setattr(keeper, "change_of_queues", lambda *given: QueueChange((), (), (), {}))

    def answer(message: dict[str, Any]) -> Any:
        return result(message, []) if message.get("method") == "echo" and answers else with_queues(message)

    async def scenario() -> None:
        path = str(tmp_path / "db.sock")
        database = Database(answer)
        async with database.at(path), kept(of_switches(f"unix:{path}")) as made:
            asked = lambda: sum(one.get("method") == "echo" for one in database.asked)  # noqa: E731
            await until(lambda: asked() >= 5 if answers else len(database.writers) > 1)
            assert (len(database.writers) == 1) == answers
            await until(lambda: answers or any("it has not answered for" in one.text for one in made.faults))

    play(scenario())


def test_a_database_that_asks_whether_it_is_heard_is_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = str(tmp_path / "db.sock")
        database = Database(with_queues)
        async with database.at(path), kept(of_switches(f"unix:{path}")):
            await until(lambda: bool(database.writers))
            database.writers[0].write(b'{"id":"echo","method":"echo","params":["x"]}')
            await until(lambda: {"id": "echo", "result": ["x"], "error": None} in database.asked)

    play(scenario())


def test_being_stopped_when_a_database_goes_is_being_stopped(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = str(tmp_path / "db.sock")
        database = Database(with_queues)
        async with database.at(path):
            for turns in range(10):
                before = len(database.asked)
                made = QueueKeeper(of_switches(f"unix:{path}"), 2, None, lambda: None)
                task = asyncio.create_task(made.run())
                await until(lambda before=before: len(database.asked) > before + 1)  # type: ignore[misc]
                database.writers[-1].transport.abort()
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                done, _ = await asyncio.wait({task}, timeout=2)
                assert done == {task}
                assert task.cancelled()

    play(scenario())


def test_queues_that_another_program_changes_again_and_again_are_mended_ever_less_often() -> None:
    pace, now, pauses = keeper._Pace(), 100.0, []
    for _ in range(10):
        pauses.append(pace.next_s(now))
        now += pauses[-1] + 0.01
    assert pauses[0] == keeper.FIRST_MEND_S
    assert pauses == sorted(pauses)
    assert pauses[-1] == keeper.LAST_MEND_S
    assert pace.next_s(now + 1000) == keeper.FIRST_MEND_S


def test_a_fault_of_the_program_ends_no_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "FIRST_PAUSE_S", 0.01)
    whole = keeper.change_of_queues

    def faulty(*given: Any) -> Any:
        monkeypatch.setattr(keeper, "change_of_queues", whole)
        raise ZeroDivisionError

    monkeypatch.setattr(keeper, "change_of_queues", faulty)

    async def scenario() -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        path = str(tmp_path / "db.sock")
        database = Database(with_queues)
        async with database.at(path), kept(of_switches(f"unix:{path}")) as made:
            await until(lambda: bool(reported))
            await until(lambda: len(database.writers) > 1 and not made.faults)
        assert isinstance(reported[0]["exception"], ZeroDivisionError)

    with capture_logs():
        play(scenario())
