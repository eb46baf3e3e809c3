"""Beamer's own policy: GPUs go where they bring a search's next milestone soonest, as far as that pays for the restarts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import inf
from random import Random

import numpy as np

from beamer.errors import InputError
from beamer.gpu.arrays import Bools, Floats, Ints
from beamer.gpu.marginal_gain import allocate_by_gain, candidate_sizes
from beamer.gpu.model import Allocation, Cluster, Grant, Job
from beamer.gpu.placement import jobs_that_fit, place_compactly
from beamer.gpu.policy import GpuPolicy, check_at_least, check_positive
from beamer.gpu.predictors.loss_fall import iterations_until_fall
from beamer.gpu.predictors.rung_ranks import rung_ranks
from beamer.gpu.predictors.silence import PATIENCE_S, falls_silent_s, is_silent
from beamer.gpu.predictors.target_forecast import forecasts, judged_reports
from beamer.gpu.predictors.training_speed import BATCH_CHANGE_GAIN, TrainingSpeeds
from beamer.gpu.predictors.work_left import WorkLeft
from beamer.gpu.ties import comparable

# Only so many jobs are considered, to bound a decision's time; those further back in the order would get nothing.
CANDIDATES_PER_GPU = 2
MIN_TIME_S = 1e-6  # seconds or GPU-seconds; keeps ratios finite where nothing is left to do
MIN_ITERATIONS = 1e-6  # The least iterations left keep ratios finite.
MAX_ITERATIONS_LEFT = 1e12  # The most iterations left keep ratios finite, too.
MIN_SPEED = 1e-300  # iterations per second; keeps inverses finite
RUNNING_WORK_WEIGHT = 2.0
"""Times what it has left that a running job of a stage counts for: with 1, jobs of a stage that have about the same left would
take turns on the GPUs, at a restart each, as a job that runs soon has less left than one that waits; a waiting job displaces it
at twice the work."""
RESTARTS_PER_PROFILING = 60
"""Restarts that a job's remaining time must be worth for it to be measured on few GPUs first: a shorter job starts at the size
that it asks for, as each restart on its way there would take more than a 60th of its time."""
MAX_GROWTH = 2  # Beyond so many times the most GPUs that a job was measured on, its speed is a guess [Qiao et al. 2021].
MAX_LOGIT = 50.0  # Beyond this value a logistic function is 0 or 1; up to it, its exponential is finite.
NEARNESS_STEP = 0.05  # Milestones whose logarithms differ by less count as equally near, which bounds a decision's time.
MIN_GAIN_KEPT = 0.05  # A restart leaves at least this share of a size's value, so that sizes still rank among each other.
MAX_GAIN_KEPT = 0.9  # Any change leaves at most this share, as values are guesses and would otherwise change with every report.
# Work is remembered anew once it has grown by this share; decisions that change nothing are not journaled.
MIN_CHANGE = 0.05
# The policy asks to decide again no sooner, as times that differ by rounding would follow each other for ever.
MIN_WAKE_S = 1.0
SILENT_WEIGHT = 1e-6  # A job that may hang has this weight, and gets what all others leave.
MAX_ENDED_JOBS = 256  # The work of the latest jobs of unknown ends is remembered, which bounds what the journal keeps.


@dataclass(frozen=True)
class Attained:
    """What a job of unknown end has had. work_gpu_s: the GPU-seconds it would have taken on the fewest GPUs that it runs on."""

    key: str
    work_gpu_s: float


@dataclass(frozen=True)
class ConvergenceState:
    """The work of jobs of unknown ends: of those that run or wait, and of those that ended, oldest first, GPU-seconds."""

    open: tuple[Attained, ...] = ()
    ended: tuple[float, ...] = ()


@dataclass(frozen=True)
class Convergence(GpuPolicy[ConvergenceState]):
    """Give GPUs to where they speed up most what is nearest to a milestone of its search.

    The policy is ours, built of published parts. A milestone is what a search waits for: a job's end; the target of a job that
    has one, with the probability that its loss curve gives it (`beamer.gpu.predictors.target_forecast`); or the end of a whole
    stage whose tuner will keep some of its jobs, as none of them continues before the last has ended. GPUs are handed out by
    marginal gain, so that the sum over jobs of weight times speed-up is the largest. The speed-up is that in goodput, at the
    best batch size and with the synchronisation that was measured [Qiao et al. 2021]. The weights are those of heSRPT, which
    minimises the mean completion time of jobs whose speed-up is a power of their GPUs [Berg, Vesilo and Harchol-Balter 2020].
    It ranks jobs by what they have left, which is known there; here milestones have expected ranks, by their probability over
    the GPU-seconds left until them. Where the end is not known, what is left is the inverse of the Gittins index by the jobs
    that ended before, or what the job has had (`beamer.gpu.predictors.work_left`). Of the trials of a search that states
    neither an end nor a target, those come first whose loss falls fastest, as under Hermes (`beamer.gpu.predictors.loss_fall`).
    Where trials come to rungs without waiting for each other [Li et al. 2020], each of the n that came to one is taken to be
    the best of them with the same probability, so that those come first that few have come as far as. Among those that have
    reported, one of rank r by its loss is taken to be r times less likely than the first. Both are ours.

    A milestone whose jobs wait is farther by the time that resuming one takes, and later resuming the job that it displaces. A
    change of the number of GPUs counts for less by what its restart takes of the next `horizon_s` seconds, by a tenth at least.

    Jobs leave a node for a larger one that would otherwise be split (`beamer.gpu.placement.place_compactly`). A job starts on
    its fewest GPUs until it has been measured, or has run for `horizon_s`, and then grows to what it asks for, or at most twice
    what it was measured on, as under Pollux [Qiao et al. 2021].
    """

    least_reports: int = 2
    """Reports, the initial one included, before a job with a target is judged."""
    prior: float = 0.1
    """The probability of reaching its target that a job has until it is judged."""
    hysteresis: float = 0.6
    """The share by which a milestone with running jobs is nearer."""
    sharpness: float = 1.0
    """How sure the order of two milestones is: with 1, one that is twice as near comes first with probability 2/3."""
    speedup: float = 0.4
    """The exponent of the speed-ups that the weights assume."""
    least_s: float = 1200.0
    """Seconds that a job of unknown end is expected to have left at least, on the fewest GPUs that it runs on."""
    horizon_s: float = 300.0
    """Seconds within which a restart has to pay."""
    window: int = 10
    """Reports over which the fall of a trial's loss is measured, at least."""
    patience_s: float = PATIENCE_S
    """Seconds on GPUs without a report after which a job may hang (`beamer.gpu.predictors.silence`).

    It is ruled out, and nobody waits for it.
    """
    judged_s: float = 1.0
    """Seconds of service after which a trial is judged although its losses are too noisy to be sure whether they fall."""
    standard_errors: float = 1.0
    """Of its fall, by which a trial that runs is taken to fall faster than measured, and one that waits more slowly."""

    name = "convergence"
    resizes = True
    State = ConvergenceState

    def __post_init__(self) -> None:
        check_at_least(self, 2, "least_reports")
        if not 0 < self.prior <= 1:
            raise InputError("prior", self.prior, "a probability above 0, up to 1")
        if not 0 < self.speedup < 1:
            raise InputError("speedup", self.speedup, "an exponent above 0, below 1")
        check_positive(self, "sharpness", "least_s", "horizon_s")
        check_at_least(self, 1, "window")
        check_at_least(self, 0, "hysteresis", "judged_s", "standard_errors")
        check_positive(self, "patience_s", endless=True)

    def allocate(
        self, state: ConvergenceState, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[ConvergenceState, Allocation, float | None]:
        """Weigh milestones by what is left until them, and hand out GPUs by marginal gain."""
        state = _without_ended(state, jobs)
        jobs = jobs_that_fit(cluster, jobs)
        if not jobs:
            return state, {}, None
        prospects = _Prospects.of(self, jobs, now)
        rows = prospects.nearest(jobs, CANDIDATES_PER_GPU * cluster.gpus)
        candidates = [jobs[row] for row in rows.tolist()]
        table = _Table.of(self, cluster, candidates, prospects.at(rows), state, now)
        sizes = allocate_by_gain(table.sizes, table.value, cluster.gpus)
        chosen = dict(zip((job.key for job in candidates), sizes.tolist(), strict=True))
        servers = table.speeds.servers_for(candidates, chosen, self.hysteresis)
        grants = place_compactly(cluster, candidates, chosen, servers)
        state = _with_work(state, candidates, table.done_gpu_s)
        wake_at = self._wake_at(candidates, grants, now)
        if len(grants) < len(jobs):
            silent_at = [falls_silent_s(job, self.patience_s, now) for job in candidates if job.key in grants]
            wake_at = min((at_s for at_s in (*silent_at, wake_at or inf) if now < at_s < inf), default=None)
        return state, table.speeds.goodputs.with_batches(candidates, grants, BATCH_CHANGE_GAIN), wake_at

    def _wake_at(self, jobs: Sequence[Job], grants: Mapping[str, Grant], now: float) -> float | None:
        """Return when the next job that runs without having been measured may grow all the same (`_cap`), if any does."""
        left_s = [
            self.horizon_s - job.service_at(now)
            for job in jobs
            if not job.speeds and job.key in grants and grants[job.key].size < job.request.most
        ]
        return min((now + max(one, MIN_WAKE_S) for one in left_s if one > 0), default=None)


def _without_ended(state: ConvergenceState, jobs: Sequence[Job]) -> ConvergenceState:
    """Count those of the jobs of unknown ends that are there no more as ended."""
    keys = {job.key for job in jobs}
    gone = [one for one in state.open if one.key not in keys]
    if not gone:
        return state
    ended = [one.work_gpu_s for one in gone if one.work_gpu_s > 0]
    return ConvergenceState(tuple(one for one in state.open if one.key in keys), (*state.ended, *ended)[-MAX_ENDED_JOBS:])


def _with_work(state: ConvergenceState, jobs: Sequence[Job], done_gpu_s: Floats) -> ConvergenceState:
    """Remember what the jobs of unknown ends have had until now, as far as that has changed enough to matter."""
    work = {one.key: one for one in state.open}
    for job, gpu_s in zip(jobs, done_gpu_s.tolist(), strict=True):
        known = work.get(job.key)
        if not job.request.known_end and (known is None or gpu_s > (1.0 + MIN_CHANGE) * known.work_gpu_s):
            work[job.key] = Attained(job.key, gpu_s)
    return replace(state, open=tuple(work.values()))


@dataclass(frozen=True, eq=False)
class _Prospects:
    """What is waited for of each job, by row.

    milestones: which, from 0. members: how many jobs that waits for. probability: of the job's being what its search waits for.
    iterations: left until then. to_judge: iterations until its probability is a forecast, 0 where it is one. unknown: whether
    only the jobs that ended before tell what it has left. silent: whether it may hang.
    """

    milestones: Ints
    members: Ints
    probability: Floats
    iterations: Floats
    to_judge: Floats
    unknown: Bools
    silent: Bools

    @classmethod
    def of(cls, policy: Convergence, jobs: Sequence[Job], now: float) -> "_Prospects":
        """Work out those of jobs.

        Of a trial of unknown end and without a target, whose search has others, the iterations are those until its loss has
        fallen further; of another job of unknown end as many as it has done.
        """
        expected = forecasts(jobs, policy.least_reports, policy.prior)
        targets = [job.request.target_loss is not None or job.request.target_accuracy is not None for job in jobs]
        nothing = [not (job.request.known_end or target) for job, target in zip(jobs, targets, strict=True)]
        like_it = Counter(job.stage.study for job, one in zip(jobs, nothing, strict=True) if one)
        fewest: dict[str, int] = {}
        for job in jobs:
            if job.stage.keeps is None:
                fewest[job.stage.study] = min(job.stage.jobs, fewest.get(job.stage.study, job.stage.jobs))
        likelihood = _likelihoods(jobs)
        milestones: dict[tuple[str, str], int] = {}
        rows: list[tuple[int, float, float, int, bool, bool]] = []
        for job, target, unknown in zip(jobs, targets, nothing, strict=True):
            stage, forecast, silent = job.stage, expected[job.key], is_silent(job, policy.patience_s, now)
            # No job can wait for a milestone that may never come.
            judged = stage.keeps is not None and not target and not silent
            milestone = milestones.setdefault((stage.study, stage.name) if judged else (job.key, ""), len(milestones))
            searched = unknown and like_it[stage.study] > 1
            iterations = job.done if unknown else forecast.iterations_left
            if searched:
                until = iterations_until_fall(job, policy.window, policy.judged_s, policy.standard_errors)
                iterations = min(until, MAX_ITERATIONS_LEFT)
            probability = forecast.probability
            # At a rung where none waits, each of n trials is the best with the same probability.
            if stage.keeps is None and not target:
                probability *= likelihood.get(job.key, 1.0) * fewest[stage.study] / stage.jobs
            missing = policy.least_reports - max(len(judged_reports(job)), 1) if target else 0
            probability *= SILENT_WEIGHT if silent else 1.0
            steps_to_judge = max(missing, 0) * job.request.epoch
            rows.append((milestone, probability, iterations, steps_to_judge, unknown and not searched, silent))
        of, probabilities, left, to_judge, only, quiet = map(np.array, zip(*rows, strict=True))
        return cls(of, np.bincount(of)[of], probabilities, left, to_judge, only, quiet)

    def at(self, rows: Ints) -> "_Prospects":
        """Return those of some rows."""
        return _Prospects(*(getattr(self, one.name)[rows] for one in fields(self)))

    def nearest(self, jobs: Sequence[Job], most: int) -> Ints:
        """Return the rows of the jobs that run and of those of the nearest milestones, as many as can matter, rising.

        Of a stage, which ends with its last job, those with most left come first.
        """
        if len(jobs) <= most:
            return np.arange(len(jobs))
        left = np.maximum(self.iterations, MIN_ITERATIONS)
        left_gpu_s = _iterations_gpu_s(jobs) * left + _least(jobs) * _change_costs_s(jobs)
        nearness = comparable(_mean(self.milestones, self.probability) / np.bincount(self.milestones, left_gpu_s))
        waits = np.array([job.grant is None for job in jobs])
        return np.sort(np.lexsort((-comparable(left), -nearness[self.milestones], waits))[:most])


@dataclass(frozen=True, eq=False)
class _Table:
    """The jobs with what each size is worth, as arguments of `beamer.gpu.marginal_gain`.

    done_gpu_s: what each has had, as `Attained`.
    """

    speeds: TrainingSpeeds
    sizes: Ints
    value: Floats
    done_gpu_s: Floats

    @classmethod
    def of(
        cls,
        policy: Convergence,
        cluster: Cluster,
        jobs: Sequence[Job],
        prospects: _Prospects,
        state: ConvergenceState,
        now: float,
    ) -> "_Table":
        held = np.array([job.grant.size if job.grant else 0 for job in jobs], np.int64)
        least = _least(jobs)
        speeds = TrainingSpeeds.of(cluster, jobs)
        restart_s = _restarts(jobs)
        caps = [
            _cap(job, cost_s, speeds.typical_s, policy.horizon_s, now)
            for job, cost_s in zip(jobs, restart_s.tolist(), strict=True)
        ]
        cap = np.maximum(np.minimum(np.array(caps, np.int64), cluster.gpus), least)
        sizes = np.maximum(candidate_sizes(speeds.node_gpus, int(cap.max()), whole_nodes=True), least[:, None])
        allowed = sizes <= cap[:, None]
        allowed[:, 1:] &= sizes[:, 1:] > sizes[:, :-1]
        rows, columns = np.nonzero(allowed)
        gain = np.zeros(sizes.shape)
        whole = np.arange(len(jobs))
        base = np.maximum(speeds.at(whole, least), MIN_SPEED)
        gain[rows, columns] = speeds.at(rows, sizes[rows, columns]) / base[rows]
        done_gpu_s = np.array([job.done for job in jobs]) / base * least
        left_gpu_s = _left(policy, prospects, done_gpu_s, least, least / base, state)
        expected_gpu_s = _expected(prospects, left_gpu_s)
        change_gpu_s = least * _change_costs_s(jobs)
        weight = weights(
            prospects.milestones, prospects.members, prospects.probability, expected_gpu_s, change_gpu_s, held > 0, policy
        )
        weight = np.where(prospects.silent, SILENT_WEIGHT * weight, weight)
        # A restart has to pay within the time left, and before everything changes anyway.
        now_s = left_gpu_s / least / np.maximum(speeds.at(whole, np.maximum(held, least)) / base, MIN_SPEED)
        horizon_s = np.maximum(np.minimum(now_s, policy.horizon_s), MIN_TIME_S)
        gain_kept = np.clip(1.0 - restart_s / horizon_s, MIN_GAIN_KEPT, MAX_GAIN_KEPT)
        changes = (held[:, None] > 0) & (sizes != held[:, None])
        gain = np.where(changes, gain * gain_kept[:, None], gain)
        value = np.where(allowed, weight[:, None] * gain * least[:, None], -np.inf)
        none = np.zeros((len(jobs), 1))
        return cls(speeds, np.hstack((none.astype(np.int64), sizes)), np.hstack((none, value)), done_gpu_s)


def _left(
    policy: Convergence,
    prospects: _Prospects,
    done_gpu_s: Floats,
    least: Ints,
    iteration_gpu_s: Floats,
    state: ConvergenceState,
) -> Floats:
    """Return the GPU-seconds that each job has left: to its declared end, or as far as those that ended before tell."""
    left_gpu_s = prospects.iterations * iteration_gpu_s
    unknown = prospects.unknown
    if unknown.any():
        work = WorkLeft.of(state.ended, done_gpu_s[unknown].tolist())
        left_gpu_s[unknown] = work.expected(done_gpu_s[unknown], policy.least_s * least[unknown].astype(np.float64))
    return np.maximum(left_gpu_s, MIN_TIME_S)


def _expected(prospects: _Prospects, left_gpu_s: Floats) -> Floats:
    """Return the GPU-seconds expected until each job's milestone or until it is ruled out.

    A job that cannot be judged yet costs its first reports, and the rest only if these do not rule it out.
    """
    share = np.minimum(prospects.to_judge / np.maximum(prospects.iterations, 1.0), 1.0)
    rest = share + prospects.probability * (1.0 - share)
    return np.where(prospects.to_judge > 0, left_gpu_s * rest, left_gpu_s)


def _restarts(jobs: Sequence[Job]) -> Floats:
    """Return what a restart of each job takes, the median of the others' where it is not known yet."""
    known = [job.costs.restart_s for job in jobs if job.costs.restart_s > 0]
    typical_s = float(np.median(known)) if known else 0.0
    return np.array([job.costs.restart_s or typical_s for job in jobs])


def _least(jobs: Sequence[Job]) -> Ints:
    """Return the fewest GPUs that each job runs on."""
    return np.array([job.request.least for job in jobs], np.int64)


def _iterations_gpu_s(jobs: Sequence[Job]) -> Floats:
    """Return about how many GPU-seconds an iteration of each job takes, the median of the others' where none was measured."""
    measured = [_measured_gpu_s(job) for job in jobs]
    known = [one for one in measured if one > 0]
    typical_gpu_s = float(np.median(known)) if known else 1.0
    return np.array([one or typical_gpu_s for one in measured])


def _measured_gpu_s(job: Job) -> float:
    """Return the GPU-seconds of an iteration of the requested batch size, as measured last; 0 where none was measured."""
    if not job.speeds:
        return 0.0
    last = job.speeds[-1]
    gpu_s = last.gpus * last.step_s * job.request.batch_size / max(last.batch_size, 1)
    return gpu_s if 0 < gpu_s < inf else 0.0


def _change_costs_s(jobs: Sequence[Job]) -> Floats:
    """Return what it takes to resume a job that waits, and later whom it displaces, which is the median over the running jobs.

    0 for a job that runs. The first start of one that never ran is not counted, as it is due in any order.
    """
    again_s = np.array([job.costs.change_s for job in jobs])
    runs = np.array([job.grant is not None for job in jobs])
    displaced_s = float(np.median(again_s[runs])) if runs.any() else 0.0
    return np.where(runs, 0.0, again_s + displaced_s)


def _likelihoods(jobs: Sequence[Job]) -> Mapping[str, float]:
    """Return how likely each trial at rungs without barriers is to be the best of its search, the likeliest being 1.

    One that has not reported is as likely as the mean of the others.
    """
    searches: dict[str, list[Job]] = {}
    for job in jobs:
        if not job.stage.has_barrier:
            searches.setdefault(job.stage.study, []).append(job)
    found: dict[str, float] = {}
    for several in searches.values():
        ranked = [job for job in several if job.reports]
        likelihood = 1.0 / rung_ranks(ranked)
        found.update(dict.fromkeys((job.key for job in several), float(likelihood.mean()) if ranked else 1.0))
        found.update(zip((job.key for job in ranked), likelihood.tolist(), strict=True))
    return found


def _cap(job: Job, restart_s: float, typical_s: float, horizon_s: float, now: float) -> int:
    """Return the most GPUs that a job may have next: what it asks for, or holds, or `MAX_GROWTH` times what was measured.

    One that was never measured starts on few, unless it is too short for that to pay (`RESTARTS_PER_PROFILING`), and keeps its
    size until it has run for `horizon_s`; then it may have any number.
    """
    request = job.request
    held = job.grant.size if job.grant else 0
    if job.speeds:
        return min(request.most, max(held, request.gpus, MAX_GROWTH * max(one.gpus for one in job.speeds)))
    if job.service_at(now) >= horizon_s:
        return request.most
    if held:
        return held
    short = request.known_end and restart_s * RESTARTS_PER_PROFILING > job.remaining * typical_s / request.least
    return min(request.gpus, request.most) if short else request.least


def _mean(groups: Ints, values: Floats) -> Floats:
    """Return the mean of the values of each group."""
    return np.asarray(np.bincount(groups, values) / np.maximum(np.bincount(groups), 1))


def weights(
    milestones: Ints,
    members: Ints,
    probability: Floats,
    work_gpu_s: Floats,
    change_gpu_s: Floats,
    running: Bools,
    policy: Convergence,
) -> Floats:
    """Return what progress of each job is worth: heSRPT's weights by the expected rank of the milestone that it belongs to.

    Of m milestones heSRPT gives that of rank i, the last to end having rank 1, the share (i/m)^q - ((i-1)/m)^q of all GPUs,
    with q = 1/(1-p) [Berg, Vesilo and Harchol-Balter 2020]. The weights returned are those under which equal marginal gains of
    a speed-up n^p lead to these shares. Ranks are expected ones: of two milestones, one whose nearness is x times the other's
    comes first with probability 1 / (1 + x^-sharpness), as what is left of both is a guess. Within a stage, which ends with its
    slowest job, weights are in proportion to what is left.

    milestones: of each job. members: how many jobs it waits for, these and others like them. probability: of each job's
    milestone. work_gpu_s: GPU-seconds until then. change_gpu_s: what giving it GPUs takes besides.
    """
    _, first, group = np.unique(milestones, return_index=True, return_inverse=True)
    nearness = _mean(group, probability) / (_mean(group, work_gpu_s + change_gpu_s) * members[first])
    nearness *= 1.0 + policy.hysteresis * (np.bincount(group, running) > 0)
    rank = expected_ranks(np.log(nearness), policy.sharpness)
    q = 1.0 / (1.0 - policy.speedup)
    left_gpu_s = work_gpu_s * np.where(running, RUNNING_WORK_WEIGHT, 1.0)
    most_gpu_s = np.zeros(len(first))
    np.maximum.at(most_gpu_s, group, left_gpu_s)
    return np.asarray(((rank**q - (rank - 1.0) ** q) ** (1.0 / q))[group] * left_gpu_s / most_gpu_s[group])


def expected_ranks(log_nearness: Floats, sharpness: float) -> Floats:
    """Return each milestone's expected rank, 1 for the last; as if `log_nearness` were rounded to `NEARNESS_STEP`."""
    level, of, count = np.unique(np.round(log_nearness / NEARNESS_STEP), return_inverse=True, return_counts=True)
    ahead = np.clip((level[:, None] - level) * NEARNESS_STEP * sharpness, -MAX_LOGIT, MAX_LOGIT)
    before = (1.0 / (1.0 + np.exp(-ahead))) @ count
    return np.asarray(before[of] + 0.5)
