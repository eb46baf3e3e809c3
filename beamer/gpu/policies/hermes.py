"""Hermes: convergence-aware preemption, in which the jobs whose loss falls fastest per second have the GPUs."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from random import Random

from beamer.decision.policy import Stateless
from beamer.errors import InputError, nearest
from beamer.gpu.model import ROUNDING, Allocation, Cluster, Grant, Job, Node
from beamer.gpu.placement import CompactPlacer
from beamer.gpu.policy import GpuPolicy, check_at_least, check_positive
from beamer.gpu.predictors.loss_trend import recent_trend
from beamer.gpu.predictors.silence import PATIENCE_S, falls_silent_s, is_silent

NORMS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "first": lambda losses: losses[0],
    "largest": max,
    "none": lambda losses: 1.0,
}


@dataclass(frozen=True)
class Hermes(GpuPolicy[Stateless]):
    """Queue every job on a node and run those of a node that converge fastest.

    After J. Son, Y. Yoo, K. Kim, Y. Kim, K. Lee and S. Park 2021, "A GPU scheduling framework to accelerate hyper-parameter
    optimization in deep learning clusters" (Electronics 10(3), 350): two levels, a global scheduler that places containers by
    load and a scheduler on every node that preempts for containers that converge faster, whose progress is kept. The formula of
    convergence, its window, the norm, the hysteresis and the quantum are our reconstruction.

    Jobs with fewer than `window` + 1 reports go first, in order of submission; one that has diverged goes last, whatever is
    left of its quantum. Jobs larger than any node run on any free GPUs.

    That losses are noisy is ours to take into account: how fast they fall is measured with its error
    (`beamer.gpu.predictors.loss_trend`). A job that waits takes the place of one that runs only if it falls faster beyond both
    errors, or has been measured too shortly to judge and may. Ours, too, is that a job keeps its GPUs for a multiple of what
    suspending and resuming it takes.

    A job is queued where it ran last, as its memory lies there. One that never ran, or whose node is gone or has become too
    small, is queued anew at every decision, so that waiting jobs follow the nodes that come and go. A node that would leave
    GPUs idle takes the best job that waits for another node, which is ours: published is only that jobs are placed by load, and
    an empty queue is the least load there is. The move costs the job a restart, on GPUs that no other job wants.
    """

    window: int = 5
    """Reports over which the fall of the loss is measured (W), at least."""
    norm: str = "first"
    """What the fall is relative to: the job's `first` loss, its `largest`, or `none`."""
    hysteresis: float = 0.1
    """The share by which a waiting job must converge faster than a running one to take its place."""
    quantum_s: float = 0.0
    """Seconds for which a job is not preempted after its start, at least."""
    quantum_costs: float = 4.0
    """The same, as a multiple of what suspending the job and resuming it takes.

    With 4 preemption takes at most a quarter of a GPU's time.
    """
    patience_s: float = PATIENCE_S
    """Seconds on GPUs without a report after which a job goes last, which is ours. It may hang, and would be first for ever."""
    judged_s: float = 1.0
    """Seconds of service after which a job is judged although its losses are too noisy to be sure whether they fall."""
    standard_errors: float = 1.0
    """Of its fall, by which a job that runs is taken to fall faster than measured, and one that waits more slowly."""

    name = "hermes"
    State = Stateless

    def __post_init__(self) -> None:
        check_at_least(self, 1, "window")
        check_at_least(self, 0, "hysteresis", endless=True)
        check_at_least(self, 0, "judged_s", "standard_errors", "quantum_s", "quantum_costs")
        check_positive(self, "patience_s", endless=True)
        if self.norm not in NORMS:
            raise InputError("norm", self.norm, nearest(self.norm, NORMS))

    def allocate(
        self, state: Stateless, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Stateless, Allocation, float | None]:
        """Queue jobs without a node, run the fastest of each node, then fill idle nodes."""
        homes = _home_nodes(cluster, jobs)
        order = sorted(jobs, key=lambda job: self._rank(job, now), reverse=True)
        placer = CompactPlacer(cluster)
        grants: dict[str, Grant] = {}
        for job in order:
            if not placer.free_gpus:
                break
            count = job.request.gpus
            grant = placer.place_on(job, homes[job.key], count) if job.key in homes else placer.place(job, count)
            if grant:
                grants[job.key] = grant
        _fill_idle_nodes(cluster, [job for job in order if job.key in homes and job.key not in grants], placer, grants)
        return state, grants, self._wake_at(jobs, grants, now) if len(grants) < len(jobs) else None

    def _wake_at(self, jobs: Sequence[Job], grants: Mapping[str, Grant], now: float) -> float | None:
        """Return when the next job that runs may be preempted, after its quantum or for its silence."""
        running = [job for job in jobs if job.key in grants]
        ends = [self._quantum_ends_s(job) for job in running if job.grant]
        ends += [falls_silent_s(job, self.patience_s, now) for job in running]
        return min((at_s for at_s in ends if now < at_s < math.inf), default=None)

    def _rank(self, job: Job, now: float) -> tuple[bool, float, bool]:
        """Return what jobs are sorted by, highest first; equal ones stay in order of submission."""
        speed = -math.inf if is_silent(job, self.patience_s, now) else self._speed(job)
        protected = job.grant is not None and now < self._quantum_ends_s(job) and speed > -math.inf
        return protected, speed, job.grant is not None

    def _quantum_ends_s(self, job: Job) -> float:
        """Return until when a job that runs is not preempted."""
        return job.since_s + max(self.quantum_s, self.quantum_costs * job.costs.change_s)

    def _speed(self, job: Job) -> float:
        """Return by how much a job's loss falls per second, in the favour of one that runs."""
        speed = convergence(job, self.window, self.judged_s, self.standard_errors, NORMS[self.norm])
        return speed * (1 + self.hysteresis) if job.grant and speed > 0 else speed


