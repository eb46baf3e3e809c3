"""How fast jobs would learn on other numbers of GPUs, at the batch size that suits each: one table for all kinds of jobs."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from beamer.gpu.model import Cluster, Grant, Job, Speed
from beamer.gpu.predictors.goodput import NOISIEST, StepTimes, batch_range, best_goodput, efficiency, fit_steps, noise_scale
from beamer.gpu.predictors.speed import SpeedModel, speed_of
from beamer.gpu.sizes import scaled_batch

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KNOWN: OrderedDict[tuple[Speed, ...], StepTimes] = OrderedDict()
MOST_KNOWN = 1 << 15
REBATCH = 0.05  # by what share another batch size must be better before a job changes its own
SLOWEST = 1e-300
SERVERS = (1, 2, 3)  # per worker


@dataclass(frozen=True, eq=False)
class Rates:
    """The speeds of jobs by row.

    widest: GPUs of the largest node; so many of a job's are taken to lie together. typical_s: GPU-seconds of an iteration, of a
    job that was never measured. served: models of those that parameter servers synchronise.
    """

    jobs: Sequence[Job]
    widest: int
    times: StepTimes
    noise: Floats
    requested: Floats
    measured: NDArray[np.bool_]
    served: Mapping[int, SpeedModel]
    typical_s: float = 1.0

    @classmethod
    def of(cls, cluster: Cluster, jobs: Sequence[Job]) -> "Rates":
        """Fit what was measured of `jobs`."""
        bare = cls(
            jobs,
            max(node.gpus for node in cluster.nodes),
            _fitted([job.speeds for job in jobs]),
            np.array([NOISIEST if _by_learning_rate(job) else noise_scale(job) for job in jobs]),
            np.array([job.request.batch_size for job in jobs], np.float64),
            np.array([bool(job.speeds) for job in jobs], np.bool_),
            {row: speed_of(job) for row, job in enumerate(jobs) if job.request.servers and job.speeds},
        )
        rows = np.nonzero(bare.measured)[0]
        if not len(rows):
            return bare
        return replace(bare, typical_s=float(np.median(1.0 / np.maximum(bare.at(rows, np.ones(len(rows), np.int64)), SLOWEST))))

    def at(self, rows: Ints, gpus: Ints) -> Floats:
        """Return the iterations of the requested batch size per second of `rows` on so many GPUs, at their best batch sizes."""
        rate = self._goodput(rows, gpus, -(-gpus // self.widest))[0] / self.requested[rows]
        rate = np.where(self.measured[rows], rate, gpus / self.typical_s)
        for place in np.nonzero(np.isin(rows, list(self.served)))[0].tolist() if self.served else ():
            row, count = int(rows[place]), int(gpus[place])
            rate[place] = 1.0 / max(self._served_step_s(row, count, self.servers(row, count)), SLOWEST)
        return np.asarray(rate)

    def servers(self, row: int, workers: int) -> int:
        """Return how many parameter servers suit a job on so many workers."""
        if row not in self.served:
            return workers
        return min((workers * times for times in SERVERS), key=lambda count: self._served_step_s(row, workers, count))

    def _served_step_s(self, row: int, workers: int, servers: int) -> float:
        return self.served[row].step_s(workers, servers, self.requested[row])

    def servers_for(self, jobs: Sequence[Job], sizes: Mapping[str, int], pays: float) -> dict[str, int]:
        """Return the servers of the jobs of all rows; one that keeps its size keeps them unless others are faster by `pays`."""
        chosen: dict[str, int] = {}
        for row in self.served:
            job, workers = jobs[row], sizes.get(jobs[row].key, 0)
            if not workers:
                continue
            best = self.servers(row, workers)
            if job.grant and job.grant.size == workers:
                held_s = self._served_step_s(row, workers, job.grant.served)
                best = best if held_s > (1.0 + pays) * self._served_step_s(row, workers, best) else job.grant.served
            chosen[job.key] = best
        return chosen

    def with_batches(self, jobs: Sequence[Job], grants: Mapping[str, Grant]) -> dict[str, Grant]:
        """Return the grants of the jobs of all rows, each with the batch size that is best where it lies.

        A job that stays changes its batch size only for one that is better by `REBATCH`.
        """
        rows = np.array([row for row, job in enumerate(jobs) if job.key in grants], np.int64)
        if not len(rows):
            return {}
        placed = [grants[jobs[row].key] for row in rows.tolist()]
        gpus, nodes = (np.array(column, np.int64) for column in ([g.size for g in placed], [g.nodes for g in placed]))
        goodput, batch = self._goodput(rows, gpus, nodes)
        held = np.array([(job.grant.batch_size if job.grant else 0) or job.request.batch_size for job in jobs], np.float64)[
            rows
        ]
        before = held / self.times.at(rows, gpus, nodes, held) * efficiency(self.noise[rows], self.requested[rows], held)
        result: dict[str, Grant] = {}
        for row, grant, size, gain in zip(rows.tolist(), placed, batch.tolist(), (goodput / before).tolist(), strict=True):
            job = jobs[row]
            if job.grant and job.grant.gpus == grant.gpus and gain < 1.0 + REBATCH:
                size = job.grant.batch_size
            result[job.key] = replace(grant, batch_size=0 if size == job.request.batch_size else size)
        return result

    def _goodput(self, rows: Ints, gpus: Ints, nodes: Ints) -> tuple[Floats, Ints]:
        limits = [_batches(self.jobs[row], size) for row, size in zip(rows.tolist(), gpus.tolist(), strict=True)]
        low, high = np.array(limits, np.float64).reshape(-1, 2).T
        if (low == high).all():  # nothing to search for
            worth = efficiency(self.noise[rows], self.requested[rows], low)
            return low / self.times.at(rows, gpus, nodes, low) * worth, low.astype(np.int64)
        return best_goodput(self.times, rows, gpus, nodes, self.noise[rows], self.requested[rows], low, high)


def _fitted(jobs: Sequence[tuple[Speed, ...]]) -> StepTimes:
    """Return the step times of jobs, each set of measurements fitted once: a fit does not depend on the other jobs."""
    new = list(dict.fromkeys(speeds for speeds in jobs if speeds not in KNOWN))
    times = fit_steps(new)
    for row, speeds in enumerate(new):
        KNOWN[speeds] = StepTimes(times.theta[row], times.spread[row], times.seen[row])
    fits = [KNOWN[speeds] for speeds in jobs]
    while len(KNOWN) > MOST_KNOWN:
        KNOWN.popitem(last=False)
    return StepTimes(*(np.stack([getattr(fit, name) for fit in fits]) for name in ("theta", "spread", "seen")))


def _by_learning_rate(job: Job) -> bool:
    """Say whether a job's batch size follows from its learning rate, nothing being known of its gradients."""
    request = job.request
    return request.learning_rate > 0 and request.max_learning_rate > 0 and not noise_scale(job)


def _batches(job: Job, gpus: int) -> tuple[int, int]:
    if _by_learning_rate(job):
        size = scaled_batch(job.request, gpus) or job.request.batch_size
        return size, size
    if noise_scale(job):
        return batch_range(job.request, gpus)
    return job.request.batch_size, job.request.batch_size
