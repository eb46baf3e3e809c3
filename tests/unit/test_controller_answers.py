"""Answers of any length: others have their turn while a long one is written, and a short one says how long it is."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from starlette.types import Message

from controller.http.answers import PART_CHARACTERS, answer


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
        response = answer(value)
        await response({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)
        beside.cancel()

    asyncio.run(scene())
    return messages, dict(messages[0]["headers"])


def content(messages: list[Message]) -> Any:
    return json.loads(b"".join(message.get("body", b"") for message in messages[1:]))


def test_a_short_answer_comes_in_one_piece() -> None:
    value = {"a": 1, "b": iter([{"c": iter(["d", None])}, {}]), "e": iter([]), "f": {"g": [1.5]}}
    messages, headers = received(value, [])
    assert content(messages) == {"a": 1, "b": [{"c": ["d", None]}, {}], "e": [], "f": {"g": [1.5]}}
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