def _home_nodes(cluster: Cluster, jobs: Sequence[Job]) -> dict[str, str]:
    """Return the node of every job that fits one: where it ran last, or where the fewest GPUs are asked for per GPU."""
    homes: dict[str, str] = {}
    anew: list[Job] = []
    asked = dict.fromkeys(cluster.node, 0)
    for job in jobs:
        before = job.grant or job.last
        node = cluster.node.get(before.gpus[0][0]) if before and before.nodes == 1 else None
        if node and _holds(node.gpus, node.cpus, job):
            homes[job.key] = node.name
            asked[node.name] += job.request.gpus
        elif not job.grant or job.grant.nodes == 1:  # A job on several nodes is not moved for being smaller than one node.
            anew.append(job)
    # The queues are by size, so that placing a large job does not visit all small nodes.
    queues: dict[tuple[int, float], list[tuple[float, int, Node]]] = {}
    for place, node in enumerate(cluster.nodes):
        if node.gpus:
            queues.setdefault((node.gpus, node.cpus), []).append((asked[node.name] / node.gpus, place, node))
    for queue in queues.values():
        heapify(queue)
    for job in anew:
        queue = min((queue for size, queue in queues.items() if _holds(*size, job)), default=[])
        if queue:
            load, place, node = queue[0]
            homes[job.key] = node.name
            heapreplace(queue, (load + job.request.gpus / node.gpus, place, node))
    return homes


def _holds(gpus: int, cpus: float, job: Job) -> bool:
    """Return whether an empty node of so many GPUs and cores has those of a job's workers."""
    return gpus >= job.request.gpus and cpus >= job.request.gpus * job.request.worker_cpus - ROUNDING


def _fill_idle_nodes(cluster: Cluster, waiting: Iterable[Job], placer: CompactPlacer, grants: dict[str, Grant]) -> None:
    """Grant what is left over of nodes to jobs that wait for others, best first, each on one node."""
    free = {node.name: node.gpus for node in cluster.nodes}
    for grant in grants.values():
        for name, count in grant.gpus:
            free[name] -= count
    idle = {name: None for name in sorted(free, key=free.__getitem__, reverse=True) if free[name]}
    refused: set[tuple[int, float, bool, float]] = set()
    for job in waiting:
        if not idle:
            return
        request = job.request
        kind = request.gpus, request.worker_cpus, request.servers, request.server_cpus
        if kind in refused:
            continue
        found = next((found for name in idle if (found := placer.place_on(job, name, request.gpus))), None)
        if found is None:
            refused.add(kind)  # The next job of this kind will not fit into what is left either.
            continue
        grants[job.key] = found
        name = found.gpus[0][0]
        free[name] -= request.gpus
        if not free[name]:
            del idle[name]


def convergence(
    job: Job, window: int, judged_s: float, standard_errors: float, norm: Callable[[Sequence[float]], float]
) -> float:
    """Return by how much the job's normalised loss falls per second of service.

    window, judged_s: as of `beamer.gpu.predictors.loss_trend.recent_trend`. standard_errors: as of `LossTrend.bound`. Infinity
    for a job that has not reported as often; 0 where only one loss is finite; minus infinity for one that has diverged.
    """
    recent = recent_trend(job, window, judged_s)
    if recent is None:
        return math.inf
    if recent.fall == -math.inf:
        return -math.inf
    scale = norm([report.loss for report in job.reports if math.isfinite(report.loss)])
    if not (scale > 0 and recent.service_s > 0):
        return 0.0
    return recent.bound(standard_errors, job.grant is not None) / (scale * recent.service_s)
