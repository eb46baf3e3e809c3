"""Hyper-parameter searches as the rungs that they run: how many jobs, for how many iterations, how many of them continue.

A scenario's rung holds survivors of the rung before and no newcomers, so a job of a later rung stands for a *slot*: in a random
search the next configuration takes the slot of one that has ended, in a population the member continues with what it inherited.
Hyper-parameters change neither bytes nor placement, so that the network sees slots only.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, ClassVar

from beamer.entry_points import Registry
from beamer.errors import InputError
from beamer.studies.model import MAX_RUNG_TRIALS, MAX_STEPS
from beamer.validation import check_arguments, parameters_of


@dataclass(frozen=True)
class SearchRung:
    """A stage of a search. iterations: of each of its jobs. keep: how many jobs the next rung holds, None after the last."""

    jobs: int
    iterations: int
    keep: int | None


Bracket = tuple[SearchRung, ...]


class SearchAlgorithm(ABC):
    """A kind of search; its settings are the fields of a frozen dataclass. Another package adds one by entry point.

    iterations: of the first rung, a unit, a trial or a generation. A kind that has `trials` may be drawn with several numbers.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    iterations: int

    @abstractmethod
    def brackets(self) -> tuple[Bracket, ...]:
        """Return the rungs of each of the search's brackets, which run side by side; most kinds have one."""


@dataclass(frozen=True)
class SuccessiveHalving(SearchAlgorithm):
    """The best 1/eta of each rung continue for eta times as long, until one is left. Jamieson, Talwalkar 2016 (AISTATS).

    trials: in the first rung. iterations: of the first rung. resume: a survivor continues from its checkpoint, so that a rung
    only adds what its budget exceeds the one before; otherwise every rung trains anew.
    """

    trials: int = 9
    eta: int = 3
    iterations: int = 4
    resume: bool = False

    def __post_init__(self) -> None:
        check_at_least(self, trials=1, eta=2, iterations=1)

    def brackets(self) -> tuple[Bracket, ...]:
        """Return one bracket of floor(n / eta^i) jobs with r eta^i iterations in rung i."""
        return (_halving(self.trials, self.eta, (self.iterations, 1), _powers(self.eta, self.trials), self.resume),)


@dataclass(frozen=True)
class Hyperband(SearchAlgorithm):
    """Brackets of successive halving, from many short trials to few long ones, each of about the same budget.

    resource: R, the budget of a trial that runs to the end, in units. iterations: of a unit. resume: as in successive halving.
    Bracket s starts ceil(B/R eta^s/(s+1)) trials with R eta^-s units, B = (s_max + 1) R, for s = s_max, ..., 0: algorithm 1 of
    Li et al. 2018 (JMLR 18), which for R = 81 and eta = 3 starts 81, 34, 15, 8 and 5 trials; an earlier program by its authors
    rounds otherwise and starts 81, 27, 9, 6 and 5.
    """

    resource: int = 9
    eta: int = 3
    iterations: int = 4
    resume: bool = False

    def __post_init__(self) -> None:
        check_at_least(self, resource=1, eta=2, iterations=1)

    def brackets(self) -> tuple[Bracket, ...]:
        """Return the brackets, that of most trials first."""
        longest = _powers(self.eta, self.resource)
        found: list[Bracket] = []
        for s in range(longest, -1, -1):
            # The result is exact where logarithms and powers of floats are not.
            trials = -(-(longest + 1) * self.eta**s // (s + 1))
            found.append(_halving(trials, self.eta, (self.iterations * self.resource, self.eta**s), s, self.resume))
        return tuple(found)


@dataclass(frozen=True)
class RandomSearch(SearchAlgorithm):
    """Independent trials in stages of `batch`, each stage as long as the others; the last one takes what is left.

    trials: in all. batch: at a time. iterations: of every trial.
    """

    trials: int = 12
    batch: int = 4
    iterations: int = 12

    def __post_init__(self) -> None:
        check_at_least(self, trials=1, batch=1, iterations=1)

    def brackets(self) -> tuple[Bracket, ...]:
        """Return one bracket with a rung per stage."""
        sizes = [min(self.batch, self.trials - start) for start in range(0, self.trials, self.batch)]
        return (_rungs(sizes, [self.iterations] * len(sizes)),)


@dataclass(frozen=True)
class PopulationBased(SearchAlgorithm):
    """A population that trains together and, after each generation, copies the weights of its best. Jaderberg et al. 2017.

    trials: members of the population. iterations: of one generation.
    """

    trials: int = 6
    generations: int = 4
    iterations: int = 8

    def __post_init__(self) -> None:
        check_at_least(self, trials=1, generations=1, iterations=1)

    def brackets(self) -> tuple[Bracket, ...]:
        """Return one bracket with a rung per generation, all of the same size."""
        return (_rungs([self.trials] * self.generations, [self.iterations] * self.generations),)


SEARCHES: Registry[SearchAlgorithm] = Registry("beamer.searches", SearchAlgorithm)  # type: ignore[type-abstract]  # the seam


def search(kind: str, **settings: Any) -> SearchAlgorithm:
    """Return a search of the kind named so. Raises `InputError` for a setting that it does not have."""
    chosen = SEARCHES.choose("search", kind)
    check_arguments("search", chosen, settings, parameters_of(chosen))
    return chosen(**settings)


def resized(search: SearchAlgorithm, *, factor: float = 1.0, trials: int | None = None) -> SearchAlgorithm:
    """Return a search with its iterations times `factor`, at least 1, and another number of trials, unless None.

    Raises `InputError` where the kind has no such setting, or not that value.
    """
    known = {f.name for f in fields(search)}
    if trials is not None and "trials" not in known:
        raise InputError("trials", trials, f"none, as {type(search).__name__} has {', '.join(sorted(known))} only")
    settings = {} if trials is None else {"trials": trials}
    if factor != 1:
        settings["iterations"] = max(round(search.iterations * factor), 1)
    return replace(search, **settings)


def _halving(trials: int, eta: int, first: tuple[int, int], halvings: int, resume: bool) -> Bracket:
    """Return `halvings + 1` rungs; first: iterations of the first one as a fraction, rounded down in every rung."""
    budgets = [first[0] * eta**i // first[1] for i in range(halvings + 1)]
    added = [budgets[0], *(after - before for before, after in pairwise(budgets))]
    return _rungs([trials // eta**i for i in range(halvings + 1)], added if resume else budgets)


def _rungs(jobs: Sequence[int], iterations: Sequence[int]) -> Bracket:
    return tuple(map(SearchRung, jobs, iterations, [*jobs[1:], None]))


def _powers(base: int, limit: int) -> int:
    """Return the greatest n with base^n <= limit."""
    n = 0
    while base ** (n + 1) <= limit:
        n += 1
    return n


_LISTED = ("trials", "generations")
"""Settings of which each unit is an entry of a scenario, a job or a rung."""


def check_at_least(settings: Any, **limits: int) -> None:
    """Check that these fields are whole numbers of at least so much, and that a study can declare them. Raises `InputError`."""
    for field, limit in limits.items():
        value = getattr(settings, field)
        if isinstance(value, bool) or not isinstance(value, int) or value < limit:
            raise InputError(f"search.{field}", value, f"a whole number of at least {limit}")
        most = MAX_RUNG_TRIALS if field in _LISTED else MAX_STEPS
        if value > most:
            raise InputError(f"search.{field}", value, f"a whole number of at most {most}")
