"""Simulated jobs of experiments on GPUs alone: with noise in what they report, and the time of their exchanges stated."""

import math
from dataclasses import dataclass

from beamer.engines.profiles import DataParallelProfile, HyperbolicLoss
from beamer.gpu.model import Grant


@dataclass(frozen=True)
class NoisyLoss(HyperbolicLoss):
    """A falling loss with noise, relative, in each report: a fixed sequence, so that it does not depend on when one is made."""

    noise: float

    def at(self, iteration: float) -> float:
        """Return the loss after so many iterations."""
        return super().at(iteration) * (1.0 + self.noise * math.sin(12.9898 * iteration + 78.233 * self.half))


@dataclass(frozen=True)
class ExchangingProfile(DataParallelProfile):
    """A job whose gradients are exchanged in a ring. local_s, remote_s: among the GPUs of one node, of several."""

    local_s: float
    remote_s: float

    def step_s(self, grant: Grant, batch_size: int) -> tuple[float, float]:
        """Return the time of a step and, of it, of the exchange."""
        exchange_s = self.remote_s if grant.nodes > 1 else self.local_s
        sync_s = exchange_s * 2 * (grant.size - 1) / grant.size
        return super().step_s(grant, batch_size)[0] + sync_s, sync_s
