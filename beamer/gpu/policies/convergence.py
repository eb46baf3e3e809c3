"""Beamer's own policy: GPUs go where they bring a search's next milestone soonest, as far as that pays for the restarts."""

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
from beamer.gpu.predictors.target_forecast import TargetForecast, forecast
from beamer.gpu.predictors.training_speed import TrainingSpeeds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Milestone = tuple[str, str]
"""What a search waits for: a stage as a whole (study, name), or a job alone (key, "")."""
Milestones = Mapping[Milestone, list[int]]
"""The rows of each milestone's jobs."""

CANDIDATES_PER_GPU = 2  # jobs that are considered: those further back in the order would get nothing; bounds a decision's time
LEAST_TIME_S = 1e-6  # seconds or GPU-seconds; keeps ratios finite where nothing is left to do
LEAST_SPEED = 1e-300  # iterations per second; keeps inverses finite
RUNNING_WORK_WEIGHT = 2.0
"""Times what it has left that a running job of a stage counts for: with 1, jobs of a stage that have about the same left would
take turns on the GPUs, at a restart each, as a job that runs soon has less left than one that waits; a waiting job displaces it
at twice the work."""
RESTARTS_PER_PROFILING = 60
"""Restarts that a job's remaining time must be worth for it to be measured on few GPUs first: a shorter job starts at the size
that it asks for, as each restart on its way there would take more than a 60th of its time."""
LEAST_GAIN_KEPT = 0.05  # share of a size's value that a restart leaves at least, so that sizes still rank among each other
LEAST_EXPONENT, LARGEST_EXPONENT = 0.1, 0.9  # of speed-ups: at 1 one job would get everything, at 0 all the same
DEFAULT_EXPONENT = 0.5  # where no job can grow: then it decides nothing but the order


