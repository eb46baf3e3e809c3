"""Elastic sizes without touching the framework: GPUs go where they shorten a job most, if that is worth a restart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from random import Random
from typing import ClassVar

from beamer.gpu.model import Allocation, Cluster, Job
from beamer.gpu.placement import arrange
from beamer.gpu.policies.base import GpuPolicy, Nothing
from beamer.gpu.predictors.speed import interpolated, throughputs, typical_step_s

NEVER_S = 1e18  # finite, so that differences are numbers


@dataclass(frozen=True)
class Elastic(GpuPolicy[Nothing]):
    """Shrink running jobs for those that arrive, grow them when GPUs are spare. [rebuilt: SC'20's scheduler, ALGORITHMS 6]

    A job that arrives gets its least number of GPUs; where they are short, the running job that loses least gives one up, as
    long as waiting for the next to finish would cost more than the restarts. A spare GPU goes to the job that it shortens most;
    a running job is restarted for it only if the seconds saved exceed `margin` times what its restart takes.
    """

    margin: float = 1.0

    name: ClassVar[str] = "elastic"
    resizes = True
    State = Nothing

    def allocate(
        self, state: Nothing, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Nothing, Allocation, float | None]:
        """Admit what waits, then hand out what is spare."""
        left = _Left(jobs)
        sizes = _standing(cluster, jobs)
        held = dict(sizes)
        free = cluster.gpus - sum(sizes.values())
        for job in jobs:
            if job.key not in sizes and job.request.least <= cluster.gpus:
                free = self._admit(job, jobs, sizes, free, left)
        stays: set[str] = set()
        while True:
            grown = _grow(jobs, sizes, free, left, stays)
            worthless = {
                job.key
                for job in jobs
                if job.key in held
                and sizes[job.key] == held[job.key] != grown[job.key]
                and left.seconds(job, held[job.key]) - left.seconds(job, grown[job.key]) <= self.margin * job.costs.restart_s
            }
            if not worthless:
                return state, arrange(cluster, jobs, grown), None
            stays |= worthless

    def _admit(self, job: Job, jobs: Sequence[Job], sizes: dict[str, int], free: int, left: "_Left") -> int:
        """Give a waiting job its least number of GPUs if that can be, and return how many are free then."""
        need = job.request.least
        if need > free:
            shrunk = _shrink(jobs, sizes, need - free, left)
            if shrunk is None:
                return free
            running = {one.key: one for one in jobs if one.key in sizes}
            cost_s = sum(
                self.margin * running[key].costs.restart_s
                + left.seconds(running[key], size)
                - left.seconds(running[key], sizes[key])
                for key, size in shrunk.items()
            )
            if cost_s >= min(left.seconds(one, sizes[key]) for key, one in running.items()):
                return free
            free += sum(sizes[key] - size for key, size in shrunk.items())
            sizes.update(shrunk)
        sizes[job.key] = need
        return free - need


@dataclass(frozen=True)
class Termination(Elastic):
    """Do as `elastic` where every change ends the job's container: the same rule under a larger restart cost. [rebuilt]"""

    name: ClassVar[str] = "termination"


class _Left:
    """What jobs have still to run: T_j(n), by measured speed, or the typical job's where nothing was measured."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._typical_s = typical_step_s(jobs)
        self._measured: dict[str, dict[int, float]] = {}
        self._known: dict[tuple[str, int], float] = {}

    def seconds(self, job: Job, gpus: int) -> float:
        """Return the seconds that a job has still to run on so many GPUs."""
        if (job.key, gpus) not in self._known:
            if job.key not in self._measured:
                self._measured[job.key] = throughputs(job.speeds) or {1: job.request.batch_size / self._typical_s}
            rate = interpolated(self._measured[job.key], gpus).value / job.request.batch_size
            self._known[job.key, gpus] = job.remaining / rate if rate > 0 else NEVER_S
        return self._known[job.key, gpus]


def _standing(cluster: Cluster, jobs: Sequence[Job]) -> dict[str, int]:
    """Return the sizes of the jobs that run on nodes that are up."""
    up = cluster.node
    return {job.key: job.grant.size for job in jobs if job.grant and all(node in up for node, _ in job.grant.gpus)}


def _shrink(jobs: Sequence[Job], sizes: Mapping[str, int], gpus: int, left: _Left) -> dict[str, int] | None:
    """Return smaller sizes of running jobs that free `gpus`, each where it is missed least; None if there are too few."""
    cost = [
        (left.seconds(job, sizes[job.key] - 1) - left.seconds(job, sizes[job.key]), place, sizes[job.key] - 1, job)
        for place, job in enumerate(jobs)
        if sizes.get(job.key, 0) > job.request.least
    ]
    heapify(cost)
    shrunk: dict[str, int] = {}
    for _ in range(gpus):
        if not cost:
            return None
        _, place, size, job = heappop(cost)
        shrunk[job.key] = size
        if size > job.request.least:
            heappush(cost, (left.seconds(job, size - 1) - left.seconds(job, size), place, size - 1, job))
    return shrunk


def _grow(jobs: Sequence[Job], sizes: Mapping[str, int], free: int, left: _Left, stays: set[str]) -> dict[str, int]:
    """Return the sizes after every free GPU went to the job that it shortens most, except those that stay as they are."""
    grown = dict(sizes)
    gain = [
        (left.seconds(job, size + 1) - left.seconds(job, size), place, size + 1, job)
        for place, job in enumerate(jobs)
        if (size := sizes.get(job.key, 0)) and size < job.request.most and job.key not in stays
    ]
    heapify(gain)
    while free and gain:
        saved, place, size, job = heappop(gain)
        if saved >= 0:
            continue
        grown[job.key] = size
        free -= 1
        if size < job.request.most:
            heappush(gain, (left.seconds(job, size + 1) - left.seconds(job, size), place, size + 1, job))
    return grown
