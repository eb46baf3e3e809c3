"""Tetris: start the job whose tasks align best with what is free on the nodes, favouring short jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from random import Random

import numpy as np

from beamer.decision.policy import Stateless
from beamer.gpu.arrays import Floats
from beamer.gpu.even_placement import ROUNDING, EvenPlacer
from beamer.gpu.model import Allocation, Cluster, Grant, Job, Request
from beamer.gpu.policy import GpuPolicy, check_at_least
from beamer.gpu.predictors.speed import speed_of, typical_step_s


@dataclass(frozen=True)
class Tetris(GpuPolicy[Stateless]):
    """Start waiting jobs at the size they ask for by packing score; running jobs run to their end.

    From Grandl, Ananthanarayanan, Kandula, Rao and Akella 2014, "Multi-resource packing for cluster schedulers": alignment of
    demand and free resources, combined with the shortest remaining work, as the weighted difference of both scores, each
    relative to its mean. Our reconstruction of what the publication describes, made without its code, so that details may
    differ. Ours: whole jobs start or wait, as training needs all its workers at once, and there is no fairness knob.

    A job's score is the alignment of its tasks with the nodes they would go to, the sum over GPUs and cores of free x demand,
    each relative to the cluster's largest node, less `weight` x its remaining GPU-seconds, relative to the means of both over
    waiting jobs. A task is a worker, with its server beside it where both fit, otherwise apart.
    weight: of remaining work against alignment; 0: packing alone.
    """

    weight: float = 1.0

    name = "tetris"
    State = Stateless

    def __post_init__(self) -> None:
        check_at_least(self, 0, "weight")

    def allocate(
        self, state: Stateless, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Stateless, Allocation, float | None]:
        """Keep what runs and start the job with the best score until none that waits fits."""
        placer = EvenPlacer(cluster)
        grants = placer.keep_running(jobs)
        waiting = [job for job in jobs if job.key not in grants and job.request.gpus <= placer.free_gpus]
        if waiting:
            self._fill(_FreeTasks(cluster, placer), jobs, waiting, grants)
        return state, grants, None

    def _fill(self, free: "_FreeTasks", jobs: Sequence[Job], waiting: Sequence[Job], grants: dict[str, Grant]) -> None:
        typical_s = typical_step_s(jobs)
        work = {job.key: _gpu_seconds(job, typical_s) for job in waiting}
        # Jobs that ask for the same differ in their work alone: only the shortest of each kind has to be scored.
        kinds: dict[_Kind, list[Job]] = {}
        for job in waiting:
            kinds.setdefault(_kind(job.request), []).append(job)
        for queue in kinds.values():
            queue.sort(key=lambda job: work[job.key], reverse=True)
        aligned = {kind: free.place(queue[0].request) for kind, queue in kinds.items()}
        known = [(found[0], len(kinds[kind])) for kind, found in aligned.items() if found]
        if not known:
            return
        mean = sum(score * count for score, count in known) / sum(count for _, count in known)
        scale = self.weight * mean / (sum(work.values()) / len(work) or 1.0)

        def entry(order: int, kind: _Kind, alignment: float) -> tuple[float, int, _Kind]:
            return scale * work[kinds[kind][-1].key] - alignment, order, kind

        heap = [entry(order, kind, found[0]) for order, (kind, found) in enumerate(aligned.items()) if found]
        heapify(heap)
        while heap:
            # Alignment only falls as jobs are placed: a score that is still the best when computed anew is the best of all.
            _, order, kind = heappop(heap)
            request = kinds[kind][-1].request
            found = free.place(request)
            if found is None:
                continue  # No other job of this kind will fit either.
            again = entry(order, kind, found[0])
            if heap and again > heap[0]:
                heappush(heap, again)
                continue
            job = kinds[kind].pop()
            grants[job.key] = free.reserve(request, found[1], found[2])
            if kinds[kind]:
                heappush(heap, entry(order, kind, found[0]))


_Kind = tuple[int, bool, float, float]
_Counts = dict[int, int]


def _kind(request: Request) -> _Kind:
    return request.gpus, request.servers, request.worker_cpus, request.server_cpus


def _gpu_seconds(job: Job, typical_s: float) -> float:
    request = job.request
    return job.remaining * speed_of(job, typical_s).step_s(request.gpus, request.gpus, request.batch_size) * request.gpus


class _FreeTasks:
    """The free GPUs and cores of each node, as arrays, and where tasks would go."""

    def __init__(self, cluster: Cluster, placer: EvenPlacer) -> None:
        self._names = placer.names
        self._gpus = np.array(placer.gpus, float)
        self._cpus = np.array(placer.cpus, float)
        self._most_gpus = max((node.gpus for node in cluster.nodes), default=0) or 1
        self._most_cpus = max((node.cpus for node in cluster.nodes), default=0.0) or 1.0

    def place(self, request: Request) -> tuple[float, _Counts, _Counts] | None:
        """Return the mean alignment of a job's tasks, its workers and its servers by node; None where it does not fit."""
        if not request.servers:
            found = self._put(request.gpus, 1, request.worker_cpus, self._cpus)
            return None if found is None else (found[0], found[1], {})
        beside = self._put(request.gpus, 1, request.worker_cpus + request.server_cpus, self._cpus)
        if beside:
            return beside[0], beside[1], beside[1]
        workers = self._put(request.gpus, 1, request.worker_cpus, self._cpus)
        if workers is None:
            return None
        left = self._cpus.copy()
        for node, count in workers[1].items():
            left[node] -= count * request.worker_cpus
        servers = self._put(request.gpus, 0, request.server_cpus, left)
        if servers is None:
            return None
        return workers[0] + servers[0], workers[1], servers[1]

    def _put(self, tasks: int, gpus: int, cores: float, free: Floats) -> tuple[float, _Counts] | None:
        """Return the mean alignment of so many tasks, and where they go: on the best node for them all, or by alignment."""
        fit = self._gpus.copy() if gpus else np.full(len(free), float(tasks))
        if cores > 0:
            np.minimum(fit, np.floor((free + ROUNDING) / cores), out=fit)
        np.clip(fit, 0.0, tasks, out=fit)
        if fit.sum() < tasks:
            return None
        alignment = self._gpus * (gpus / self._most_gpus**2) + free * (cores / self._most_cpus**2)
        whole = fit >= tasks
        if whole.any():
            best = int(np.argmax(np.where(whole, alignment, -1.0)))
            return float(alignment[best]), {best: tasks}
        placed: _Counts = {}
        total, left = 0.0, tasks
        for node in np.argsort(-alignment, kind="stable"):
            here = min(int(fit[node]), left)
            if here:
                placed[int(node)] = here
                total += here * float(alignment[node])
                left -= here
            if not left:
                break
        return total / tasks, placed

    def reserve(self, request: Request, workers: _Counts, servers: _Counts) -> Grant:
        """Reserve these tasks and return them as a grant."""
        for node, count in workers.items():
            self._gpus[node] -= count
            self._cpus[node] -= count * request.worker_cpus
        for node, count in servers.items():
            self._cpus[node] -= count * request.server_cpus
        names = self._names
        return Grant.of(
            {names[node]: count for node, count in workers.items()}, {names[node]: count for node, count in servers.items()}
        )
