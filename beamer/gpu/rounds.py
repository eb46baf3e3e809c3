"""What policies share that decide on all jobs at intervals: rounds, and what happens between them.

A round says how many workers and servers every job is to have; it is carried out with as few moves as possible. Between rounds
running jobs keep what they have, and a job that waits is started at once where there is room.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random

from beamer.gpu.model import Allocation, Cluster, Grant, Job
from beamer.gpu.packing import Machines
from beamer.gpu.policy import GpuPolicy

Sizes = Mapping[str, tuple[int, int]]
"""Workers and servers of every job that is to run, by key, those first that are to be placed first of equals."""


@dataclass(frozen=True)
class Round:
    """When the last round was; None before the first."""

    decided_s: float | None = None


class Rounds(GpuPolicy[Round]):
    """A policy that decides at intervals.

    A round is due `interval_s` after the last one, at once if nothing runs, and `patience_s` after the last one if a job that
    came since finds no room while others hold more than they need.
    """

    State = Round
    resizes = True

    @property
    @abstractmethod
    def rounds(self) -> tuple[float, float]:
        """interval_s and patience_s."""

    @abstractmethod
    def sizes(self, machines: Machines, jobs: Sequence[Job], now: float) -> Sizes:
        """Return what every job is to have, no more in all than the empty `machines` have."""

    def smallest(self, job: Job) -> tuple[int, int]:
        """Return the fewest workers a job runs with, and their servers: one each."""
        return job.request.least, job.request.least if job.request.servers else 0

    def allocate(
        self, state: Round, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Round, Allocation, float | None]:
        """Decide anew if a round is due; otherwise keep what runs and start what fits."""
        interval_s, patience_s = self.rounds
        last = state.decided_s
        if last is not None and last < now < last + interval_s:
            machines = Machines(cluster)
            grants = machines.keep(jobs)
            waiting = [job for job in jobs if job.key not in grants]
            self._start(machines, waiting, grants)
            due = self._due(last, interval_s, patience_s, jobs, grants)
            if grants and now < due:
                return state, grants, due
        if not jobs:
            return Round(), {}, None
        grants = self._carry_out(cluster, jobs, self.sizes(Machines(cluster), jobs, now))
        return Round(now), grants, now + interval_s

    def _due(
        self, last: float, interval_s: float, patience_s: float, jobs: Sequence[Job], grants: Mapping[str, Grant]
    ) -> float:
        """Return when the next round is due."""
        new = any(job.submitted_s > last and job.key not in grants for job in jobs)
        if new and any(grants[job.key].size > job.request.least for job in jobs if job.key in grants):
            return last + min(patience_s, interval_s)
        return last + interval_s

    def _start(self, machines: Machines, waiting: Sequence[Job], grants: dict[str, Grant]) -> None:
        """Start jobs at the size they ask for, or the smallest, in order of submission."""
        for job in waiting:
            if not machines.free_gpus:
                return
            least, servers = self.smallest(job)
            asked = (job.request.gpus, job.request.gpus if job.request.servers else 0)
            for size in dict.fromkeys((asked, (least, servers))):
                grant = machines.place(job.request, *size)
                if grant:
                    grants[job.key] = grant
                    break

    def _carry_out(self, cluster: Cluster, jobs: Sequence[Job], sizes: Sizes) -> dict[str, Grant]:
        """Return where every job is to run; the first that fits the cluster at all has room before anything else."""
        by_key = {job.key: job for job in jobs}
        grants = self._placed(Machines(cluster), jobs, sizes, None)
        for key in sizes:
            if key in grants:
                break
            if Machines(cluster).place(by_key[key].request, *self.smallest(by_key[key])):
                return self._placed(Machines(cluster), jobs, sizes, key)
        return grants

    def _placed(self, machines: Machines, jobs: Sequence[Job], sizes: Sizes, ahead: str | None) -> dict[str, Grant]:
        """Place `ahead`, keep those whose size stays where they are, place the others by number of tasks, ascending."""
        by_key = {job.key: job for job in jobs}
        grants: dict[str, Grant] = {}
        if ahead is not None:
            self._place(machines, by_key[ahead], sizes[ahead], grants)
        for key, size in sizes.items():
            job = by_key[key]
            held = job.grant or job.last
            if key not in grants and held and _size(held) == size and machines.fits(held, job.request):
                grants[key] = replace(held, batch_size=0)
                machines.take(held, job.request)
        rest = [key for key in sizes if key not in grants]
        for key in sorted(rest, key=lambda key: sum(sizes[key])):
            self._place(machines, by_key[key], sizes[key], grants)
        self._start(machines, [job for job in jobs if job.key not in grants], grants)
        return grants

    def _place(self, machines: Machines, job: Job, size: tuple[int, int], grants: dict[str, Grant]) -> None:
        """Place a job at the size it is to have, or where it is, or at the next smaller size by halves that fits."""
        request = job.request
        grant = machines.place(request, *size)
        if (
            grant is None
            and job.grant
            and request.least <= job.grant.size <= request.most
            and machines.fits(job.grant, request)
        ):
            grant = job.grant
            machines.take(grant, request)
        least, least_servers = self.smallest(job)
        workers, servers = size
        while grant is None and workers > least:
            workers, servers = max(workers // 2, least), max(servers // 2, min(servers, least_servers))
            grant = machines.place(request, workers, servers)
        if grant:
            grants[job.key] = grant


def _size(grant: Grant) -> tuple[int, int]:
    return grant.size, sum(count for _, count in grant.servers)


class Ration:
    """What is left of all nodes together while a round hands it out. total_gpus, total_cpus: at first."""

    def __init__(self, machines: Machines) -> None:
        self.gpus = self.total_gpus = machines.free_gpus
        self.cpus = self.total_cpus = machines.free_cpus

    def take(self, job: Job, workers: int, servers: int) -> bool:
        """Take so many workers and servers of a job if they are there; say whether they are."""
        cpus = workers * job.request.worker_cpus + servers * job.request.server_cpus
        if workers > self.gpus or cpus > self.cpus + 1e-10:
            return False
        self.gpus -= workers
        self.cpus -= cpus
        return True

    def share(self, job: Job, workers: int, servers: int) -> float:
        """Return the part of the whole that so many workers and servers take of the resource they take most of."""
        cpus = workers * job.request.worker_cpus + servers * job.request.server_cpus
        of_gpus = workers / self.total_gpus if self.total_gpus else (inf if workers else 0.0)
        of_cpus = cpus / self.total_cpus if self.total_cpus else (inf if cpus else 0.0)
        return max(of_gpus, of_cpus)
