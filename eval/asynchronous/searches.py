"""Searches without barriers: which trial a free slot runs next, decided from the losses that have come in so far.

A search has slots, in each of which one trial runs at a time. Its rungs are steps at which trials report a loss; nothing waits
for the other trials of a rung. What a search decides so depends on when trials arrive, and with that on the network.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from statistics import mean, median

from beamer.errors import InputError
from beamer.studies.model import Rung, TrialStatus
from beamer.workloads.searches import check_at_least

MAX_LEVELS = 1000  # As many rungs as a study may have at a controller.


@dataclass
class Arrivals:
    """The losses with which the trials of a search have arrived at its rungs.

    entered: by rung, the trials that run to it or have arrived there. losses: by rung, of those that have arrived, in order of
    arrival. ended: trials that go no further.
    """

    entered: list[set[int]]
    losses: list[dict[int, float]]
    ended: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, rungs: int) -> "Arrivals":
        """Return those of a search that has not begun."""
        return cls([set() for _ in range(rungs)], [{} for _ in range(rungs)])

    def paused(self, rung: int) -> list[int]:
        """Return the trials that have arrived at a rung and not been sent on, the best first."""
        losses = self.losses[rung]
        left = losses.keys() - self.ended
        if rung + 1 < len(self.entered):
            left -= self.entered[rung + 1]
        return sorted(left, key=lambda trial: (losses[trial], trial))


@dataclass(frozen=True)
class AsynchronousSearch(ABC):
    """A kind of search without barriers, with its parameters.

    trials: that it starts in all, numbered from 0. completed: trials that complete the top rung, upon which it ends; None: it
    ends when there is nothing left to run.
    """

    trials: int = 27
    completed: int | None = None

    def __post_init__(self) -> None:
        """Check what all kinds have."""
        check_at_least(self, trials=1)
        if self.completed is not None:
            check_at_least(self, completed=1)

    @property
    @abstractmethod
    def steps(self) -> tuple[int, ...]:
        """The steps of its rungs, counted from a trial's beginning."""

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """Its rungs, as a study declares them; how many trials they hold is not known."""
        return tuple(Rung(f"rung{i}", 0, step) for i, step in enumerate(self.steps))

    @abstractmethod
    def promoted(self, known: Arrivals) -> tuple[int, int] | None:
        """Return the paused trial that a free slot goes on with and the rung that it runs to, None where there is none."""

    def verdict(self, known: Arrivals, trial: int, rung: int) -> TrialStatus | None:
        """Return how a trial that has just arrived at a rung ends, None if it may go on."""
        return TrialStatus.FINISHED if rung + 1 == len(self.steps) else None

    def next(self, known: Arrivals) -> tuple[int, int] | None:
        """Return what a free slot runs: a trial, and the rung that it runs to; None where nothing is left for now."""
        promoted = self.promoted(known)
        if promoted is None and len(known.entered[0]) < self.trials:
            return len(known.entered[0]), 0
        return promoted


