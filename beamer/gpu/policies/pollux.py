"""Pollux: sizes and batch sizes that maximise a power mean of the jobs' speed-ups in goodput.

[Qiao, Choe, Subramanya, Neiswanger, Ho, Zhang, Ganger and Xing 2021, "Pollux: co-adaptive cluster scheduling for
goodput-optimized deep learning", section 4.2] Every `interval_s`, a power mean of the jobs' speed-ups is maximised, a job's
speed-up being its goodput (`beamer.gpu.predictors.goodput`) over that on an equal share of the cluster. Our reconstruction of
what the publication describes, made without its code, so that details may differ. What differs: the publication searches among
placements by a genetic algorithm; with jobs packed on few nodes the objective is a sum over jobs, so that marginal gains along
the concave hull of each job's table (`beamer.gpu.marginal_gain`) find its optimum directly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from random import Random

import numpy as np

from beamer.errors import InputError
from beamer.gpu.arrays import Floats, Ints
from beamer.gpu.marginal_gain import allocate_by_gain, candidate_sizes
from beamer.gpu.model import Allocation, Cluster, Grant, Job
from beamer.gpu.placement import CompactPlacer, jobs_that_fit, place_sizes
from beamer.gpu.policy import GpuPolicy, check_at_least, check_interval
from beamer.gpu.predictors.job_goodput import JobGoodputs

# A job without GPUs counts with this speed-up: at 0 a power mean of a negative exponent is undefined.
SPEEDUP_WITHOUT_GPUS = 1e-3
MIN_GAIN_KEPT = 0.05  # A restart leaves at least this share of a speed-up, so that sizes still rank among each other.


@dataclass(frozen=True)
class JobRestarts:
    """A job's past. most: GPUs that it ever had at a time. restarts: changes of its GPUs after it first ran."""

    key: str
    most: int
    restarts: int


@dataclass(frozen=True)
class PolluxState:
    """What Pollux remembers. used: by job. next_s: when it decides again."""

    used: tuple[JobRestarts, ...] = ()
    next_s: float = 0.0


