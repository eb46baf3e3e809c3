"""How much Python has to do, in instructions of its interpreter: the same on every machine, however busy it is.

What takes long is found by how that grows with the input. What compiled code does within an instruction, sorting and copying
say, is not counted.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any


class Effort:
    """Counts the instructions of the thread that `counting` is entered in, but for calls that run already."""

    def __init__(self) -> None:
        self.instructions = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count for as long as this lasts."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._executed

    def _executed(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "opcode":
            self.instructions += 1
        return self._executed


def effort(action: Callable[[], object]) -> int:
    """Return how many instructions an action takes."""
    counted = Effort()
    with counted.counting():
        action()
    return counted.instructions


class _CountedLoop(asyncio.SelectorEventLoop):
    """An event loop that notes what each of its turns takes."""

    def __init__(self) -> None:
        super().__init__()
        self.effort = Effort()
        self.turns: list[int] = []

    def _run_once(self) -> None:
        before = self.effort.instructions
        with self.effort.counting():
            super()._run_once()  # type: ignore[misc]  # asyncio's own
        self.turns.append(self.effort.instructions - before)


Scene = Callable[[Callable[[], AbstractContextManager[None]]], Coroutine[Any, Any, None]]
"""What happens on an event loop. It is given what to do in a context whose whole turns are counted."""


def turns(scene: Scene) -> list[int]:
    """Play a scene on an event loop and return how many instructions each turn took in the context that it enters."""
    loop = _CountedLoop()
    counted: list[int] = []

    @contextmanager
    def counting() -> Iterator[None]:
        before = len(loop.turns) + 1  # the present one has begun
        yield
        counted.extend(loop.turns[before:])

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scene(counting))
    return counted
