"""The goodput of many jobs on given GPUs, each at the batch size of its largest goodput: one row per job.

That a job runs at the batch size of its largest goodput is Pollux [Qiao et al. 2021, section 4.1]; `cautious` is ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from beamer.gpu.arrays import Bools, Floats, Ints
from beamer.gpu.batch_sizes import BatchSizes, states_learning_rates
from beamer.gpu.model import Grant, Job, Speed
from beamer.gpu.predictors.batch_cache import BatchCache
from beamer.gpu.predictors.goodput import MAX_NOISE_SCALE, StepTimes, best_goodput, efficiency, fit_steps, noise_scale

MAX_REMEMBERED = 1 << 15  # The number of fits is three times the jobs of the largest cluster that is benchmarked.


@dataclass(frozen=True, eq=False)
class JobGoodputs:
    """The goodputs of jobs.

    noise: noise scales, samples. by_rate: whose batch size follows from the learning rate; free: whose is searched for; the
    others keep the one requested.
    """

    times: StepTimes
    noise: Floats
    batches: BatchSizes
    by_rate: Bools
    free: Bools

    @classmethod
    def of(cls, jobs: Sequence[Job], cautious: bool = False) -> "JobGoodputs":
        """Fit what was measured of `jobs`.

        cautious: whether a job that has not measured its gradients keeps its batch size, or, if it states learning rates,
        has one in proportion to its GPUs, of which no sample is worth less; otherwise its samples count as free of noise.
        """
        noise = np.array([noise_scale(job) for job in jobs], np.float64)
        rates = np.array([cautious and states_learning_rates(job.request) for job in jobs], np.bool_)
        by_rate = rates & (noise == 0)
        return cls(
            StepTimes(np.stack(_FITTED([job.speeds for job in jobs]))),
            np.where(by_rate, MAX_NOISE_SCALE, noise),
            BatchSizes.of([job.request for job in jobs]),
            by_rate,
            (noise > 0) | (not cautious),
        )

    def best(self, rows: Ints, gpus: Ints, nodes: Ints) -> tuple[Floats, Ints]:
        """Return the largest goodput of `rows` on so many GPUs and nodes, and the batch sizes for it."""
        low, high = self.batches.between(rows, gpus)
        fixed = np.where(self.by_rate[rows], self.batches.scaled(rows, gpus), self.batches.requested[rows])
        low, high = np.where(self.free[rows], low, fixed), np.where(self.free[rows], high, fixed)
        goodput, batch = self._at(rows, gpus, nodes, low), low.astype(np.int64)
        search = np.flatnonzero(low < high)
        rows, gpus, nodes = rows[search], gpus[search], nodes[search]
        noise, requested, low, high = self.noise[rows], self.batches.requested[rows], low[search], high[search]

        def sub_steps(tried: Floats) -> Floats:
            return self.batches.sub_steps(rows[:, None], gpus[:, None], tried)

        goodput[search], batch[search] = best_goodput(self.times, rows, gpus, nodes, noise, requested, low, high, sub_steps)
        return goodput, batch

    def _at(self, rows: Ints, gpus: Ints, nodes: Ints, batch: Floats) -> Floats:
        worth = efficiency(self.noise[rows], self.batches.requested[rows], batch)
        return np.asarray(batch / self.step_s(rows, gpus, nodes, batch) * worth)

    def step_s(self, rows: Ints, gpus: Ints, nodes: Ints, batch: Floats) -> Floats:
        """Return the seconds of steps of `rows` at so many samples."""
        return self.times.at(rows, gpus, nodes, batch, self.batches.sub_steps(rows, gpus, batch))

    def with_batches(
        self, jobs: Sequence[Job], grants: Mapping[str, Grant], least_gain: Floats | float, gain_kept: Floats | float = 1.0
    ) -> dict[str, Grant]:
        """Return the grants of the jobs of all rows, each with the batch size that is best where it lies.

        A job that stays changes its batch size only for one that is better by the share `least_gain`, of which a change leaves
        as much as `gain_kept` says, both by row.
        """
        rows = np.array([row for row, job in enumerate(jobs) if job.key in grants], np.int64)
        placed = [grants[jobs[row].key] for row in rows.tolist()]
        gpus, nodes = (np.array(column, np.int64) for column in ([g.size for g in placed], [g.nodes for g in placed]))
        goodput, batch = self.best(rows, gpus, nodes)
        chosen = [jobs[row] for row in rows.tolist()]
        held = np.array([(job.grant.batch_size if job.grant else 0) or job.request.batch_size for job in chosen], np.float64)
        gain = goodput / self._at(rows, gpus, nodes, held) * np.broadcast_to(gain_kept, len(jobs))[rows]
        least = 1.0 + np.broadcast_to(least_gain, len(jobs))[rows]
        result: dict[str, Grant] = {}
        for job, grant, size, better in zip(chosen, placed, batch.tolist(), (gain >= least).tolist(), strict=True):
            if job.grant and job.grant.gpus == grant.gpus and not better:
                size = job.grant.batch_size
            result[job.key] = replace(grant, batch_size=0 if size == job.request.batch_size else size)
        return result


def _fitted(speeds: Sequence[tuple[Speed, ...]]) -> list[Floats]:
    """Return the parameters of the step times of jobs: a fit does not depend on the other jobs."""
    return list(fit_steps(speeds).theta)


_FITTED = BatchCache(_fitted, MAX_REMEMBERED)
