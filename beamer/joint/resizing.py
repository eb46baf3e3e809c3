"""How fast trials would be on numbers of GPUs that they have not had, by the network that they would load then.

A policy that resizes learns speeds by trying: a trial that grows beyond a node synchronises over links, and has paid for a
restart before its policy sees what that costs. What the trial declares tells it before, but for what others load.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Any

from beamer.errors import InputError
from beamer.gpu.model import Allocation, Cluster, Job, Node, Speed
from beamer.gpu.policy import GpuPolicy
from beamer.joint.network_aware import NetworkAware
from beamer.network.fabric import Fabric
from beamer.network.job import job_spec
from beamer.studies.model import Profile, Worker

MAX_REMEMBERED = 1 << 14  # remembered synchronisations, of about 200 bytes each

Counts = tuple[tuple[str, int], ...]
"""GPUs by node, in the order of the ranks."""


class PredictedSpeeds(NetworkAware):
    """Have another policy decide as if trials that may be resized had been measured at every size, on as few nodes as hold it.

    Computing is as declared, or as many times as long as was measured. Nothing is predicted of a trial without a declared
    synchronisation, with parameter servers or with shares of cores.
    """

    def __init__(self, policy: GpuPolicy[Any], fabric: Fabric) -> None:
        super().__init__(policy, fabric)
        self._known_s = lru_cache(MAX_REMEMBERED)(self.synchronisation_s)

    def allocate(
        self, state: Any, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Any, Allocation, float | None]:
        """Return what the other policy decides with predicted speeds before those that were measured."""
        told = [replace(job, speeds=(*self._predicted(job, cluster), *job.speeds)) for job in jobs]
        return self.policy.allocate(state, cluster, told, now, rng)

    def synchronisation_s(self, counts: Counts, sync_bytes: int, collective: str) -> float | None:
        """Return what a synchronisation takes with the fabric to itself, seconds; None where it cannot run so."""
        nodes = [node for node, count in counts for _ in range(count)]
        workers = tuple(Worker(rank, node) for rank, node in enumerate(nodes))
        try:
            return self.footprints.of(job_spec("", workers, Profile(sync_bytes, collective)), 0).gamma_s
        except InputError:
            return None

    def _predicted(self, job: Job, cluster: Cluster) -> Iterator[Speed]:
        """Yield speeds on the shapes that a trial was not measured on, the largest first."""
        request, traffic = job.request, job.request.traffic
        if traffic.sync_bytes is None or traffic.compute_s is None:
            return
        if request.least == request.most or request.servers or request.worker_cpus:
            return
        measured = {(speed.gpus, speed.nodes, speed.servers, speed.batch_size) for speed in job.speeds}
        nodes = _near(job, cluster, self.footprints.fabric)
        alone_s = traffic.compute_s * request.gpus * _slowness(job)
        for size in range(min(request.most, cluster.gpus), request.least - 1, -1):
            counts = _filled(nodes, size)
            holds = size * request.max_local_batch_size
            fits = request.accumulates or not holds or request.batch_size <= holds
            if not fits or (size, len(counts), 0, request.batch_size) in measured:
                continue
            sync_s = self._known_s(tuple(cluster.in_order(counts)), traffic.sync_bytes, traffic.collective)
            if sync_s is not None:
                compute_s = alone_s / size
                step_s = max(compute_s, (1 - traffic.overlap) * compute_s + sync_s)
                yield Speed(
                    size, len(counts), 0, request.batch_size, step_s, step_s - compute_s, sub_steps=request.sub_steps(size)
                )


def _slowness(job: Job) -> float:
    """Return how many times as long as it declares a trial was measured to compute, 1 where it was not."""
    request = job.request
    assert request.traffic.compute_s is not None
    for speed in reversed(job.speeds):
        declared_s = request.traffic.compute_s * request.gpus / speed.gpus * speed.batch_size / request.batch_size
        if declared_s > 0 and (speed.nodes == 1 or speed.sync_s > 0):
            return (speed.step_s - speed.sync_s) / declared_s
    return 1.0


def _near(job: Job, cluster: Cluster, fabric: Fabric) -> list[Node]:
    """Return the nodes of a cluster: those where a trial runs or its memory lies, or the first, then those nearest to it."""
    had = job.grant or job.last
    own = [cluster.node[name] for name, _ in cluster.in_order(had.gpus)] if had else []
    first = own or list(cluster.nodes[:1])
    others = [node for node in cluster.nodes if node not in first]
    return [*first, *sorted(others, key=lambda node: len(fabric.path(first[0].name, node.name)))]


def _filled(nodes: Sequence[Node], size: int) -> Counts:
    """Return so many GPUs of the first nodes, whole ones but for the last."""
    counts: list[tuple[str, int]] = []
    left = size
    for node in nodes:
        if taken := min(node.gpus, left):
            counts.append((node.name, taken))
            left -= taken
        if not left:
            break
    return tuple(counts)