@dataclass(frozen=True)
class Asha(AsynchronousSearch):
    """Promote a trial as soon as it is among the best 1/eta of those that have arrived at its rung.

    Asynchronous successive halving: Li, Jamieson, Rostamizadeh, Gonina, Ben-tzur, Hardt, Recht, Talwalkar 2020 (MLSys),
    algorithm 2. Trials are promoted from the highest rung where one can be; a promoted one continues from its checkpoint.

    iterations: of the first rung (r). halvings: how often a trial is promoted to complete (R = r eta^halvings, s = 0).
    """

    eta: int = 3
    iterations: int = 4
    halvings: int = 3

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        check_at_least(self, eta=2, iterations=1, halvings=0)
        _check_levels("halvings", self.halvings)

    @property
    def steps(self) -> tuple[int, ...]:
        """r eta^i in rung i."""
        return tuple(self.iterations * self.eta**i for i in range(self.halvings + 1))

    def promoted(self, known: Arrivals) -> tuple[int, int] | None:
        """Return the best trial of the highest rung where one of the best 1/eta has not been promoted."""
        for rung in range(self.halvings - 1, -1, -1):
            losses = known.losses[rung]
            ranked = sorted((loss, trial) for trial, loss in losses.items())
            waiting = [trial for _, trial in ranked[: len(losses) // self.eta] if trial not in known.entered[rung + 1]]
            if waiting:
                return waiting[0], rung + 1
        return None


@dataclass(frozen=True)
class MedianStopping(AsynchronousSearch):
    """Stop a trial whose best loss so far is worse than the median of what the others had on average by then.

    An equal one goes on.

    Golovin, Solnik, Moitra, Kochanski, Karro, Sculley 2017 (KDD), section 3.2.2: the median of the running averages of all
    trials that have arrived at that step. fewest: other trials below which none is stopped, ours.

    iterations: between two reports. reports: of a trial that is not stopped.
    """

    iterations: int = 12
    reports: int = 9
    fewest: int = 3

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        check_at_least(self, iterations=1, reports=1, fewest=1)
        _check_levels("reports", self.reports)

    @property
    def steps(self) -> tuple[int, ...]:
        """Every `iterations`."""
        return tuple(self.iterations * (i + 1) for i in range(self.reports))

    def verdict(self, known: Arrivals, trial: int, rung: int) -> TrialStatus | None:
        """Stop a trial that is worse than the median."""
        upto = known.losses[: rung + 1]
        # The means are exact, so that of equal trials none is worse than the others by rounding alone.
        others = [mean([losses[other] for losses in upto]) for other in known.losses[rung] if other != trial]
        if len(others) >= self.fewest and min(losses[trial] for losses in upto) > median(others):
            return TrialStatus.KILLED
        return super().verdict(known, trial, rung)

    def promoted(self, known: Arrivals) -> tuple[int, int] | None:
        """Return a trial that has just reported and was not stopped."""
        for rung in range(self.reports - 1):
            for trial in known.paused(rung):
                return trial, rung + 1
        return None


@dataclass(frozen=True)
class IndependentTrials(AsynchronousSearch):
    """Run every trial to its end, a new one as soon as a slot is free: random search. iterations: of every trial."""

    iterations: int = 36

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        check_at_least(self, iterations=1)

    @property
    def steps(self) -> tuple[int, ...]:
        """The end alone."""
        return (self.iterations,)

    def promoted(self, known: Arrivals) -> tuple[int, int] | None:
        """Return none: no trial goes on."""
        return None


KINDS: Mapping[str, type[AsynchronousSearch]] = {"asha": Asha, "median-stopping": MedianStopping, "random": IndependentTrials}
"""The kinds, by name."""

LOSS_AT_BEST = (0.1, 0.5)  # the least and the greatest limit of a trial's loss
LOSS_AT_FIRST = (1.0, 3.0)  # A trial's loss is so much above its limit after the first step.
FALL = (0.3, 1.0)  # exponents of the fall: slow ones cross fast ones, so that early ranks mislead
NOISE = 0.3  # standard deviation of a loss after one step; it falls with the root of the steps, as that of a mean does


@dataclass(frozen=True)
class LossCurves:
    """Losses drawn for the trials of a search: a + b k^-c + noise after k steps, each drawn from a seed by trial and step.

    Power laws are what learning curves follow over most of their length [Hestness et al. 2017, "Deep learning scaling is
    predictable, empirically"]; that the noise falls makes ranks more reliable in higher rungs, which halving assumes.
    """

    seed: str

    def limit(self, trial: int) -> float:
        """Return what a trial's loss comes to in the end."""
        return self._curves(trial)[0]

    def loss(self, trial: int, step: int) -> float:
        """Return the loss that a trial reports after so many steps, one or more."""
        limit, above, fall = self._curves(trial)
        noise: float = NOISE * step**-0.5 * Random(f"{self.seed}/{trial}/{step}").gauss(0, 1)
        return float(limit + above * step**-fall + noise)

    def _curves(self, trial: int) -> tuple[float, float, float]:
        rng = Random(f"{self.seed}/{trial}")
        return rng.uniform(*LOSS_AT_BEST), rng.uniform(*LOSS_AT_FIRST), rng.uniform(*FALL)


def _check_levels(field: str, count: int) -> None:
    """Raise `InputError` for more rungs than a study may have."""
    if count > MAX_LEVELS:
        raise InputError(f"search.{field}", count, f"at most {MAX_LEVELS}")
