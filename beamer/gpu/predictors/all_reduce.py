"""Step times of jobs that synchronise by all-reduce, at the batch size that they ask for and any number of GPUs.

Optimus' speed model knows parameter servers only [Peng, Bao, Chen, Wu and Guo 2018, section 3.2]. For jobs without them Pollux'
model of a step takes its place (`goodput`), as in the comparison that Pollux' authors made with Optimus [Qiao et al. 2021,
section 5.1]: it knows nodes and gradient accumulation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from beamer.gpu.model import Job
from beamer.gpu.predictors.job_goodput import JobGoodputs

# At first so many sizes are predicted at once, then twice the size that a job comes to, as predictions cost per call.
FIRST_SIZES = 8


@dataclass
class AllReduceSpeed:
    """The model of one job. node_gpus: GPUs of the largest node; so many of a job's are assumed to lie on one."""

    goodputs: JobGoodputs
    row: int
    node_gpus: int
    _seconds: list[float] = field(default_factory=list, repr=False)

    def step_s(self, workers: int, servers: int = 0, batch_size: float = 1.0) -> float:
        """Return the seconds of a step of the batch size that it asks for, whatever `servers` and `batch_size`."""
        if workers > len(self._seconds):
            gpus = np.arange(1, max(2 * workers, FIRST_SIZES) + 1)
            rows = np.full(len(gpus), self.row)
            batch = self.goodputs.batches.requested[rows]
            self._seconds = self.goodputs.step_s(rows, gpus, -(-gpus // self.node_gpus), batch).tolist()
        return self._seconds[workers - 1]


def all_reduce_speeds(jobs: Sequence[Job], node_gpus: int) -> dict[str, AllReduceSpeed]:
    """Return the models of those jobs that have no servers and were measured, by key."""
    chosen = [job for job in jobs if job.speeds and not job.request.servers]
    if not chosen:
        return {}
    goodputs = JobGoodputs.of(chosen)
    return {job.key: AllReduceSpeed(goodputs, row, node_gpus) for row, job in enumerate(chosen)}
