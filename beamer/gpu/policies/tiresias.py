"""Tiresias: least attained service in two dimensions, GPUs and time; short jobs first without knowing which those are."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from random import Random

from beamer.errors import InputError
from beamer.gpu.model import Allocation, Cluster, Job
from beamer.gpu.placement import pack
from beamer.gpu.policy import GpuPolicy, check_at_least

# A job this near its queue's limit, relative to GPU-seconds, has left the queue, so that no wake-up is spent on it.
ROUNDING = 1e-9


@dataclass(frozen=True)
class LastPromotions:
    """By job, its GPU-seconds when it was last promoted; only those since then count."""

    gpu_s: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Tiresias(GpuPolicy[LastPromotions]):
    """Serve the jobs with the GPU-seconds of the lowest queue first, in order of submission within it.

    Discretized two-dimensional least attained service (Discretized 2D-LAS), with the promotion that guards against starvation
    [Gu, Chowdhury, Shin, Zhu, Jeon, Qian, Liu and Guo 2019, "Tiresias: a GPU cluster manager for distributed deep learning"].
    Our reconstruction of what the publication describes, made without its code, so that details may differ: placement is
    Beamer's (fewest nodes) rather than by the skew of a model's tensors, and the default limit is ours.

    limits_gpu_s: upper ends of all queues but the last, ascending. promote: a job that has waited this many times as long as it
    has run starts again in the first queue, as if it had attained no service; 0: never.
    """

    limits_gpu_s: tuple[float, ...] = (3600.0,)
    promote: float = 8.0

    name = "tiresias"
    State = LastPromotions

    def __post_init__(self) -> None:
        if not all(lower < upper for lower, upper in pairwise((0.0, *self.limits_gpu_s, inf))):
            raise InputError("limits_gpu_s", self.limits_gpu_s, "finite numbers above 0, ascending")
        check_at_least(self, 0, "promote", endless=True)

    def allocate(
        self, state: LastPromotions, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[LastPromotions, Allocation, float | None]:
        """Promote, order by queue, and wake when a running job leaves its queue or a waiting one is to be promoted."""
        before = dict(state.gpu_s)
        counted = {job.key: job.gpu_s if self._due_s(job) <= now else before.get(job.key, 0.0) for job in jobs}
        queue = {job.key: self._queue(job.gpu_seconds_at(now) - counted[job.key]) for job in jobs}
        grants = pack(cluster, sorted(jobs, key=lambda job: queue[job.key]))
        changes = [
            now + self._seconds_left(job, queue[job.key], now, counted[job.key]) if job.key in grants else self._due_s(job)
            for job in jobs
        ]
        wake_at = min((at_s for at_s in changes if now < at_s < inf), default=None)
        return LastPromotions(tuple((key, gpu_s) for key, gpu_s in counted.items() if gpu_s)), grants, wake_at

    def _due_s(self, job: Job) -> float:
        """Return when a job that waits is promoted."""
        waits = self.promote and not job.grant and job.service_s
        return job.since_s + self.promote * job.service_s if waits else inf

    def _queue(self, gpu_s: float) -> int:
        return bisect_right(self.limits_gpu_s, gpu_s * (1 + ROUNDING))

    def _seconds_left(self, job: Job, queue: int, now: float, counted: float) -> float:
        """Return how long a job may run until it leaves its queue."""
        if queue == len(self.limits_gpu_s):
            return inf
        return max(self.limits_gpu_s[queue] - (job.gpu_seconds_at(now) - counted), 0.0) / job.request.gpus
