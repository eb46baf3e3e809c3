"""What `topologies.emulation.digits` is asked to train."""

from dataclasses import dataclass
from pathlib import Path

from topologies.emulation.digits_data import seed_of


@dataclass(frozen=True)
class DigitsOptions:
    """What to do."""

    iterations: int
    """Iterations after which it ends."""
    compute_s: float
    """Seconds that an iteration takes at least on one GPU, divided among the ranks."""
    fixed_s: float
    """Seconds that an iteration takes at least on any number of GPUs, in addition."""
    overlap: float
    """The share of the computing during which the coflow may already run."""
    epoch: int
    """Iterations between two lines of progress."""
    start_s: float
    """Seconds from the process's start to the first iteration, at least, when it is first started."""
    restart_s: float
    """Seconds as `start_s`, when it is started again."""
    timeout_s: float
    """The time-out of a collective, seconds."""
    data: Path | None
    """A file that `digits_data.store` has written; None: scikit-learn is asked."""
    learning_rate: float
    """The configuration's learning rate."""
    momentum: float
    """The configuration's momentum."""
    channels: int
    """The configuration's channels of the first convolution."""
    hidden: int
    """Units of the hidden layer, whose weights most of the gradient belongs to."""

    @property
    def seed(self) -> int:
        """What seeds the weights and the order of the samples."""
        return seed_of(self.learning_rate, self.momentum, self.channels)

    def iteration_s(self, ranks: int) -> float:
        """Return what an iteration computes for at least, seconds."""
        return self.compute_s / ranks + self.fixed_s
