"""The base of policies that decide on all jobs in scheduling rounds: the rounds, and what happens between them.

A round decides how many workers and servers every job has; it is carried out with as few moves as possible. Between rounds
running jobs keep what they have, and a job that waits is started at once where its tasks fit. That Optimus and SLAQ decide at
intervals is published; what happens between rounds is ours.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random

from beamer.gpu.even_placement import ROUNDING, EvenPlacer
from beamer.gpu.model import Allocation, Cluster, Grant, Job
from beamer.gpu.policy import GpuPolicy

TaskCounts = Mapping[str, tuple[int, int]]
"""Workers and servers of every job that is to run, by key, those first that are to be placed first of equals."""


@dataclass(frozen=True)
class LastRound:
    """When the last round was, seconds; None before the first."""

    decided_s: float | None = None


class RoundBased(GpuPolicy[LastRound]):
    """A policy that decides in rounds.

    A round is due `interval_s` after the last one, at once if nothing runs, and `patience_s` after the last one if a job that
    has arrived since does not fit while others hold more than their minimum.
    """

    State = LastRound
    resizes = True

    @property
    @abstractmethod
    def rounds(self) -> tuple[float, float]:
        """interval_s and patience_s."""

    @abstractmethod
    def task_counts(self, placer: EvenPlacer, jobs: Sequence[Job], now: float) -> TaskCounts:
        """Return the workers and servers of every job, in all no more than the empty cluster of `placer` holds."""

    def smallest(self, job: Job) -> tuple[int, int]:
        """Return the fewest workers that a job runs with, and their servers: one each."""
        return job.request.least, job.request.least if job.request.servers else 0

    def allocate(
        self, state: LastRound, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[LastRound, Allocation, float | None]:
        """Decide anew if a round is due; otherwise keep what runs and start what fits."""
        interval_s, patience_s = self.rounds
        last = state.decided_s
        if last is not None and last < now < last + interval_s:
            placer = EvenPlacer(cluster)
            grants = placer.keep_running(jobs)
            waiting = [job for job in jobs if job.key not in grants]
            self._start(placer, waiting, grants)
            due = self._due(last, interval_s, patience_s, jobs, grants)
            if grants and now < due:
                return state, grants, due
        if not jobs:
            return LastRound(), {}, None
        grants = self._place_all(cluster, jobs, self.task_counts(EvenPlacer(cluster), jobs, now))
        return LastRound(now), grants, now + interval_s

    def _due(
        self, last: float, interval_s: float, patience_s: float, jobs: Sequence[Job], grants: Mapping[str, Grant]
    ) -> float:
        """Return when the next round is due."""
        new = any(job.submitted_s > last and job.key not in grants for job in jobs)
        if new and any(grants[job.key].size > job.request.least for job in jobs if job.key in grants):
            return last + min(patience_s, interval_s)
        return last + interval_s

    def _start(self, placer: EvenPlacer, waiting: Sequence[Job], grants: dict[str, Grant]) -> None:
        """Start jobs at the size they ask for, or the smallest, in order of submission."""
        for job in waiting:
            if not placer.free_gpus:
                return
            least, servers = self.smallest(job)
            asked = (job.request.gpus, job.request.gpus if job.request.servers else 0)
            for size in dict.fromkeys((asked, (least, servers))):
                grant = placer.place(job.request, *size)
                if grant:
                    grants[job.key] = grant
                    break

    def _place_all(self, cluster: Cluster, jobs: Sequence[Job], counts: TaskCounts) -> dict[str, Grant]:
        """Return where every job runs; the first that fits the cluster at all is placed before anything else."""
        by_key = {job.key: job for job in jobs}
        grants = self._place_after(EvenPlacer(cluster), jobs, counts, None)
        for key in counts:
            if key in grants:
                break
            if EvenPlacer(cluster).place(by_key[key].request, *self.smallest(by_key[key])):
                return self._place_after(EvenPlacer(cluster), jobs, counts, key)
        return grants

    def _place_after(self, placer: EvenPlacer, jobs: Sequence[Job], counts: TaskCounts, first: str | None) -> dict[str, Grant]:
        """Place `first`, keep jobs of unchanged size where they are, place the others by number of tasks, ascending."""
        by_key = {job.key: job for job in jobs}
        grants: dict[str, Grant] = {}
        if first is not None:
            self._place(placer, by_key[first], counts[first], grants)
        for key, count in counts.items():
            job = by_key[key]
            held = job.grant or job.last
            if key not in grants and held and (held.size, held.served) == count and placer.fits(held, job.request):
                grants[key] = replace(held, batch_size=0)
                placer.reserve(held, job.request)
        rest = [key for key in counts if key not in grants]
        for key in sorted(rest, key=lambda key: sum(counts[key])):
            self._place(placer, by_key[key], counts[key], grants)
        self._start(placer, [job for job in jobs if job.key not in grants], grants)
        return grants

    def _place(self, placer: EvenPlacer, job: Job, count: tuple[int, int], grants: dict[str, Grant]) -> None:
        """Place a job at its new size, or where it runs, or at the largest half, quarter, ... of the size that fits."""
        request = job.request
        grant = placer.place(request, *count)
        if grant is None and job.grant and request.least <= job.grant.size <= request.most and placer.fits(job.grant, request):
            grant = job.grant
            placer.reserve(grant, request)
        least, least_servers = self.smallest(job)
        workers, servers = count
        while grant is None and workers > least:
            workers, servers = max(workers // 2, least), max(servers // 2, min(servers, least_servers))
            grant = placer.place(request, workers, servers)
        if grant:
            grants[job.key] = grant


class ClusterBudget:
    """The GPUs and cores that a round has not handed out yet, of all nodes together, wherever they are.

    gpus, cpus: left. total_gpus, total_cpus: at the start of the round.
    """

    def __init__(self, placer: EvenPlacer) -> None:
        self.gpus = self.total_gpus = placer.free_gpus
        self.cpus = self.total_cpus = placer.free_cpus

    def reserve(self, job: Job, workers: int, servers: int) -> bool:
        """Reserve so many workers and servers of a job and return True; False, and nothing reserved, if too little is left."""
        cpus = workers * job.request.worker_cpus + servers * job.request.server_cpus
        if workers > self.gpus or cpus > self.cpus + ROUNDING:
            return False
        self.gpus -= workers
        self.cpus -= cpus
        return True

    def dominant_share(self, job: Job, workers: int, servers: int) -> float:
        """Return the largest part of the cluster's GPUs or cores that so many workers and servers take."""
        cpus = workers * job.request.worker_cpus + servers * job.request.server_cpus
        of_gpus = workers / self.total_gpus if self.total_gpus else (inf if workers else 0.0)
        of_cpus = cpus / self.total_cpus if self.total_cpus else (inf if cpus else 0.0)
        return max(of_gpus, of_cpus)
