"""ONES: an evolutionary search over assignments of GPUs to jobs, with batch sizes that follow, scored by predicted progress.

[Bian, Li, Wang and You 2021, "Online evolutionary batch size orchestration for scheduling deep learning workloads in GPU
clusters", and the authors' artifact, re-written and not copied] The operators are in `beamer.gpu.evolution`, the prediction is
in `beamer.gpu.predictors.progress`. Ours, where the publication gives no detail: the deployed assignment competes in every
generation; a job holds none or at least its minimum; an assignment is carried out by packing nodes, jobs of unchanged size
staying in place, rather than gene by gene; a job whose throughput was not measured yet is assumed to speed up linearly.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from random import Random

import numpy as np

from beamer.gpu import evolution
from beamer.gpu.arrays import Bools, Floats, Ints
from beamer.gpu.batch_sizes import BatchSizes
from beamer.gpu.evolution import EMPTY, Throughputs
from beamer.gpu.model import Allocation, Cluster, Job
from beamer.gpu.placement import jobs_that_fit, place_sizes
from beamer.gpu.policy import GpuPolicy, check_at_least, check_share
from beamer.gpu.predictors.progress import BetaModel, alpha_from_epochs, features_of, prior_beta
from beamer.gpu.predictors.progress_training import ProgressTraining, progress_sample
from beamer.gpu.predictors.speed import throughputs
from beamer.gpu.ties import comparable

MIN_PROGRESS = 1e-6  # This share of a job's work keeps the remainder finite where next to nothing was drawn.


@dataclass(frozen=True)
class SizeLimit:
    """How many GPUs a job may hold. since: epochs it had processed when that last changed, or when it last held fewer."""

    key: str
    gpus: int
    since: float


@dataclass(frozen=True)
class OnesState:
    """What ONES remembers.

    nodes: of the cluster that genomes are for. jobs: that own genes; genomes: each as owner, length, owner, length, ..., owners
    by their place in `jobs`, best first. limits: by job. training: of the progress model. next_s: when the search continues.
    """

    nodes: tuple[tuple[str, int], ...] = ()
    jobs: tuple[str, ...] = ()
    genomes: tuple[tuple[int, ...], ...] = ()
    limits: tuple[SizeLimit, ...] = ()
    training: ProgressTraining = field(default=ProgressTraining())
    next_s: float = 0.0


@dataclass(frozen=True)
class Ones(GpuPolicy[OnesState]):
    """Search for the assignment whose jobs need the fewest GPU-seconds until they have converged [Bian et al. 2021].

    Score, population, probabilities and the doubling of size limits are the artifact's; `hysteresis` and `interval_s` are ours,
    and off unless they are set.
    """

    population: int = 16
    """Genomes that are kept."""
    generations: int = 1
    """Generations at each decision."""
    mutation: float = 0.3
    """The probability that a mutant drops a job."""
    protected_epochs: float = 2.0
    """Epochs before which mutants do not drop a job, and after which a job at its size limit may double it."""
    settled_epochs: float = 1.0
    """Epochs on its GPUs after which a job may be displaced."""
    hysteresis: float = 0.0
    """The share by which an assignment must be better than displacing no job."""
    interval_s: float = 0.0
    """Seconds between two searches, in which only free GPUs are handed out; 0: search at every decision."""
    learn: bool = True
    """Whether to train a progress model on jobs that have ended; without one, the prior counts."""

    name = "ones"
    resizes = True
    State = OnesState

    def __post_init__(self) -> None:
        check_at_least(self, 1, "population", "generations")
        check_at_least(self, 0, "protected_epochs", "settled_epochs", "interval_s")
        check_share(self, "mutation", "hysteresis")

    def allocate(
        self, state: OnesState, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[OnesState, Allocation, float | None]:
        """Let the population evolve and carry out its best assignment that displaces no job before `settled_epochs`."""
        numbers = np.random.default_rng(rng.getrandbits(64))
        training = state.training.updated(jobs, rng) if self.learn else state.training
        limits = self._limits(state, cluster, jobs)
        table = _Table.of(self, cluster, jobs, limits, set(state.jobs))
        nodes = tuple((node.name, node.gpus) for node in cluster.nodes)
        deployed = table.deployed(cluster)
        held = evolution.gpus_per_job(deployed[None], len(table.jobs))
        state = replace(state, limits=tuple(limits.values()), training=training)
        remaining = table.draw(training.model, numbers)
        order = table.order(remaining)
        undisturbed = np.where((held[0] > 0) & ~table.settled, held[0], table.limit)
        chosen = evolution.fill_free_gpus(held, cluster.gpus, order, undisturbed, table.least)[0]
        if now >= state.next_s and table.jobs:
            genomes = table.genomes(state, deployed) if state.nodes == nodes else deployed[None]
            for _ in range(self.generations):
                genomes = self._generation(genomes, deployed, order, table, remaining, numbers)
                remaining = table.draw(training.model, numbers)
                order = table.order(remaining)
            chosen = self._applied(evolution.gpus_per_job(genomes, len(table.jobs)), held[0], chosen, table, remaining)
            state = _remember(state, nodes, genomes, table)
            state = replace(state, next_s=now + self.interval_s)
        sizes = {job.key: int(size) for job, size in zip(table.jobs, chosen, strict=True) if size}
        batches = table.batches(chosen)
        wake = state.next_s if jobs and state.next_s > now else None
        return state, place_sizes(cluster, table.jobs, sizes, batches), wake

    def _limits(self, state: OnesState, cluster: Cluster, jobs: Sequence[Job]) -> dict[str, SizeLimit]:
        """Double the size limits of jobs that have been at theirs for long enough."""
        known = {limit.key: limit for limit in state.limits}
        limits = {}
        for job in jobs:
            if not (job.grant or job.key in known):
                continue
            request, epochs = job.request, job.done / job.request.epoch
            limit = known.get(job.key) or SizeLimit(job.key, request.least, epochs)
            if not job.grant or job.grant.size < limit.gpus:
                limit = replace(limit, since=epochs)
            elif epochs - limit.since >= self.protected_epochs and limit.gpus < request.most:
                limit = SizeLimit(job.key, min(2 * limit.gpus, request.most), epochs)
            limits[job.key] = limit
        return limits

    def _generation(
        self,
        genomes: Ints,
        deployed: Ints,
        order: Ints,
        table: "_Table",
        remaining: Floats,
        rng: np.random.Generator,
    ) -> Ints:
        """Return the best of the population, the deployed assignment, their children and mutants, all padded."""
        parents = np.concatenate((deployed[None], evolution.trim_to_limits(genomes, table.limit)))
        offspring = evolution.trim_to_limits(evolution.uniform_crossover(parents, rng), table.limit)
        mutants = evolution.uniform_mutation(parents, table.protected, self.mutation, rng)
        pool = np.concatenate((parents, offspring, mutants))
        held = evolution.gpus_per_job(pool, len(table.jobs))
        held = evolution.fill_free_gpus(held, len(deployed), order, table.limit, table.least)
        score = evolution.scores(held, remaining, table.rates)
        rows = evolution.select_best(held, score, self.population)
        return evolution.reorder(held[rows], deployed, order)

    def _applied(self, genomes: Ints, held: Ints, undisturbed: Ints, table: "_Table", remaining: Floats) -> Ints:
        """Return the best of the sizes in `genomes` that displace no job too early, or `undisturbed` if none is better."""
        displaced = ((genomes != held) & (held > 0) & ~table.settled).any(axis=1)
        if displaced.all():
            return undisturbed
        genomes = genomes[~displaced]
        score = evolution.scores(np.concatenate((undisturbed[None], genomes)), remaining, table.rates)
        row = int(score[1:].argmin())
        return genomes[row] if score[row + 1] <= (1.0 - self.hysteresis) * score[0] else undisturbed


def _remember(state: OnesState, nodes: tuple[tuple[str, int], ...], genomes: Ints, table: "_Table") -> OnesState:
    owners = np.unique(genomes[genomes != EMPTY])
    place = np.full(len(table.jobs) + 1, EMPTY)
    place[owners] = np.arange(len(owners))
    keys = tuple(table.jobs[row].key for row in owners.tolist())
    return replace(state, nodes=nodes, jobs=keys, genomes=tuple(evolution.encode_genome(genome) for genome in place[genomes]))


@dataclass(frozen=True, eq=False)
class _Table:
    """The jobs that take part in a search, as columns.

    done: samples processed. protected: has processed too few epochs to be dropped. settled: has run long enough on its GPUs to
    be displaced. started: has reported progress.
    """

    jobs: tuple[Job, ...]
    least: Ints
    limit: Ints
    done: Floats
    epochs: Floats
    left: Floats
    figures: Floats
    protected: Bools
    settled: Bools
    started: Bools
    rates: Throughputs

    @classmethod
    def of(
        cls, policy: Ones, cluster: Cluster, jobs: Sequence[Job], limits: dict[str, SizeLimit], owners: set[str]
    ) -> "_Table":
        chosen, waiting = [], 0
        for job in jobs_that_fit(cluster, jobs):
            if not (job.grant or job.reports or job.key in owners):
                waiting += 1
                if waiting > cluster.gpus:
                    continue  # The job would get no GPU even if all the others got one each.
            chosen.append(job)
        rows = np.array([_row(job, limits) for job in chosen], np.float64).reshape(-1, 6)
        least, limit, done, epochs, left, since = rows.T
        return cls(
            tuple(chosen),
            least.astype(np.int64),
            limit.astype(np.int64),
            done,
            epochs,
            left,
            features_of(progress_sample(job) for job in chosen),
            epochs < policy.protected_epochs,
            since >= policy.settled_epochs,
            epochs > 0,
            Throughputs.of([_points(job) for job in chosen]),
        )

    def draw(self, model: BetaModel | None, rng: np.random.Generator) -> Floats:
        """Draw how far each job has come, and return the samples that it then still needs."""
        beta = prior_beta(self.left) if model is None else model.beta(self.figures)
        share = np.maximum(rng.beta(alpha_from_epochs(self.epochs), beta), MIN_PROGRESS)
        return np.asarray(self.done * (1.0 / share - 1.0))

    def order(self, remaining: Floats) -> Ints:
        """Return the order in which GPUs are offered: new jobs by submission, then the others, shortest on one GPU first."""
        rows = np.arange(len(self.jobs))
        alone = comparable(remaining / self.rates.at(rows, np.ones_like(rows)))
        return np.asarray(np.lexsort((np.where(self.started, alone, rows), self.started)))

    def batches(self, held: Ints) -> dict[str, int]:
        """Return the batch sizes of jobs on so many GPUs each, as `Grant.batch_size`; those of jobs on none are left out."""
        rows = np.flatnonzero(held)
        jobs = [self.jobs[row] for row in rows.tolist()]
        batches = BatchSizes.of([job.request for job in jobs]).scaled(np.arange(len(rows)), held[rows]).astype(np.int64)
        return {
            job.key: 0 if batch == job.request.batch_size else batch for job, batch in zip(jobs, batches.tolist(), strict=True)
        }

    def deployed(self, cluster: Cluster) -> Ints:
        """Return the genome of what the jobs hold; what lies on nodes that are gone is left out."""
        first = dict(zip(cluster.node, np.cumsum([0, *(node.gpus for node in cluster.nodes)]).tolist(), strict=False))
        end = {name: at + cluster.node[name].gpus for name, at in first.items()}
        genome = np.full(cluster.gpus, EMPTY, np.int64)
        for row, job in enumerate(self.jobs):
            if job.grant and all(first.get(node, 0) + count <= end.get(node, 0) for node, count in job.grant.gpus):
                for node, count in job.grant.gpus:
                    genome[first[node] : first[node] + count] = row
                    first[node] += count
        return genome

    def genomes(self, state: OnesState, deployed: Ints) -> Ints:
        """Return the remembered genomes without the jobs that have ended; the deployed one where there are none."""
        row = {job.key: number for number, job in enumerate(self.jobs)}
        rows = np.array([*(row.get(key, EMPTY) for key in state.jobs), EMPTY], np.int64)
        genomes = [rows[evolution.decode_genome(runs)] for runs in state.genomes]
        return np.stack(genomes) if genomes else deployed[None]


def _row(job: Job, limits: dict[str, SizeLimit]) -> tuple[float, float, float, float, float, float]:
    request, done = job.request, job.done
    limit = limits[job.key].gpus if job.key in limits else request.least
    since = 0.0
    if job.grant:
        before = bisect_right(job.reports, job.since_s, key=lambda report: report.at_s)
        since = done - (job.reports[before - 1].iteration if before else 0.0)
    epoch = request.epoch
    return request.least, limit, done * request.batch_size, done / epoch, job.remaining / epoch, since / epoch


def _points(job: Job) -> list[tuple[float, float]]:
    """Return samples per second by GPUs; of a job that was not measured, its samples per GPU-second until now on one GPU."""
    measured = sorted((float(gpus), rate) for gpus, rate in throughputs(job.speeds).items() if gpus > 0 and 0 < rate < inf)
    if measured:
        return measured
    done = job.done * job.request.batch_size
    return [(1.0, done / job.gpu_s if done > 0 and job.gpu_s > 0 else 1.0)]
