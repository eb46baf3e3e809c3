"""Pollux: sizes and batch sizes under which the whole cluster learns fastest, told fairly. [from memory: rebuilt]

Every `interval_s`, a power mean of the jobs' speed-ups is maximised, a job's speed-up being its goodput
(`beamer.gpu.predictors.goodput`) over that on an equal share of the cluster. The paper searches among placements by a genetic
algorithm; with jobs packed on few nodes the objective is a sum over jobs, so that marginal gains along the concave hull of each
job's table find its optimum, but for what the last GPUs do not divide into. That is what is done here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from beamer.gpu.model import Allocation, Cluster, Grant, Job
from beamer.gpu.placement import Room, arrange, kept
from beamer.gpu.policies.base import GpuPolicy
from beamer.gpu.predictors.goodput import StepTimes, batch_range, best_goodput, efficiency, fit_steps, noise_scale

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NOTHING = 1e-3  # the speed-up that a job without GPUs is counted with: the power mean of zero has no slope
SLOWEST = 0.05  # of what a restart leaves of a speed-up


@dataclass(frozen=True)
class Used:
    """What a job has had. most: GPUs at a time. restarts: changes of its GPUs after it first ran."""

    key: str
    most: int
    restarts: int


@dataclass(frozen=True)
class Past:
    """What Pollux remembers. next_s: when it decides again."""

    used: tuple[Used, ...] = ()
    next_s: float = 0.0


@dataclass(frozen=True)
class Pollux(GpuPolicy[Past]):
    """Maximise the power mean of speed-ups; between two decisions everything stays.

    p: the mean's exponent: 1 is the cluster's sum, the smaller, the fairer. growth: times the GPUs that a job ever had which it
    may have next. apart: whether jobs on several nodes share none with each other. rebatch: share by which another batch size
    must be better, a restart counted, before a job that stays changes its own.
    """

    interval_s: float = 60.0
    p: float = -1.0
    growth: int = 2
    apart: bool = True
    rebatch: float = 0.05

    name = "pollux"
    resizes = True
    State = Past

    def allocate(
        self, state: Past, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Past, Allocation, float | None]:
        """Keep what runs until it is time, then decide about all jobs at once."""
        if now < state.next_s:
            return state, kept(jobs, Room(cluster)), state.next_s if jobs else None
        able = _able(cluster, jobs)
        if not able:
            return Past(), {}, None
        used = {past.key: past for past in state.used}
        table = _Table.of(self, cluster, able, used, now)
        sizes = dict(zip((job.key for job in able), table.chosen(cluster.gpus).tolist(), strict=True))
        grants = arrange(cluster, able, sizes)
        if self.apart:
            grants = _separated(able, grants)
        grants = self._with_batches(table, able, grants)
        after = (_after(job, grants.get(job.key), used.get(job.key)) for job in able)
        return Past(tuple(past for past in after if past), now + self.interval_s), grants, now + self.interval_s

    def _with_batches(self, table: "_Table", jobs: Sequence[Job], grants: Mapping[str, Grant]) -> dict[str, Grant]:
        """Give each grant the batch size of the largest goodput where it really lies."""
        rows = np.array([row for row, job in enumerate(jobs) if job.key in grants], np.int64)
        placed = [grants[jobs[row].key] for row in rows.tolist()]
        gpus, nodes = (np.array(column, np.int64) for column in ([g.size for g in placed], [g.nodes for g in placed]))
        goodput, batch = table.goodput(rows, gpus, nodes)
        now = np.array([(job.grant.batch_size if job.grant else 0) or job.request.batch_size for job in jobs], np.float64)[rows]
        before = now / table.times.at(rows, gpus, nodes, now) * efficiency(table.noise[rows], table.requested[rows], now)
        result = {}
        for row, grant, size, gain in zip(rows.tolist(), placed, batch.tolist(), (goodput / before).tolist(), strict=True):
            job = jobs[row]
            stays = job.grant is not None and job.grant.gpus == grant.gpus and gain * table.remains[row] < 1.0 + self.rebatch
            chosen = job.grant.batch_size if stays and job.grant else 0 if size == job.request.batch_size else size
            result[job.key] = Grant(grant.gpus, grant.servers, chosen)
        return result


def _able(cluster: Cluster, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs that fit the cluster; of those that never ran, as many as it has GPUs: the others have no turn."""
    fresh = cluster.gpus
    able = []
    for job in jobs:
        if job.request.least <= cluster.gpus and (job.grant or job.last or fresh > 0):
            able.append(job)
            fresh -= not (job.grant or job.last)
    return able