@dataclass(frozen=True)
class Convergence(GpuPolicy[Stateless]):
    """Serve milestones in order of probability per GPU-second left, and share the GPUs among them as heSRPT does.

    The policy is ours, built of published parts. A milestone is what a search waits for: a job's end; the target of a job that
    has one, with the probability that its loss curve gives it (`beamer.gpu.predictors.target_forecast`); or the end of a whole
    stage whose tuner will keep some of its jobs, as none of them continues before the last has ended. Milestones are ranked by
    probability over the GPU-seconds left, and weighed by rank with the weights of heSRPT, which minimises the mean completion
    time of jobs whose speed-up is a power of their GPUs [Berg, Vesilo and Harchol-Balter 2020]. What the next GPU is worth to a
    job follows from its goodput [Qiao et al. 2021], measured synchronisation included. heSRPT assumes known sizes, equal
    exponents and free changes; here sizes are predicted, the exponent is the median of the measured ones, and changes have to
    pay for their restarts.

    least_reports: the initial one included, before a job with a target is judged; until then its probability is `prior`.
    hysteresis: share by which the index of a milestone with running jobs is raised. margin: how many times the seconds of a
    restart growth must save. horizon_s: within which a restart has to pay. growth: times the GPUs it was measured on that a job
    may have next.
    """

    least_reports: int = 2
    prior: float = 0.1
    hysteresis: float = 0.3
    margin: float = 1.0
    horizon_s: float = 600.0
    growth: int = 2

    name = "convergence"
    resizes = True
    State = Stateless

    def __post_init__(self) -> None:
        check_at_least(self, 2, "least_reports")
        if not 0 < self.prior <= 1:
            raise InputError("prior", self.prior, "a probability above 0, up to 1")
        check_positive(self, "horizon_s", "growth")
        check_at_least(self, 0, "hysteresis", "margin")

    def allocate(
        self, state: Stateless, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Stateless, Allocation, float | None]:
        """Rank milestones, hand out GPUs by rank and marginal gain, and drop changes that do not pay for their restarts."""
        jobs = jobs_that_fit(cluster, jobs)
        if not jobs:
            return state, {}, None
        forecasts = {job.key: forecast(job, self.least_reports, self.prior) for job in jobs}
        milestones = _milestones(jobs)
        candidates = self._candidates(jobs, milestones, forecasts, cluster)
        members = {milestone: len(rows) for milestone, rows in milestones.items()}
        table = _Table.of(self, cluster, candidates, members, forecasts)
        sizes = self._without_costly_growth(table, allocate_by_gain(table.sizes, table.value, cluster.gpus), cluster)
        chosen = dict(zip((job.key for job in candidates), sizes.tolist(), strict=True))
        servers = table.speeds.servers_for(candidates, chosen, self.hysteresis)
        grants = place_sizes(cluster, candidates, chosen, servers=servers)
        return state, table.speeds.with_batches(candidates, grants), None

    def _candidates(
        self, jobs: Sequence[Job], milestones: Milestones, forecasts: Mapping[str, TargetForecast], cluster: Cluster
    ) -> list[Job]:
        """Return the jobs that run and those of the nearest milestones, as many as can matter, in order of submission.

        Of a stage, which ends with its last job, those with most left come first.
        """
        most = CANDIDATES_PER_GPU * cluster.gpus
        if len(jobs) <= most:
            return list(jobs)
        left = np.array([max(forecasts[job.key].iterations_left, 1.0) for job in jobs])
        probability = np.array([forecasts[job.key].probability for job in jobs])
        nearness = np.zeros(len(jobs))
        for rows in milestones.values():
            nearness[rows] = probability[rows].mean() / left[rows].sum()
        waits = np.array([job.grant is None for job in jobs])
        chosen = np.lexsort((-left, -nearness, waits))[:most]
        return [jobs[i] for i in sorted(chosen.tolist())]

    def _without_costly_growth(self, table: "_Table", sizes: Ints, cluster: Cluster) -> Ints:
        """Take back growth that would not save the seconds of a restart, and hand out the freed GPUs again."""
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
    """The jobs with what each size is worth, as arguments of `beamer.gpu.marginal_gain`.

    held: GPUs that each has now. restart_s, left: seconds of a restart, iterations left.
    """

    speeds: TrainingSpeeds
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
        members: Mapping[Milestone, int],
        forecasts: Mapping[str, TargetForecast],
    ) -> "_Table":
        count = len(jobs)
        held = np.array([job.grant.size if job.grant else 0 for job in jobs], np.int64)
        least = np.array([job.request.least for job in jobs], np.int64)
        speeds = TrainingSpeeds.of(cluster, jobs)
        restart_s = _restarts(jobs)
        caps = [
            _cap(job, policy.growth, cost_s, speeds.typical_s) for job, cost_s in zip(jobs, restart_s.tolist(), strict=True)
        ]
        cap = np.maximum(np.minimum(np.array(caps, np.int64), cluster.gpus), least)
        sizes = np.maximum(candidate_sizes(speeds.node_gpus, int(cap.max()), whole_nodes=False), least[:, None])
        allowed = sizes <= cap[:, None]
        allowed[:, 1:] &= sizes[:, 1:] > sizes[:, :-1]
        rows, columns = np.nonzero(allowed)
        speed = np.zeros(sizes.shape)
        speed[rows, columns] = speeds.at(rows, sizes[rows, columns])
        base = speeds.at(np.arange(count), least)
        left = np.array([forecasts[job.key].iterations_left for job in jobs])
        work_gpu_s = np.maximum(left / base * least, LEAST_TIME_S)
        probability, expected_gpu_s = _expected(policy, jobs, forecasts, work_gpu_s)
        exponent = _speedup_exponent(sizes, speed, allowed)
        weight = weights(jobs, members, probability, expected_gpu_s, held > 0, policy.hysteresis, exponent)
        gain = speed / base[:, None]
        # a restart has to pay within what is left, and before everything changes anyway
        now_s = left / np.maximum(speeds.at(np.arange(count), np.maximum(held, least)), LEAST_SPEED)
        horizon_s = np.minimum(now_s, policy.horizon_s)
        gain_kept = np.clip(1.0 - restart_s / np.maximum(horizon_s, LEAST_TIME_S), LEAST_GAIN_KEPT, 1.0)
        changes = (held[:, None] > 0) & (sizes != held[:, None])
        gain = np.where(changes, gain * gain_kept[:, None], gain)
        value = np.where(allowed, weight[:, None] * gain * least[:, None], -np.inf)
        none = np.zeros((count, 1))
        return cls(speeds, np.hstack((none.astype(np.int64), sizes)), np.hstack((none, value)), held, restart_s, left)

    def left_s(self, sizes: Ints) -> Floats:
        """Return the seconds that jobs have left on so many GPUs each."""
        return self.left / np.maximum(self.speeds.at(np.arange(len(sizes)), np.maximum(sizes, 1)), LEAST_SPEED)


def _expected(
    policy: Convergence, jobs: Sequence[Job], forecasts: Mapping[str, TargetForecast], work_gpu_s: Floats
) -> tuple[Floats, Floats]:
    """Return each job's probability, and the GPU-seconds expected until its milestone or until it is ruled out.

    A job that cannot be judged yet costs its first reports, and the rest only if these do not rule it out.
    """
    probability = np.array([forecasts[job.key].probability for job in jobs])
    unjudged = np.array([_has_target(job) and len(job.reports) < policy.least_reports for job in jobs])
    to_judge = np.array([max(policy.least_reports - max(len(job.reports), 1), 0) * job.request.epoch for job in jobs])
    share = np.minimum(to_judge / np.array([max(forecasts[job.key].iterations_left, 1.0) for job in jobs]), 1.0)
    return probability, np.where(unjudged, work_gpu_s * (share + probability * (1.0 - share)), work_gpu_s)


