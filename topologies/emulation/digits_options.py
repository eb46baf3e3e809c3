"""What `topologies.emulation.digits` is asked to train."""

from dataclasses import dataclass
from pathlib import Path

from topologies.emulation.digits_data import seed_of


@dataclass(frozen=True)
class DigitsOptions:
    """What to do.

    iterations: after which it ends. compute_s: that an iteration takes at least on one GPU, divided among the ranks; fixed_s:
    on any number. overlap: share of it during which the coflow may already run. epoch: iterations between two lines of
    progress. start_s: from the process's start to the first iteration, at least, when it is first started; restart_s: later.
    timeout_s: of a collective. data: a file that `digits_data.store` has written; None: scikit-learn is asked. learning_rate,
    momentum, channels of the first convolution: the configuration. hidden: units of the hidden layer, whose weights most of the
    gradient belongs to.
    """

    iterations: int
    compute_s: float
    fixed_s: float
    overlap: float
    epoch: int
    start_s: float
    restart_s: float
    timeout_s: float
    data: Path | None
    learning_rate: float
    momentum: float
    channels: int
    hidden: int

    @property
    def seed(self) -> int:
        """What seeds the weights and the order of the samples."""
        return seed_of(self.learning_rate, self.momentum, self.channels)

    def iteration_s(self, ranks: int) -> float:
        """Return what an iteration computes for at least, seconds."""
        return self.compute_s / ranks + self.fixed_s