def _separated(jobs: Sequence[Job], grants: Mapping[str, Grant]) -> dict[str, Grant]:
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
                    result[job.key] = Grant.of({node: count}, {node: count} if grant.servers else None)
                continue
            shared.update(node for node, _ in grant.gpus)
        result[job.key] = grant
    return result


def _after(job: Job, grant: Grant | None, used: Used | None) -> Used | None:
    """Return what is remembered of a job, given what it gets."""
    if not grant:
        return used
    if not used:
        return Used(job.key, grant.size, 0)
    before = job.grant or job.last
    moved = before is not None and (job.grant is None or grant.gpus != before.gpus)
    return Used(job.key, max(grant.size, used.most), used.restarts + moved)


@dataclass(frozen=True, eq=False)
class _Table:
    """The jobs with what each size would bring them.

    sizes: GPUs, rising; value: of each, what is to be maximised in sum, minus infinity where a job may not have it; the first
    column is none at all. noise, requested: noise scale and batch size, samples. remains: share of a speed-up that a
    change of GPUs leaves.
    """

    jobs: Sequence[Job]
    times: StepTimes
    noise: Floats
    requested: Floats
    remains: Floats
    sizes: Ints
    value: Floats

    @classmethod
    def of(cls, policy: Pollux, cluster: Cluster, jobs: Sequence[Job], used: Mapping[str, Used], now: float) -> "_Table":
        times = fit_steps([job.speeds for job in jobs])
        noise = np.array([noise_scale(job) for job in jobs])
        requested = np.array([job.request.batch_size for job in jobs], np.float64)
        most_ever = [max(past.most if (past := used.get(job.key)) else 0, job.grant.size if job.grant else 0) for job in jobs]
        cap = [
            max(min(job.request.most, policy.growth * most), job.request.least)
            for job, most in zip(jobs, most_ever, strict=True)
        ]
        widest = max(node.gpus for node in cluster.nodes)
        least = np.array([job.request.least for job in jobs], np.int64)
        sizes = np.maximum(_sizes(widest, max(cap), policy.apart), least[:, None])
        allowed = sizes <= np.minimum(np.array(cap, np.int64), cluster.gpus)[:, None]
        allowed[:, 1:] &= sizes[:, 1:] > sizes[:, :-1]
        remains = np.array([_after_restart(job, used.get(job.key), now) for job in jobs])
        bare = cls(jobs, times, noise, requested, remains, sizes, np.zeros(sizes.shape))
        rows, columns = np.nonzero(allowed)
        gpus = sizes[rows, columns]
        share = np.array([min(max(cluster.gpus // len(jobs), job.request.least), job.request.most) for job in jobs], np.int64)
        whole = np.arange(len(jobs))
        fair = bare.goodput(whole, share, -(-share // widest))[0]
        gain = bare.goodput(rows, gpus, -(-gpus // widest))[0] / fair[rows]
        held = np.array([job.grant.size if job.grant else 0 for job in jobs])
        gain = np.where(gpus == held[rows], gain, gain * remains[rows])
        value = np.full(sizes.shape, -np.inf)
        value[rows, columns] = _power(gain, policy.p)
        none = np.zeros((len(jobs), 1), np.int64)
        floor = np.full((len(jobs), 1), float(_power(np.array([NOTHING]), policy.p)[0]))
        return cls(jobs, times, noise, requested, remains, np.hstack((none, sizes)), np.hstack((floor, value)))

    def goodput(self, rows: Ints, gpus: Ints, nodes: Ints) -> tuple[Floats, Ints]:
        """Return the largest goodput of jobs on so many GPUs and nodes, and the batch sizes for it."""
        asked = [self.jobs[row].request for row in rows.tolist()]
        limits = [batch_range(request, size) for request, size in zip(asked, gpus.tolist(), strict=True)]
        low, high = np.array(limits, np.float64).reshape(-1, 2).T
        return best_goodput(self.times, rows, gpus, nodes, self.noise[rows], self.requested[rows], low, high)

    def chosen(self, gpus: int) -> Ints:
        """Return how many GPUs each job gets of so many: steps along the hulls, steepest first, then whatever still fits."""
        rows, starts, ends, slope = _hulls(self.sizes, self.value)
        at = np.zeros(len(self.jobs), np.int64)
        for step in np.argsort(-slope, kind="stable").tolist():
            if not gpus:
                break
            row, need = rows[step], self.sizes[rows[step], ends[step]] - self.sizes[rows[step], starts[step]]
            if at[row] == starts[step] and need <= gpus:
                at[row] = ends[step]
                gpus -= int(need)
        whole = np.arange(len(self.jobs))
        while gpus:
            more = self.sizes - self.sizes[whole, at][:, None]
            gain = self.value - self.value[whole, at][:, None]
            rate = np.where((more > 0) & (more <= gpus) & (gain > 0), gain / np.maximum(more, 1), 0.0)
            best = int(rate.argmax())
            if rate.flat[best] <= 0:
                break
            row, column = divmod(best, self.sizes.shape[1])
            gpus -= int(more[row, column])
            at[row] = column
        return np.asarray(self.sizes[whole, at])


def _hulls(sizes: Ints, value: Floats) -> tuple[Ints, Ints, Ints, Floats]:
    """Return the steps along each row's upper concave hull, as far as it rises: row, column before, column after, slope."""
    at = np.zeros(len(sizes), np.int64)
    rows = np.arange(len(sizes))
    found = []
    while len(rows):
        more = sizes[rows] - sizes[rows, at][:, None]
        gain = value[rows] - value[rows, at][:, None]
        rate = np.where(more > 0, gain / np.maximum(more, 1), -np.inf)
        ends = rate.argmax(axis=1)
        slope = rate[np.arange(len(rows)), ends]
        rising = slope > 0
        rows, starts, at, slope = rows[rising], at[rising], ends[rising], slope[rising]
        found.append((rows, starts, at, slope))
    return tuple(np.concatenate(column) for column in zip(*found, strict=True))  # type: ignore[return-value]


def _sizes(widest: int, most: int, apart: bool) -> Ints:
    """Return the numbers of GPUs that are considered: on one node all, on several whole nodes, in steps of a third or half."""
    sizes = list(range(1, min(widest, most) + 1))
    nodes = 2
    while widest * nodes <= most:
        sizes.append(widest * nodes)
        nodes += 1 if nodes < 4 else nodes // 2 if nodes & (nodes - 1) == 0 else nodes // 3
    if not apart:
        sizes += [size for size in range(widest + 1, min(most, 4 * widest) + 1) if size not in sizes]
    return np.array(sorted(sizes), np.int64)


def _power(gain: Floats, p: float) -> Floats:
    """Return what a speed-up adds to the sum whose maximum is that of the power mean."""
    gain = np.maximum(gain, NOTHING)
    return np.asarray(np.log(gain) if p == 0 else gain**p / p)


def _after_restart(job: Job, used: Used | None, now: float) -> float:
    """Return what a change of its GPUs leaves of a job's speed-up, if it is restarted as often as until now."""
    if not used or not (job.grant or job.last):
        return 1.0
    age, cost = max(now - job.submitted_s, 0.0), job.costs.restart_s
    return max((age - used.restarts * cost) / (age + cost), SLOWEST) if age + cost > 0 else 1.0
