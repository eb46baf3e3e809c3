"""How simulated jobs behave: how long their steps take on what they are given, and what they learn."""

from dataclasses import dataclass

from beamer.engines.simulated import Outcome, SimulatedProfile
from beamer.gpu.model import Grant


@dataclass(frozen=True)
class HyperbolicLoss:
    """A loss that falls from `start` to `floor` as 1 / (1 + iterations / half)."""

    start: float
    floor: float
    half: float

    def at(self, iteration: float) -> float:
        """Return the loss after so many iterations."""
        return self.floor + (self.start - self.floor) / (1.0 + iteration / self.half)


@dataclass(frozen=True)
class DataParallelProfile(SimulatedProfile):
    """A job whose workers share a batch. A network simulates their exchange of gradients.

    compute_s: of the requested batch of `batch_size` samples on one GPU. fixed_s: of every step.
    """

    loss: HyperbolicLoss
    batch_size: int
    compute_s: float
    fixed_s: float

    def step_s(self, grant: Grant, batch_size: int) -> tuple[float, float]:
        """Return the time of a step: what is computed, and what is constant."""
        return self.compute_s * batch_size / self.batch_size / grant.size + self.fixed_s, 0.0

    def outcome(self, iteration: float) -> Outcome:
        """Return the loss."""
        return Outcome(self.loss.at(iteration))