def _has_target(job: Job) -> bool:
    return job.request.target_loss is not None or job.request.target_accuracy is not None


def _restarts(jobs: Sequence[Job]) -> Floats:
    """Return what a restart of each job takes, the median of the others' where it is not known yet."""
    known = [job.costs.restart_s for job in jobs if job.costs.restart_s > 0]
    typical_s = float(np.median(known)) if known else 0.0
    return np.array([job.costs.restart_s or typical_s for job in jobs])


def _cap(job: Job, growth: int, restart_s: float, typical_s: float) -> int:
    """Return the most GPUs that a job may have next: `growth` times those that it was measured on.

    One that was never measured starts on few, unless it is too short for that to pay (`RESTARTS_PER_PROFILING`); its size is
    not changed before it has been measured.
    """
    request = job.request
    if job.grant and not job.speeds:
        return job.grant.size
    known = growth * max((speed.gpus for speed in job.speeds), default=0)
    if not known and restart_s * RESTARTS_PER_PROFILING > job.remaining * typical_s / request.least:
        known = request.gpus
    return min(request.most, known)


def _speedup_exponent(sizes: Ints, speed: Floats, allowed: NDArray[np.bool_]) -> float:
    """Return the median exponent p of the jobs' speed-ups, taken as powers of their GPUs; the default where none can grow."""
    last = allowed.shape[1] - 1 - allowed[:, ::-1].argmax(axis=1)
    rows = np.nonzero(last > 0)[0]
    if not len(rows):
        return DEFAULT_EXPONENT
    more = sizes[rows, last[rows]] / sizes[rows, 0]
    faster = speed[rows, last[rows]] / np.maximum(speed[rows, 0], LEAST_SPEED)
    exponent = np.log(np.maximum(faster, 1.0)) / np.log(more)
    return float(np.clip(np.median(exponent), LEAST_EXPONENT, LARGEST_EXPONENT))


def _milestone(job: Job) -> Milestone:
    """Return the milestone that a job belongs to: its stage where the tuner keeps some of it, otherwise itself."""
    judged = job.stage.keeps is not None and not _has_target(job)
    return (job.stage.study, job.stage.name) if judged else (job.key, "")


def _milestones(jobs: Sequence[Job]) -> Milestones:
    milestones: dict[Milestone, list[int]] = {}
    for row, job in enumerate(jobs):
        milestones.setdefault(_milestone(job), []).append(row)
    return milestones


def weights(
    jobs: Sequence[Job],
    members: Mapping[Milestone, int],
    probability: Floats,
    work_gpu_s: Floats,
    running: NDArray[np.bool_],
    hysteresis: float,
    p: float,
) -> Floats:
    """Return what progress of each job is worth: heSRPT's weights by rank of the milestone that it belongs to.

    Of m milestones heSRPT gives that of rank i, the last to end having rank 1, the share (i/m)^q - ((i-1)/m)^q of all GPUs,
    with q = 1/(1-p) [Berg, Vesilo and Harchol-Balter 2020]. The weights returned are those under which equal marginal gains of
    a speed-up n^p lead to these shares. Within a stage, which ends with its slowest job, weights are in proportion to what is
    left.

    members: how many jobs a milestone waits for, these and others like them. probability: of each job's milestone. work_gpu_s:
    GPU-seconds until then. p: exponent of the speed-ups. Of equals, the first leads.
    """
    milestones = _milestones(jobs)
    index = [
        float(probability[rows].mean() / (work_gpu_s[rows].mean() * members[milestone]))
        * (1.0 + hysteresis * bool(running[rows].any()))
        for milestone, rows in milestones.items()
    ]
    in_order = list(milestones.values())
    q = 1.0 / (1.0 - p)
    weight = np.zeros(len(jobs))
    for rank, place in enumerate(sorted(range(len(in_order)), key=lambda i: (index[i], -i)), start=1):
        rows = in_order[place]
        left_gpu_s = work_gpu_s[rows] * np.where(running[rows], RUNNING_WORK_WEIGHT, 1.0)
        weight[rows] = (rank**q - (rank - 1) ** q) ** (1.0 / q) * left_gpu_s / left_gpu_s.max()
    return weight
