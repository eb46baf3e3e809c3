"""Beamer's own policy: GPUs go where they bring the next result of a search soonest, for what a change costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from beamer.decision.policy import Stateless
from beamer.errors import InputError
from beamer.gpu.marginal_gain import allocate_by_gain, candidate_sizes
from beamer.gpu.model import Allocation, Cluster, Job
from beamer.gpu.placement import jobs_that_fit, place_sizes
from beamer.gpu.policy import GpuPolicy, check_at_least, check_positive
from beamer.gpu.predictors.outlook import Outlook, outlook
from beamer.gpu.predictors.rates import Rates

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Unit = tuple[str, str]
"""What somebody waits for: a job, or a stage as a whole."""
Units = Mapping[Unit, list[int]]
"""By result, its jobs' places."""

LOOKED_AT = 2  # jobs per GPU that are considered: the others have no turn anyway
SHORTEST_S = 1e-6
SETTLED = 2.0  # times as much as it has left is what a running job of a stage counts for, lest equal jobs take turns
SMALL = 60  # a restart is, where the rest of a job takes so many times as long
LEAST_CONCAVE, MOST_CONCAVE = 0.1, 0.9


@dataclass(frozen=True)
class Convergence(GpuPolicy[Stateless]):
    """Serve results in order of chance per second left, and share the GPUs as suits that order. [rebuilt]

    A result is what somebody waits for: a job's end; the target of a job that has one, with the chance that its loss curve
    gives it (`beamer.gpu.predictors.outlook`); or the end of a whole stage whose tuner will keep some of its jobs, as none of
    them goes on before the last has ended. Results are ranked by chance over the GPU-seconds left, and weighed by rank as
    heSRPT does, which minimises the mean completion time of jobs that speed up as a power of their GPUs [Berg et al. 2020];
    what the next GPU is worth to a job follows from its goodput, measured synchronisation included.

    looks: reports, the initial one included, before a job with a target is judged, and until which its chance is `prior`.
    hysteresis: the advantage of what runs. margin: how many times the seconds of a restart a change must save. horizon_s: over
    which a restart has to pay. growth: times the GPUs it was measured on that a job may have next.
    """

    looks: int = 2
    prior: float = 0.1
    hysteresis: float = 0.3
    margin: float = 1.0
    horizon_s: float = 600.0
    growth: int = 2

    name = "convergence"
    resizes = True
    State = Stateless

    def __post_init__(self) -> None:
        check_at_least(self, 2, "looks")
        if not 0 < self.prior <= 1:
            raise InputError("prior", self.prior, "a chance above 0, up to 1")
        check_positive(self, "horizon_s", "growth")
        check_at_least(self, 0, "hysteresis", "margin")

    def allocate(
        self, state: Stateless, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Stateless, Allocation, float | None]:
        """Rank what is waited for, hand out GPUs by rank and gain, and leave alone what a change would not pay for."""
        jobs = jobs_that_fit(cluster, jobs)
        if not jobs:
            return state, {}, None
        outlooks = {job.key: outlook(job, self.looks, self.prior) for job in jobs}
        units = _units(jobs)
        first = self._first(jobs, units, outlooks, cluster)
        table = _Table.of(self, cluster, first, {unit: len(rows) for unit, rows in units.items()}, outlooks)
        sizes = self._worthwhile(table, allocate_by_gain(table.sizes, table.value, cluster.gpus), cluster)
        chosen = dict(zip((job.key for job in first), sizes.tolist(), strict=True))
        servers = table.rates.servers_for(first, chosen, self.hysteresis)
        grants = place_sizes(cluster, first, chosen, servers=servers)
        return state, table.rates.with_batches(first, grants), None

    def _first(self, jobs: Sequence[Job], units: "Units", outlooks: Mapping[str, Outlook], cluster: Cluster) -> list[Job]:
        """Return the jobs that run and those of the results nearest, as many as can matter, in order of submission.

        Of a stage, which ends with its last job, those with most left come first.
        """
        most = LOOKED_AT * cluster.gpus
        if len(jobs) <= most:
            return list(jobs)
        left = np.array([max(outlooks[job.key].left, 1.0) for job in jobs])
        chance = np.array([outlooks[job.key].chance for job in jobs])
        near = np.zeros(len(jobs))
        for rows in units.values():
            near[rows] = chance[rows].mean() / left[rows].sum()
        waits = np.array([job.grant is None for job in jobs])
        chosen = np.lexsort((-left, -near, waits))[:most]
        return [jobs[i] for i in sorted(chosen.tolist())]

    def _worthwhile(self, table: "_Table", sizes: Ints, cluster: Cluster) -> Ints:
        """Take back growth that would not save the seconds of a restart, and hand out again what that sets free."""
        for _ in range(len(sizes)):
            held = table.held
            grows = (held > 0) & (sizes > held)
            saved = np.where(grows, table.left_s(held) - table.left_s(sizes), np.inf)
            worthless = grows & (saved <= self.margin * table.restart_s)
            if not worthless.any():
                break
            for row in np.nonzero(worthless)[0]:
                table.value[row, table.sizes[row] > held[row]] = -np.inf
            sizes = allocate_by_gain(table.sizes, table.value, cluster.gpus)
        return sizes


