"""How fast jobs would train on other numbers of GPUs, at the best batch size or number of servers of each: all kinds of jobs.

Ours: jobs without servers by Pollux' goodput (`job_goodput`), jobs with servers by Optimus' speed model (`speed`), jobs that
were never measured as the median of the others, linear in their GPUs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from beamer.gpu.arrays import Bools, Floats, Ints
from beamer.gpu.model import Cluster, Job
from beamer.gpu.predictors.job_goodput import JobGoodputs
from beamer.gpu.predictors.speed import SpeedModel, speed_of

BATCH_CHANGE_GAIN = 0.05  # Another batch size must be better by this share before a job changes; fits may be off by as much.
MIN_SPEED = 1e-300  # iterations per second; keeps inverses finite
SERVERS_PER_WORKER = (1, 2, 3)  # numbers of parameter servers that are tried


@dataclass(frozen=True, eq=False)
class TrainingSpeeds:
    """The speeds of jobs by row.

    node_gpus: GPUs of the largest node; so many of a job's are assumed to lie on one. typical_s: GPU-seconds of an iteration,
    of a job that was never measured. served: models of those that parameter servers synchronise.
    """

    node_gpus: int
    goodputs: JobGoodputs
    measured: Bools
    served: Mapping[int, SpeedModel]
    typical_s: float = 1.0

    @classmethod
    def of(cls, cluster: Cluster, jobs: Sequence[Job]) -> "TrainingSpeeds":
        """Fit what was measured of `jobs`."""
        bare = cls(
            max(node.gpus for node in cluster.nodes),
            JobGoodputs.of(jobs, cautious=True),
            np.array([bool(job.speeds) for job in jobs], np.bool_),
            {row: speed_of(job) for row, job in enumerate(jobs) if job.request.servers and job.speeds},
        )
        rows = np.nonzero(bare.measured)[0]
        if not len(rows):
            return bare
        return replace(
            bare, typical_s=float(np.median(1.0 / np.maximum(bare.at(rows, np.ones(len(rows), np.int64)), MIN_SPEED)))
        )

    def at(self, rows: Ints, gpus: Ints) -> Floats:
        """Return the iterations of the requested batch size per second of `rows` on so many GPUs, at their best batch sizes."""
        rate = self.goodputs.best(rows, gpus, -(-gpus // self.node_gpus))[0] / self.goodputs.batches.requested[rows]
        rate = np.where(self.measured[rows], rate, gpus / self.typical_s)
        for place in np.nonzero(np.isin(rows, list(self.served)))[0].tolist() if self.served else ():
            row, count = int(rows[place]), int(gpus[place])
            rate[place] = 1.0 / max(self._served_step_s(row, count, self.servers(row, count)), MIN_SPEED)
        return np.asarray(rate)

    def servers(self, row: int, workers: int) -> int:
        """Return how many parameter servers suit a job on so many workers."""
        return min(
            (workers * times for times in SERVERS_PER_WORKER), key=lambda count: self._served_step_s(row, workers, count)
        )

    def _served_step_s(self, row: int, workers: int, servers: int) -> float:
        return self.served[row].step_s(workers, servers, float(self.goodputs.batches.requested[row]))

    def servers_for(self, jobs: Sequence[Job], sizes: Mapping[str, int], least_gain: float) -> dict[str, int]:
        """Return the servers of jobs; one that keeps its size keeps them unless others are faster by the share `least_gain`."""
        chosen: dict[str, int] = {}
        for row in self.served:
            job, workers = jobs[row], sizes.get(jobs[row].key, 0)
            if not workers:
                continue
            best = self.servers(row, workers)
            if job.grant and job.grant.size == workers:
                held_s = self._served_step_s(row, workers, job.grant.served)
                best = best if held_s > (1.0 + least_gain) * self._served_step_s(row, workers, best) else job.grant.served
            chosen[job.key] = best
        return chosen
