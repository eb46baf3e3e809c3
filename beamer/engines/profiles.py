"""How simulated jobs behave: how long their steps take on what they are given, and what they learn."""

import math
from dataclasses import dataclass

from beamer.engines.simulated import Outcome, SimulatedProfile
from beamer.gpu.model import Grant


@dataclass(frozen=True)
class HyperbolicLoss:
    """A loss that falls from `start` to `floor` as 1 / (1 + iterations / half). noise: relative, of each report.

    The noise is a fixed sequence, so that a report does not depend on when it is made.
    """

    start: float
    floor: float
    half: float
    noise: float = 0.0

    def at(self, iteration: float) -> float:
        """Return the loss after so many iterations."""
        loss = self.floor + (self.start - self.floor) / (1.0 + iteration / self.half)
        return loss * (1.0 + self.noise * math.sin(12.9898 * iteration + 78.233 * self.half))


@dataclass(frozen=True)
class DataParallelProfile(SimulatedProfile):
    """A job whose workers share a batch and then exchange gradients.

    compute_s: of the requested batch of `batch_size` samples on one GPU. fixed_s: of every step.
    local_s, remote_s: of an exchange of gradients among the GPUs of one node, of several.
    """

    loss: HyperbolicLoss
    batch_size: int
    compute_s: float
    fixed_s: float
    local_s: float
    remote_s: float

    def step_s(self, grant: Grant, batch_size: int) -> tuple[float, float]:
        """Return the time of a step: what is computed, what is constant, and the exchange in a ring."""
        workers = grant.size
        exchange_s = self.remote_s if grant.nodes > 1 else self.local_s
        sync_s = exchange_s * 2 * (workers - 1) / workers
        return self.compute_s * batch_size / self.batch_size / workers + self.fixed_s + sync_s, sync_s

    def outcome(self, iteration: float) -> Outcome:
        """Return the loss."""
        return Outcome(self.loss.at(iteration))