@dataclass(frozen=True, eq=False)
class _Table:
    """The jobs with what each size is worth, as `beamer.gpu.marginal_gain` wants them.

    held: GPUs that each has now. restart_s, left: seconds of a restart, iterations left.
    """

    rates: Rates
    sizes: Ints
    value: Floats
    held: Ints
    restart_s: Floats
    left: Floats

    @classmethod
    def of(
        cls,
        policy: Convergence,
        cluster: Cluster,
        jobs: Sequence[Job],
        members: Mapping[Unit, int],
        outlooks: Mapping[str, Outlook],
    ) -> "_Table":
        count = len(jobs)
        held = np.array([job.grant.size if job.grant else 0 for job in jobs], np.int64)
        least = np.array([job.request.least for job in jobs], np.int64)
        rates = Rates.of(cluster, jobs)
        restart_s = _restarts(jobs)
        caps = [_cap(job, policy.growth, cost_s, rates.typical_s) for job, cost_s in zip(jobs, restart_s.tolist(), strict=True)]
        cap = np.maximum(np.minimum(np.array(caps, np.int64), cluster.gpus), least)
        sizes = np.maximum(candidate_sizes(rates.widest, int(cap.max()), whole_nodes=False), least[:, None])
        allowed = sizes <= cap[:, None]
        allowed[:, 1:] &= sizes[:, 1:] > sizes[:, :-1]
        rows, columns = np.nonzero(allowed)
        speed = np.zeros(sizes.shape)
        speed[rows, columns] = rates.at(rows, sizes[rows, columns])
        base = rates.at(np.arange(count), least)
        left = np.array([outlooks[job.key].left for job in jobs])
        work_s = np.maximum(left / base * least, SHORTEST_S)
        chance, expected_s = _expected(policy, jobs, outlooks, work_s)
        weight = weights(jobs, members, chance, expected_s, held > 0, policy.hysteresis, _concavity(sizes, speed, allowed))
        gain = speed / base[:, None]
        # a restart has to pay within what is left, and before everything changes anyway
        horizon_s = np.minimum(left / np.maximum(rates.at(np.arange(count), np.maximum(held, least)), 1e-300), policy.horizon_s)
        pays = np.clip(1.0 - restart_s / np.maximum(horizon_s, SHORTEST_S), 0.05, 1.0)
        changes = (held[:, None] > 0) & (sizes != held[:, None])
        gain = np.where(changes, gain * pays[:, None], gain)
        value = np.where(allowed, weight[:, None] * gain * least[:, None], -np.inf)
        none = np.zeros((count, 1))
        return cls(rates, np.hstack((none.astype(np.int64), sizes)), np.hstack((none, value)), held, restart_s, left)

    def left_s(self, sizes: Ints) -> Floats:
        """Return the seconds that jobs have left on so many GPUs each."""
        return self.left / np.maximum(self.rates.at(np.arange(len(sizes)), np.maximum(sizes, 1)), 1e-300)


