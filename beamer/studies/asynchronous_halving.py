"""Asynchronous successive halving of trials that run on without a wait: who goes on at a rung, judged by who came before."""

from collections.abc import Collection
from dataclasses import dataclass
from math import ceil, isfinite

from beamer.errors import InputError
from beamer.studies.model import MAX_STEPS, Rung


@dataclass(frozen=True)
class RungArrival:
    """A trial that has come to a rung. loss: with which. went_on: whether it ran on from there."""

    loss: float
    went_on: bool


@dataclass(frozen=True)
class AsynchronousHalving:
    """Let a trial go on at a rung if it is among the best of those that have come there so far.

    After Li, Jamieson, Rostamizadeh, Gonina, Ben-tzur, Hardt, Recht and Talwalkar 2020, "A system for massively parallel
    hyperparameter tuning" (ASHA, MLSys), in the variant of Ray Tune's `AsyncHyperBandScheduler`, in which a trial is judged
    once, when it comes to a rung, and either runs on or ends: none waits for others.

    iterations: of a trial that is never ended. reduction_factor: one in so many goes on, and a rung lies so many times as far
    as the one before. first: iterations of the first rung.
    """

    iterations: int
    reduction_factor: int = 4
    first: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.iterations <= MAX_STEPS:
            raise InputError("iterations", self.iterations, f"1 to {MAX_STEPS}")
        if self.reduction_factor < 2:
            raise InputError("reduction_factor", self.reduction_factor, "at least 2")
        if not 1 <= self.first <= self.iterations:
            raise InputError("first", self.first, f"1 to {self.iterations} iterations")

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """The rungs, the last of which ends after `iterations`; how many trials come to them is not known."""
        steps = []
        step = self.first
        while step < self.iterations:
            steps.append(step)
            step *= self.reduction_factor
        return tuple(Rung(f"rung{i}", 0, step) for i, step in enumerate((*steps, self.iterations)))

    def goes_on(self, loss: float, before: Collection[RungArrival]) -> bool:
        """Say whether a trial runs on that comes to a rung after others.

        Of the n trials that have come there, itself included, k = ceil(n / `reduction_factor`) are the best. It runs on if
        fewer than k are strictly better, and if fewer than k of those that are better or equal ran on. So k of n equal trials
        run on, spread over their arrivals, and a trial that no other equals is judged by its rank alone. The first to come runs
        on. A loss that is not finite is the worst: a trial with one never runs on, and counts among the n.
        """
        best = ceil((len(before) + 1) / self.reduction_factor)
        finite = [other for other in before if isfinite(other.loss)]
        better = sum(other.loss < loss for other in finite)
        ran_on = sum(other.went_on and other.loss <= loss for other in finite)
        return isfinite(loss) and better < best and ran_on < best
