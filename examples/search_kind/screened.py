"""A kind of search: many trials for a short time, then the best few to the end."""

from dataclasses import dataclass

from beamer.workloads.searches import Bracket, SearchAlgorithm, SearchRung, check_at_least


@dataclass(frozen=True)
class Screened(SearchAlgorithm):
    """Keep the best few of all trials. iterations: of the first rung. factor: how many times as long the others train on."""

    trials: int = 16
    keep: int = 2
    iterations: int = 4
    factor: int = 8

    def __post_init__(self) -> None:
        check_at_least(self, trials=1, keep=1, iterations=1, factor=1)

    def brackets(self) -> tuple[Bracket, ...]:
        """Return one bracket of two rungs."""
        kept = min(self.keep, self.trials)
        return ((SearchRung(self.trials, self.iterations, kept), SearchRung(kept, self.iterations * self.factor, None)),)
