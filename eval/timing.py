"""How long decisions of policies take, of either level."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from beamer.compilation import Stopwatch

P = ParamSpec("P")
T = TypeVar("T")


def timed(decide: Callable[P, T], seconds: list[float]) -> Callable[P, T]:
    """Return a function that does as `decide`, and adds to `seconds` how long each call took, compiling left out."""

    def decide_and_note(*arguments: P.args, **named: P.kwargs) -> T:
        watch = Stopwatch()
        decided = decide(*arguments, **named)
        seconds.append(watch.elapsed_s)
        return decided

    return decide_and_note