def _expected(
    policy: Convergence, jobs: Sequence[Job], outlooks: Mapping[str, Outlook], work_s: Floats
) -> tuple[Floats, Floats]:
    """Return each job's chance, and the GPU-seconds spent on it until its result or until it is given up."""
    chance = np.array([outlooks[job.key].chance for job in jobs])
    unknown = np.array([_has_target(job) and len(job.reports) < policy.looks for job in jobs])
    epochs = np.array([max(policy.looks - max(len(job.reports), 1), 0) * job.request.epoch for job in jobs])
    share = np.minimum(epochs / np.array([max(outlooks[job.key].left, 1.0) for job in jobs]), 1.0)
    return chance, np.where(unknown, work_s * (share + chance * (1.0 - share)), work_s)


def _has_target(job: Job) -> bool:
    return job.request.target_loss is not None or job.request.target_accuracy is not None


def _restarts(jobs: Sequence[Job]) -> Floats:
    """Return what a restart of each job takes, the median of the others' where it is not known yet."""
    known = [job.costs.restart_s for job in jobs if job.costs.restart_s > 0]
    typical_s = float(np.median(known)) if known else 0.0
    return np.array([job.costs.restart_s or typical_s for job in jobs])


def _cap(job: Job, growth: int, restart_s: float, typical_s: float) -> int:
    """Return the most GPUs that a job may have next: not many times those that it was measured on.

    One that was never measured is tried on few, unless it is so short that restarts would weigh more than what they teach; what
    it runs on is not changed before it has been.
    """
    request = job.request
    if job.grant and not job.speeds:
        return job.grant.size
    known = growth * max((speed.gpus for speed in job.speeds), default=0)
    if not known and restart_s * SMALL > job.remaining * typical_s / request.least:
        known = request.gpus
    return min(request.most, known)


def _concavity(sizes: Ints, speed: Floats, allowed: NDArray[np.bool_]) -> float:
    """Return the median exponent p of the jobs' speed-ups, taken as powers of their GPUs; a half where none can grow."""
    last = allowed.shape[1] - 1 - allowed[:, ::-1].argmax(axis=1)
    rows = np.nonzero(last > 0)[0]
    if not len(rows):
        return 0.5
    more = sizes[rows, last[rows]] / sizes[rows, 0]
    faster = speed[rows, last[rows]] / np.maximum(speed[rows, 0], 1e-300)
    exponent = np.log(np.maximum(faster, 1.0)) / np.log(more)
    return float(np.clip(np.median(exponent), LEAST_CONCAVE, MOST_CONCAVE))


def _unit(job: Job) -> Unit:
    """Return what a job is waited for with: its stage where the tuner keeps some of it, otherwise itself."""
    judged = job.stage.keeps is not None and not _has_target(job)
    return (job.stage.study, job.stage.name) if judged else (job.key, "")


def _units(jobs: Sequence[Job]) -> Units:
    units: dict[Unit, list[int]] = {}
    for row, job in enumerate(jobs):
        units.setdefault(_unit(job), []).append(row)
    return units


def weights(
    jobs: Sequence[Job],
    members: Mapping[Unit, int],
    chance: Floats,
    work_s: Floats,
    running: NDArray[np.bool_],
    hysteresis: float,
    p: float,
) -> Floats:
    """Return what progress of each job is worth: heSRPT's weights by rank of the result that it belongs to.

    members: how many jobs a result waits for, these and others like them. chance: of each job's result. work_s: GPU-seconds
    until then. p: exponent of the speed-ups. Of equals, the first leads.
    """
    units = _units(jobs)
    index = [
        float(chance[rows].mean() / (work_s[rows].mean() * members[unit])) * (1.0 + hysteresis * bool(running[rows].any()))
        for unit, rows in units.items()
    ]
    in_order = list(units.values())
    q = 1.0 / (1.0 - p)
    weight = np.zeros(len(jobs))
    for rank, place in enumerate(sorted(range(len(in_order)), key=lambda i: (index[i], -i)), start=1):
        rows = in_order[place]
        # in a stage, the slowest decides
        left_s = work_s[rows] * np.where(running[rows], SETTLED, 1.0)
        weight[rows] = (rank**q - (rank - 1) ** q) ** (1.0 / q) * left_s / left_s.max()
    return weight
