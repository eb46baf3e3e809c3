"""Long work on the event loop: a slice in a turn, whoever's it is."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from controller.event_loop.time_slices import TimeSlices, Work, at_once
from tests.support.effort import turns


def items(count: int, done: list[str], name: str = "") -> Work[str]:
    for _ in range(count):
        done.append(name)
        yield 1
    return f"{name} is done"


def test_work_is_done_in_slices_and_returns_its_result() -> None:
    async def scene() -> None:
        done: list[str] = []
        between: list[int] = []

        async def beside() -> None:
            while True:
                between.append(len(done))
                await asyncio.sleep(0)

        looking = asyncio.create_task(beside())
        assert await TimeSlices().do(items(10, done, "it"), most=4) == "it is done"
        looking.cancel()
        assert {0, 4, 8} <= set(between) <= {0, 4, 8, 10}

    asyncio.run(scene())


def test_who_begins_first_ends_first() -> None:
    async def scene() -> None:
        shared, done = TimeSlices(), []
        await asyncio.gather(*(shared.do(items(3, done, name), most=1) for name in "abc"))
        assert "".join(done) == "aaabbbccc"

    asyncio.run(scene())


def test_others_go_on_while_the_first_one_waits_for_something_else() -> None:
    async def scene() -> None:
        shared, done, forever = TimeSlices(), [], asyncio.Event()

        async def slow() -> None:
            await shared.granted(shared.begin())
            await forever.wait()

        waiting = asyncio.create_task(slow())
        await asyncio.sleep(0)
        assert await shared.do(items(2, done, "b"), most=1) == "b is done"
        waiting.cancel()

    asyncio.run(scene())


def test_what_is_given_up_keeps_nobody_waiting() -> None:
    async def scene() -> None:
        shared, done = TimeSlices(), []
        given_up = [asyncio.create_task(shared.do(items(9, done, "a"), most=1)) for _ in range(3)]
        after = asyncio.create_task(shared.do(items(2, done, "b"), most=1))
        await asyncio.sleep(0)
        for task in given_up:
            task.cancel()
        assert await after == "b is done"
        assert "a" not in done

    asyncio.run(scene())


def test_a_defect_of_one_is_its_own() -> None:
    def failing() -> Work[None]:
        yield 1
        raise ZeroDivisionError

    async def scene() -> None:
        shared, done = TimeSlices(), []
        failed = asyncio.create_task(shared.do(failing(), most=1))
        assert await shared.do(items(3, done, "b"), most=1) == "b is done"
        with pytest.raises(ZeroDivisionError):
            await failed

    asyncio.run(scene())


def test_a_turn_does_not_grow_with_those_who_have_something_to_do() -> None:
    def longest(workers: int) -> int:
        async def scene(counting: Callable[[], AbstractContextManager[None]]) -> None:
            shared, done = TimeSlices(), []
            tasks = [asyncio.create_task(shared.do(items(400, done), most=100)) for _ in range(workers)]
            await asyncio.sleep(0)
            with counting():
                await asyncio.gather(*tasks)

        return max(turns(scene))

    assert longest(16) < 1.5 * longest(2)


def test_at_once_it_is_the_same() -> None:
    done: list[str] = []
    assert at_once(items(1000, done, "it")) == "it is done"
    assert len(done) == 1000