@dataclass(frozen=True)
class Pollux(GpuPolicy[PolluxState]):
    """Maximise the power mean of speed-ups; between two decisions everything stays."""

    interval_s: float = 60.0
    """Seconds between two decisions."""
    p: float = -1.0
    """The mean's exponent: 1 is the cluster's sum; the smaller, the fairer."""
    growth: int = 2
    """How many times the GPUs that it ever had a job may have next."""
    apart: bool = True
    """Whether jobs on several nodes share none with each other (interference avoidance)."""
    batch_change_gain: float = 0.05
    """The share by which another batch size must be better before a job that stays changes its own.

    The gain counts after a restart, unless the change is stated to take no time.
    """

    name = "pollux"
    resizes = True
    State = PolluxState

    def __post_init__(self) -> None:
        check_interval(self, "interval_s")
        check_at_least(self, 1, "growth")
        check_at_least(self, 0, "batch_change_gain")
        if not -inf < self.p <= 1:
            raise InputError("p", self.p, "at most 1, finite")

    def allocate(
        self, state: PolluxState, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[PolluxState, Allocation, float | None]:
        """Keep what runs until it is time, then decide about all jobs at once."""
        if now < state.next_s:
            return state, CompactPlacer(cluster).keep_running(jobs), state.next_s if jobs else None
        chosen = _candidates(cluster, jobs)
        used = {past.key: past for past in state.used}
        if not chosen:
            return _state_after(jobs, {}, used, state.next_s), {}, None
        table = _Table.of(self, cluster, chosen, used, now)
        sizes = dict(
            zip((job.key for job in chosen), allocate_by_gain(table.sizes, table.value, cluster.gpus).tolist(), strict=True)
        )
        grants = place_sizes(cluster, chosen, sizes)
        if self.apart:
            grants = _without_shared_nodes(chosen, grants)
        kept = np.array([_after_change(job, used.get(job.key), job.costs.rebatch_s, now) for job in chosen])
        least_gain = np.array([self.batch_change_gain * (job.costs.batch_s != 0) for job in chosen])
        grants = table.goodputs.with_batches(chosen, grants, least_gain, kept)
        # The time is on the clock, so that jobs' reports at multiples of the same interval are used at once.
        next_s = (now // self.interval_s + 1) * self.interval_s
        return _state_after(jobs, grants, used, next_s), grants, next_s


def _candidates(cluster: Cluster, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs that fit the cluster; of those that never ran, as many as it has GPUs: the others would get none."""
    fresh = cluster.gpus
    chosen = []
    for job in jobs_that_fit(cluster, jobs):
        if job.grant or job.last or fresh > 0:
            chosen.append(job)
            fresh -= not (job.grant or job.last)
    return chosen


def _without_shared_nodes(jobs: Sequence[Job], grants: Mapping[str, Grant]) -> dict[str, Grant]:
    """Cut those jobs to their largest node that would share one with another job on several; jobs that stay go first."""
    shared: set[str] = set()
    result = {}
    for job in sorted(jobs, key=lambda job: job.grant is None or grants.get(job.key) != job.grant):
        grant = grants.get(job.key)
        if not grant:
            continue
        if grant.nodes > 1:
            if any(node in shared for node, _ in grant.gpus):
                node, count = max(grant.gpus, key=lambda item: item[1])
                if count >= job.request.least:
                    result[job.key] = _on_one(grant, node, count)
                continue
            shared.update(node for node, _ in grant.gpus)
        result[job.key] = grant
    return result


def _on_one(grant: Grant, node: str, count: int) -> Grant:
    """Cut a grant to one of its nodes, with a server per worker of those it has, whose cores are free: there if they can be."""
    servers, left = {}, count
    for name, had in sorted(grant.servers, key=lambda item: item[0] != node):
        servers[name] = min(had, left)
        left -= servers[name]
    return Grant.of({node: count}, servers)


def _state_after(
    jobs: Sequence[Job], grants: Mapping[str, Grant], used: Mapping[str, JobRestarts], next_s: float
) -> PolluxState:
    """Return what is remembered: of all jobs, as those that do not fit may again when a node comes back."""
    after = (_after(job, grants.get(job.key), used.get(job.key)) for job in jobs)
    return PolluxState(tuple(past for past in after if past), next_s)


def _after(job: Job, grant: Grant | None, used: JobRestarts | None) -> JobRestarts | None:
    """Return what is remembered of a job, given what it gets."""
    if not grant:
        return used
    if not used:
        return JobRestarts(job.key, grant.size, 0)
    before = job.grant or job.last
    moved = before is not None and (job.grant is None or grant.gpus != before.gpus)
    return JobRestarts(job.key, max(grant.size, used.most), used.restarts + moved)


@dataclass(frozen=True, eq=False)
class _Table:
    """The jobs with the value of each size, as arguments of `beamer.gpu.marginal_gain`.

    value: whose sum is maximised.
    """

    goodputs: JobGoodputs
    sizes: Ints
    value: Floats

    @classmethod
    def of(cls, policy: Pollux, cluster: Cluster, jobs: Sequence[Job], used: Mapping[str, JobRestarts], now: float) -> "_Table":
        goodputs = JobGoodputs.of(jobs)
        most_ever = [max(past.most if (past := used.get(job.key)) else 0, job.grant.size if job.grant else 0) for job in jobs]
        cap = [
            max(min(job.request.most, policy.growth * most), job.request.least)
            for job, most in zip(jobs, most_ever, strict=True)
        ]
        node_gpus = max(node.gpus for node in cluster.nodes)
        least = np.array([job.request.least for job in jobs], np.int64)
        sizes = np.maximum(candidate_sizes(node_gpus, max(cap), policy.apart), least[:, None])
        allowed = sizes <= np.minimum(np.array(cap, np.int64), cluster.gpus)[:, None]
        allowed[:, 1:] &= sizes[:, 1:] > sizes[:, :-1]
        gain_kept = np.array([_after_change(job, used.get(job.key), job.costs.restart_s, now) for job in jobs])
        rows, columns = np.nonzero(allowed)
        gpus = sizes[rows, columns]
        share = np.array([min(max(cluster.gpus // len(jobs), job.request.least), job.request.most) for job in jobs], np.int64)
        whole = np.arange(len(jobs))
        fair = goodputs.best(whole, share, -(-share // node_gpus))[0]
        gain = goodputs.best(rows, gpus, -(-gpus // node_gpus))[0] / fair[rows]
        held = np.array([job.grant.size if job.grant else 0 for job in jobs])
        gain = np.where(gpus == held[rows], gain, gain * gain_kept[rows])
        value = np.full(sizes.shape, -np.inf)
        value[rows, columns] = _power(gain, policy.p)
        none = np.zeros((len(jobs), 1), np.int64)
        floor = np.full((len(jobs), 1), float(_power(np.array([SPEEDUP_WITHOUT_GPUS]), policy.p)[0]))
        return cls(goodputs, np.hstack((none, sizes)), np.hstack((floor, value)))


def _power(gain: Floats, p: float) -> Floats:
    """Return what a speed-up adds to the sum whose maximum is that of the power mean."""
    gain = np.maximum(gain, SPEEDUP_WITHOUT_GPUS)
    return np.asarray(np.log(gain) if p == 0 else gain**p / p)


def _after_change(job: Job, used: JobRestarts | None, cost_s: float, now: float) -> float:
    """Return what a change that takes `cost_s` leaves of a job's speed-up, if it is changed as often as until now."""
    if not used or not (job.grant or job.last):
        return 1.0
    age_s = max(now - job.submitted_s, 0.0)
    return max((age_s - used.restarts * cost_s) / (age_s + cost_s), MIN_GAIN_KEPT) if age_s + cost_s > 0 else 1.0
