"""The batch sizes that jobs may be run at, as they follow from the number of GPUs that they get."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from beamer.gpu.arrays import Bools, Floats, Ints
from beamer.gpu.model import Request


@dataclass(frozen=True, eq=False)
class BatchSizes:
    """The limits of jobs, a row each, samples.

    requested: what counts as the batch size of one GPU. largest: the largest that a job allows. per_gpu: on each GPU at a time;
    accumulates: whether it takes more in several sub-steps. by_rate: what its largest learning rate stands for. Infinite where
    there is no limit.
    """

    requested: Floats
    largest: Floats
    per_gpu: Floats
    accumulates: Bools
    by_rate: Floats

    @classmethod
    def of(cls, requests: Sequence[Request]) -> "BatchSizes":
        """Return the limits of `requests`."""
        rows = [
            (
                request.batch_size,
                request.max_batch_size or request.batch_size,
                request.max_local_batch_size or np.inf,
                request.accumulates,
                request.batch_size * max(request.max_learning_rate / request.learning_rate, 1.0)
                if states_learning_rates(request)
                else np.inf,
            )
            for request in requests
        ]
        requested, largest, per_gpu, accumulates, by_rate = np.array(rows, np.float64).reshape(-1, 5).T
        return cls(requested, largest, per_gpu, accumulates > 0, by_rate)

    def between(self, rows: Ints, gpus: Ints) -> tuple[Floats, Floats]:
        """Return the smallest and the largest batch sizes on so many GPUs."""
        requested = self.requested[rows]
        high = np.minimum(np.maximum(self.largest[rows], requested), self._fitting(rows, gpus))
        return np.minimum(requested, high), high

    def scaled(self, rows: Ints, gpus: Ints) -> Floats:
        """Return the batch sizes in proportion to so many GPUs, up to what the largest learning rate stands for."""
        largest = np.minimum(np.minimum(self.largest[rows], self.by_rate[rows]), self._fitting(rows, gpus))
        return np.maximum(np.floor(np.minimum(self.requested[rows] * gpus, largest) + 1e-6), 1.0)

    def sub_steps(self, rows: Ints, gpus: Ints, batch: Floats) -> Floats:
        """Return in how many sub-steps so many GPUs take a batch: as many as it takes for each to fit."""
        local = np.where(self.accumulates[rows], self.per_gpu[rows], np.inf)
        return np.asarray(np.maximum(np.ceil(batch / (gpus * local)), 1.0))

    def _fitting(self, rows: Ints, gpus: Ints) -> Floats:
        """Return the largest batch sizes that so many GPUs take."""
        return np.asarray(np.where(self.accumulates[rows], np.inf, self.per_gpu[rows] * gpus))


def states_learning_rates(request: Request) -> bool:
    """Return whether a job states its learning rate and how far that may rise."""
    return request.learning_rate > 0 and request.max_learning_rate > 0
