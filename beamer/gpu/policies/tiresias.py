"""Least attained service in two dimensions, GPUs and time: short jobs first without knowing which those are."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from beamer.gpu.model import Allocation, Cluster, Job
from beamer.gpu.placement import pack
from beamer.gpu.policies.base import GpuPolicy, Nothing


@dataclass(frozen=True)
class Tiresias(GpuPolicy[Nothing]):
    """Serve the jobs with the GPU-seconds of the lowest queue first, in order of submission within it. [from memory: rebuilt]

    limits_gpu_s: upper ends of all queues but the last, ascending. promote: a job that has waited this many times as long as it
    has run starts again in the first queue; 0: never.
    """

    limits_gpu_s: tuple[float, ...] = (3600.0,)
    promote: float = 8.0

    name = "tiresias"
    State = Nothing

    def allocate(
        self, state: Nothing, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Nothing, Allocation, float | None]:
        """Order by queue, and wake when a running job leaves its queue."""
        grants = pack(cluster, sorted(jobs, key=lambda job: self._queue(job, now)))
        leaves = [now + self._seconds_left(job, now) for job in jobs if job.key in grants]
        return state, grants, min((at_s for at_s in leaves if now < at_s < inf), default=None)

    def _queue(self, job: Job, now: float) -> int:
        waited = now - job.since_s
        if self.promote and not job.grant and job.service_s and waited > self.promote * job.service_s:
            return 0
        return bisect_right(self.limits_gpu_s, job.gpu_seconds_at(now) * (1 + 1e-9))

    def _seconds_left(self, job: Job, now: float) -> float:
        queue = self._queue(job, now)
        if queue == len(self.limits_gpu_s):
            return inf
        return max(self.limits_gpu_s[queue] - job.gpu_seconds_at(now), 0.0) / job.request.gpus
