"""A policy of ours in the place of one of the simulator's: its jobs as ours on every look, our grants as its allocations.

A job's iterations are those of the batch size that it is submitted at: the simulator's tables say how many of them each of its
epochs takes. What is passed on is what a job would report itself: its epochs and steps, its metric, taken to change evenly
within an epoch, its gradients' statistics, and the times of the shapes that it has run on: of sub-steps, as gradients are
accumulated where a GPU takes less than its share of a batch. Another batch size on the same GPUs takes no time.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from beamer.gpu.model import Cluster, Costs, Grant, Job, Node, Report, Request, Speed, check_allocation
from beamer.gpu.policies import GpuPolicy, gpu_policy
from eval.peers.contender import UNKNOWN_END, PeerContender
from eval.peers.job_record import JobRecord

RESTART_S = 30.0  # seconds without progress after any change of GPUs, the first included: fixed in the simulator
MAX_GPUS = 64  # A job has at most so many: the simulator's own limit, beyond which it has no step times.
GROWTH = 2  # A job may next have so many times the most GPUs that it was measured on: a rule of the simulator's jobs.
LOSS_BEFORE_EPOCH = 1.0  # A job without any metric yet has this loss: nothing is learnt.
PERCENT_ABOVE = 1.5  # metrics that ever exceed this are percentages, the others shares

SimulatorJob = Any
"""A job of the simulator."""


class PolicyInSimulator:
    """What the simulator calls once an interval: a policy of ours, with what it remembers.

    clock: the simulator's time, seconds.
    """

    def __init__(self, contender: PeerContender, clock: Callable[[], float], rng: Random) -> None:
        self.policy: GpuPolicy[Any] = gpu_policy(contender.policy, **contender.parameters)
        self._contender = contender
        self._clock = clock
        self._rng = rng
        self._state = self.policy.initial()
        self._records: dict[str, JobRecord] = {}
        self._batch_sizes: dict[str, int] = {}

    def optimize(
        self, jobs: Mapping[str, SimulatorJob], nodes: Mapping[int, Any], allocations: Mapping[str, list[int]], template: Any
    ) -> tuple[dict[str, list[int]], int]:
        """Return each job's GPUs as a list of node numbers, one per GPU, and the number of nodes wanted."""
        now = float(self._clock())
        # Names are in the order of the numbers, as grants sort nodes by name.
        names = {f"{number:04}": number for number in nodes}
        cluster = Cluster(tuple(Node(name, int(nodes[number].resources["nvidia.com/gpu"])) for name, number in names.items()))
        views = [self._look(job, now) for job in jobs.values()]
        self._state, grants, _ = self.policy.allocate(self._state, cluster, views, now, self._rng)
        check_allocation(cluster, views, grants)
        for key, job in jobs.items():
            grant = grants.get(key)
            self._records[key].give(grant, now)
            if grant and self._contender.batches == "policy" and self._free(job):
                self._set_batch_size(job, grant)
        return {key: [names[node] for node, count in grant.gpus for _ in range(count)] for key, grant in grants.items()}, len(
            nodes
        )

    def _free(self, job: SimulatorJob) -> bool:
        return self._contender.sizes == "free" and self._batch_sizes[job.name] == job.application.init_batch_size

    def _set_batch_size(self, job: SimulatorJob, grant: Grant) -> None:
        """Have a job run at the batch size of its grant, as far as its GPUs can be given so small shares."""
        wanted = max(grant.batch_size or self._batch_sizes[job.name], job.application.min_local_bsz * grant.size)
        job.target_batch_size = min(wanted, job.application.max_batch_size)
        job.update_local_bsz(tuple(count for _, count in grant.gpus))

    def _look(self, job: SimulatorJob, now: float) -> Job:
        app = job.application
        if job.name not in self._records:
            self._records[job.name] = JobRecord.seen_first(
                job.name, float(job.submission_time), Costs(resume_s=RESTART_S, restart_s=RESTART_S, batch_s=0.0), now
            )
            self._batch_sizes[job.name] = int(job.target_batch_size or app.init_batch_size)
        record, batch_size = self._records[job.name], self._batch_sizes[job.name]
        record.advance(now)
        if record.grant:
            running = int(sum(job.placement) * job.atomic_bsz * (job.accum_steps + 1))
            record.grant = Grant(record.grant.gpus, batch_size=0 if running == batch_size else running)
            if not record.reports:
                record.report(Report(record.since_s, 0.0, LOSS_BEFORE_EPOCH, 0.0))
            record.report(_report(job, batch_size, now, record.computed_s))
        return record.view(self._request(job, batch_size), _speeds(job))

    def _request(self, job: SimulatorJob, batch_size: int) -> Request:
        app = job.application
        free = self._free(job)
        gpus = 1 if self._contender.sizes == "free" else int(job.target_num_replicas)
        largest = int(app.max_batch_size if free else batch_size)
        most = min(MAX_GPUS, max(largest // int(app.min_local_bsz), gpus))
        if self._contender.sizes == "free":
            most = min(most, max(GROWTH * job.max_profiled_replicas, 1))
        if app.name == "ncf":
            most = 1  # The simulator's own policies allow no more either.
        knows = self._contender.knows
        return Request(
            iterations=max(round(_end(job, batch_size, knows == "true end")), 1) if knows != "nothing" else UNKNOWN_END,
            known_end=knows != "nothing",
            gpus=min(gpus, most),
            min_gpus=1,
            max_gpus=most,
            epoch=max(round(_epoch_samples(job) / batch_size), 1),
            batch_size=batch_size,
            max_batch_size=largest,
            max_local_batch_size=int(app.max_local_bsz),
            accumulates=True,
        )


def _epoch_samples(job: SimulatorJob) -> float:
    """Return the samples of an epoch: the steps of the first one at the smallest batch size."""
    return float(job.application.get_progress(1) * job.application.init_batch_size)


def _epochs(job: SimulatorJob) -> float:
    """Return the epochs that a job has done, with the share of the present one."""
    before, after = (float(job.application.get_progress(job.epoch + more)) for more in (0, 1))
    return float(job.epoch + (job.progress - before) / (after - before))


def _iterations(job: SimulatorJob, batch_size: int, epochs: float) -> float:
    """Return the iterations at `batch_size` that so many epochs take, linear within an epoch."""
    whole = int(epochs)
    before = float(job.application.get_iteration(batch_size, whole - 1)) if whole else 0.0
    if epochs == whole:
        return before
    return before + (epochs - whole) * (float(job.application.get_iteration(batch_size, whole)) - before)


def _end(job: SimulatorJob, batch_size: int, true: bool) -> float:
    """Return after how many iterations a job ends.

    true: by the simulator's tables; otherwise as its user's number of epochs and its epochs so far let it expect, before it has
    done anything by the samples of an epoch.
    """
    app = job.application
    if true:
        return _iterations(job, batch_size, float(app.get_completion_epoch(batch_size)) + 1.0)
    done = _epochs(job)
    if done <= 0:
        return float(app.max_epochs * _epoch_samples(job) / batch_size)
    return float(_iterations(job, batch_size, done) * app.max_epochs / done)


def _report(job: SimulatorJob, batch_size: int, now: float, computed_s: float) -> Report:
    gradient_sqr, gradient_var = job.grad_params or (0.0, 0.0)
    smaller = job.application.init_batch_size / batch_size  # the simulator's variance is that of its smallest batch size
    return Report(
        now,
        _iterations(job, batch_size, _epochs(job)),
        _loss(job, batch_size),
        computed_s,
        gradient_sqr=float(gradient_sqr),
        gradient_var=float(gradient_var) * smaller,
    )


def _loss(job: SimulatorJob, batch_size: int) -> float:
    """Return what is missing to a perfect metric, as a share: between those of its last and of its present epoch."""
    metrics: Sequence[float] = next(iter(job.application.validation.values())).metric.values
    scale, rises = 100.0 if max(metrics) > PERCENT_ABOVE else 1.0, metrics[0] < metrics[-1]

    def missing(epoch: int) -> float:
        metric = job.application.get_best_metric(batch_size, epoch)
        if metric is None:
            return LOSS_BEFORE_EPOCH
        return 1.0 - float(metric) / scale if rises else float(metric) / scale

    before = missing(job.epoch)
    return before + (_epochs(job) - float(job.epoch)) * (missing(job.epoch + 1) - before)


def _speeds(job: SimulatorJob) -> tuple[Speed, ...]:
    return tuple(
        Speed(int(gpus), int(nodes), 0, int(gpus * local), float(step_s), float(sync_s))
        for (nodes, gpus, local), (step_s, sync_s) in job.profile.items()
    )
