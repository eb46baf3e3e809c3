"""Convergence-aware preemption: the jobs whose loss falls fastest per second have the GPUs."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from random import Random

from beamer.errors import InputError, nearest
from beamer.gpu.model import Allocation, Cluster, Grant, Job, Node
from beamer.gpu.placement import ROUNDING, Room
from beamer.gpu.policies.base import GpuPolicy

NORMS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "first": lambda losses: losses[0],
    "largest": max,
    "none": lambda losses: 1.0,
}


@dataclass(frozen=True)
class Homes:
    """The node on which each job is queued, by job."""

    node: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Hermes(GpuPolicy[Homes]):
    """Queue every job on a node and run those of a node that converge fastest. [rebuilt: Hermes, ALGORITHMS 6]

    window: reports over which the fall of the loss is measured (W). norm: what it is relative to: the job's `first` loss, its
    `largest`, or `none`. hysteresis: by what share a waiting job must converge faster than a running one to take its place.
    quantum_s: for how long a job that was started is left alone. Jobs with fewer than window + 1 reports go first, in order of
    submission; one that reports no finite loss goes last. Jobs larger than any node run wherever there is room.
    """

    window: int = 5
    norm: str = "first"
    hysteresis: float = 0.1
    quantum_s: float = 0.0

    name = "hermes"
    State = Homes

    def __post_init__(self) -> None:
        if self.window < 1:
            raise InputError("window", self.window, "at least 1")
        if self.norm not in NORMS:
            raise InputError("norm", self.norm, nearest(self.norm, NORMS))

    def allocate(
        self, state: Homes, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Homes, Allocation, float | None]:
        """Queue what has arrived, then run the fastest of each node."""
        homes = self._homes(state, cluster, jobs)
        order = sorted(jobs, key=lambda job: self._rank(job, now), reverse=True)
        room = Room(cluster)
        grants: dict[str, Grant] = {}
        for job in order:
            if not room.total:
                break
            count = job.request.gpus
            grant = room.grant_on(job, homes[job.key], count) if job.key in homes else room.grant(job, count)
            if grant:
                grants[job.key] = grant
        ends = [job.since_s + self.quantum_s for job in jobs if job.key in grants and job.grant]
        wake_at = (
            min((at_s for at_s in ends if at_s > now), default=None) if self.quantum_s and len(grants) < len(jobs) else None
        )
        return Homes(tuple(homes.items())), grants, wake_at

    def _homes(self, state: Homes, cluster: Cluster, jobs: Sequence[Job]) -> dict[str, str]:
        """Return the node of every job that fits one: where it is, or where the fewest GPUs are asked for per GPU."""
        known = dict(state.node)
        homes = {job.key: known[job.key] for job in jobs if known.get(job.key) in cluster.node}
        asked = dict.fromkeys(cluster.node, 0)
        for job in jobs:
            if job.key in homes:
                asked[homes[job.key]] += job.request.gpus
        # by size, so that a large job does not look through all small nodes
        queues: dict[tuple[int, float], list[tuple[float, int, Node]]] = {}
        for place, node in enumerate(cluster.nodes):
            if node.gpus:
                queues.setdefault((node.gpus, node.cpus), []).append((asked[node.name] / node.gpus, place, node))
        for queue in queues.values():
            heapify(queue)
        for job in jobs:
            if job.key in homes:
                continue
            count, cores = job.request.gpus, job.request.gpus * job.request.worker_cpus - ROUNDING
            queue = min((queue for (gpus, cpus), queue in queues.items() if gpus >= count and cpus >= cores), default=[])
            if queue:
                load, place, node = queue[0]
                homes[job.key] = node.name
                heapreplace(queue, (load + job.request.gpus / node.gpus, place, node))
        return homes

    def _rank(self, job: Job, now: float) -> tuple[bool, float, bool]:
        """Return what jobs are sorted by, highest first; equal ones stay in order of submission."""
        protected = job.grant is not None and now < job.since_s + self.quantum_s
        speed = convergence(job, self.window, NORMS[self.norm])
        if job.grant and speed > 0:
            speed *= 1 + self.hysteresis
        return protected, speed, job.grant is not None


def convergence(job: Job, window: int, norm: Callable[[Sequence[float]], float]) -> float:
    """Return by how much the job's normalised loss fell per second of service in the last `window` reports.

    Infinity for a job that has not reported as often, minus infinity for one whose losses are not finite.
    """
    if len(job.reports) <= window:
        return math.inf
    before, last = job.reports[-1 - window], job.reports[-1]
    if not (math.isfinite(before.loss) and math.isfinite(last.loss)):
        return -math.inf
    scale = norm([report.loss for report in job.reports if math.isfinite(report.loss)])
    seconds = last.service_s - before.service_s
    if not (scale > 0 and seconds > 0):
        return 0.0
    return (before.loss - last.loss) / (scale * seconds)
