"""What a search has to know of its scheduler: when trials are judged, and which wait for each other. Does not import Ray."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from beamer.studies.model import Rung


@dataclass(frozen=True)
class Barrier:
    """Trials that wait for each other. step: that each has to come to. is_closed: whether no further trial joins."""

    name: str
    step: int
    trials: tuple[Any, ...]
    is_closed: bool


class Schedule:
    """What is known of a scheduler that never judges trials.

    has_barriers: whether trials wait for each other. max_step: at which it has a trial complete, None where it does not say.
    """

    has_barriers = False
    max_step: int | None = None

    def rungs(self) -> Sequence[Rung]:
        """Return the rungs that all trials have in common."""
        return ()

    def next_step(self, trial: Any, step: int) -> int | None:
        """Return the step after `step` at which a trial is judged next by itself, None where it is not."""
        return None

    def is_complete(self, trial: Any, step: int) -> bool:
        """Return whether the scheduler has no more for a trial to do than it has done at `step`."""
        return self.max_step is not None and step >= self.max_step

    def state(self) -> object:
        """Return what is equal as long as the barriers are."""
        return None

    def barriers(self, is_search_over: bool) -> Iterable[Barrier]:
        """Yield the barriers ahead of trials. is_search_over: whether there will be no further trials."""
        return ()
