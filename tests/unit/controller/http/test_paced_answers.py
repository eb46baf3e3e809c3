"""Answers of any length: others have their turn while a long one is written, and a short one says how long it is."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from starlette.types import Message

from controller.event_loop.time_slices import TimeSlices
from controller.http.paced_answers import PART_CHARACTERS, Entries, answer
from tests.support.effort import turns


def received(value: object, events: list[str]) -> tuple[list[Message], dict[bytes, bytes]]:
    """Return the messages that answer with a value, and the headers; `events` takes down when another task has its turn."""
    messages: list[Message] = []

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        messages.append(message)

    async def others() -> None:
        while True:
            events.append("other")
            await asyncio.sleep(0)

    async def scene() -> None:
        beside = asyncio.create_task(others())
        response = await answer(value, TimeSlices())
        await response({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)
        beside.cancel()

    asyncio.run(scene())
    return messages, dict(messages[0]["headers"])


def content(messages: list[Message]) -> Any:
    return json.loads(b"".join(message.get("body", b"") for message in messages[1:]))


def test_a_short_answer_comes_in_one_piece() -> None:
    value = {
        "a": 1,
        "b": iter([{"c": iter(["d", None])}, {}]),
        "e": iter([]),
        "f": {"g": [1.5]},
        "h": 2,
        "i": Entries(iter([("j", 1), ('"', {"k": iter([2])})])),
        "l": Entries(iter([])),
    }
    messages, headers = received(value, [])
    assert content(messages) == {
        "a": 1,
        "b": [{"c": ["d", None]}, {}],
        "e": [],
        "f": {"g": [1.5]},
        "h": 2,
        "i": {"j": 1, '"': {"k": [2]}},
        "l": {},
    }
    assert int(headers[b"content-length"]) == len(messages[1]["body"])


def test_others_have_their_turn_while_a_long_answer_is_written() -> None:
    events: list[str] = []

    def items() -> Iterator[str]:
        for _ in range(6):
            events.append("item")
            yield "x" * PART_CHARACTERS

    messages, headers = received({"items": items()}, events)
    assert content(messages) == {"items": ["x" * PART_CHARACTERS] * 6}
    assert b"content-length" not in headers
    assert "item item item" not in " ".join(events), "no more than two parts in a turn"


def test_a_turn_does_not_grow_with_those_who_read() -> None:
    def longest(readers: int) -> int:
        async def scene(counting: Callable[[], AbstractContextManager[None]]) -> None:
            shared, begun = TimeSlices(), [0]

            async def receive() -> Message:
                await asyncio.Event().wait()
                raise AssertionError

            async def send(message: Message) -> None:
                begun[0] += message["type"] == "http.response.start"

            async def read() -> None:
                response = await answer({"items": ({"name": f"item {i}" * 20} for i in range(400))}, shared)
                await response({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send)

            with counting():
                await asyncio.gather(*(read() for _ in range(readers)))
            assert begun == [readers]

        return max(turns(scene)[3:])  # each has begun by then

    assert longest(12) < 1.5 * longest(2)
