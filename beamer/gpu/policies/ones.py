"""ONES: an evolutionary search over who owns which GPU, with batch sizes that follow, by predicted progress.

The moves are `beamer.gpu.evolution`'s, the prediction is `beamer.gpu.predictors.progress`'s [source: authors' artifact,
re-written]. Ours where the text gives no detail [rebuilt]: the deployed assignment competes in every generation; jobs that need
several GPUs at least hold none below that; a genome is carried out by node-wise packing, jobs of unchanged size staying in
place, rather than gene by gene; a job that is not known by throughput yet is taken as linear.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from random import Random

import numpy as np

from beamer.gpu import evolution
from beamer.gpu.batch_sizes import BatchSizes
from beamer.gpu.evolution import EMPTY, Bools, Floats, Ints, Throughputs
from beamer.gpu.model import Allocation, Cluster, Job
from beamer.gpu.placement import jobs_that_fit, place_sizes
from beamer.gpu.policy import GpuPolicy, check_at_least, check_share
from beamer.gpu.predictors.lessons import Lessons, sample_of
from beamer.gpu.predictors.progress import BetaModel, alpha_of, figures_of, prior_beta
from beamer.gpu.predictors.speed import throughputs

LEAST_SHARE = 1e-6


@dataclass(frozen=True)
class Limit:
    """How many GPUs a job may hold. since: epochs it had processed when it last changed, or held fewer."""

    key: str
    gpus: int
    since: float


@dataclass(frozen=True)
class Population:
    """What ONES remembers.

    nodes: of the cluster that genomes are for. jobs: that own genes; genomes: each as owner, length, owner, length, ..., owners
    by their place in `jobs`, best first. next_s: when the search goes on.
    """

    nodes: tuple[tuple[str, int], ...] = ()
    jobs: tuple[str, ...] = ()
    genomes: tuple[tuple[int, ...], ...] = ()
    limits: tuple[Limit, ...] = ()
    lessons: Lessons = field(default=Lessons())
    next_s: float = 0.0


@dataclass(frozen=True)
class Ones(GpuPolicy[Population]):
    """Search for the assignment whose jobs need the fewest GPU-seconds until they have converged. [source; in parts rebuilt]

    population: genomes that are kept. generations: at each decision. mutation: probability that a mutant drops a job. young:
    epochs before which mutants do not, and after which a job at its size limit may double it. settled: epochs on its GPUs after
    which a job may be displaced. hysteresis: share by which an assignment must be better than leaving jobs alone. interval_s:
    between two searches, in which only free GPUs are handed out; 0: search at every decision. model: trained offline; None: the
    prior, until enough jobs have ended. learn: whether to train on them.
    """

    population: int = 16
    generations: int = 1
    mutation: float = 0.3
    young: float = 2.0
    settled: float = 1.0
    hysteresis: float = 0.0
    interval_s: float = 0.0
    model: BetaModel | None = None
    learn: bool = True

    name = "ones"
    resizes = True
    State = Population

    def __post_init__(self) -> None:
        check_at_least(self, 1, "population", "generations")
        check_at_least(self, 0, "young", "settled", "interval_s")
        check_share(self, "mutation", "hysteresis")

    def allocate(
        self, state: Population, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Population, Allocation, float | None]:
        """Let the population evolve and carry out its best assignment that displaces no job before its time."""
        numbers = np.random.default_rng(rng.getrandbits(64))
        lessons = state.lessons.after(jobs, rng) if self.learn else state.lessons
        limits = self._limits(state, cluster, jobs)
        table = _Table.of(self, cluster, jobs, limits, set(state.jobs))
        nodes = tuple((node.name, node.gpus) for node in cluster.nodes)
        deployed = table.deployed(cluster)
        held = evolution.held_by(deployed[None], len(table.jobs))
        state = replace(state, limits=tuple(limits.values()), lessons=lessons)
        remaining = table.draw(lessons.model or self.model, numbers)
        turn = table.turn(remaining)
        calm = np.where((held[0] > 0) & ~table.settled, held[0], table.limit)
        chosen = evolution.padded(held, cluster.gpus, turn, calm, table.least)[0]
        if now >= state.next_s and table.jobs:
            genomes = table.genomes(state, deployed) if state.nodes == nodes else deployed[None]
            for _ in range(self.generations):
                genomes = self._generation(genomes, deployed, turn, table, remaining, numbers)
                remaining = table.draw(lessons.model or self.model, numbers)
                turn = table.turn(remaining)
            chosen = self._applied(evolution.held_by(genomes, len(table.jobs)), held[0], chosen, table, remaining)
            state = _remember(state, nodes, genomes, table)
            state = replace(state, next_s=now + self.interval_s)
        sizes = {job.key: int(size) for job, size in zip(table.jobs, chosen, strict=True) if size}
        batches = table.batches(chosen)
        wake = state.next_s if jobs and state.next_s > now else None
        return state, place_sizes(cluster, table.jobs, sizes, batches), wake

    def _limits(self, state: Population, cluster: Cluster, jobs: Sequence[Job]) -> dict[str, Limit]:
        """Double the size limits of jobs that have been at theirs for long enough."""
        known = {limit.key: limit for limit in state.limits}
        limits = {}
        for job in jobs:
            if not (job.grant or job.key in known):
                continue
            request, epochs = job.request, job.done / job.request.epoch
            limit = known.get(job.key) or Limit(job.key, request.least, epochs)
            if not job.grant or job.grant.size < limit.gpus:
                limit = replace(limit, since=epochs)
            elif epochs - limit.since >= self.young and limit.gpus < request.most:
                limit = Limit(job.key, min(2 * limit.gpus, request.most), epochs)
            limits[job.key] = limit
        return limits

    def _generation(
        self,
        genomes: Ints,
        deployed: Ints,
        turn: Ints,
        table: "_Table",
        remaining: Floats,
        rng: np.random.Generator,
    ) -> Ints:
        """Return the best of the population, the deployed assignment, their children and mutants, all padded."""
        parents = np.concatenate((deployed[None], evolution.trimmed(genomes, table.limit)))
        offspring = evolution.trimmed(evolution.children(parents, rng), table.limit)
        mutants = evolution.mutants(parents, table.young, self.mutation, rng)
        pool = np.concatenate((parents, offspring, mutants))
        held = evolution.held_by(pool, len(table.jobs))
        held = evolution.padded(held, len(deployed), turn, table.limit, table.least)
        score = evolution.scores(held, remaining, table.rates)
        rows = evolution.best(held, score, self.population)
        return evolution.laid_out(held[rows], deployed, turn)

    def _applied(self, genomes: Ints, held: Ints, calm: Ints, table: "_Table", remaining: Floats) -> Ints:
        """Return the best of the sizes in `genomes` that may be carried out, or `calm`, which leaves unsettled jobs alone."""
        displaced = ((genomes != held) & (held > 0) & ~table.settled).any(axis=1)
        if displaced.all():
            return calm
        genomes = genomes[~displaced]
        score = evolution.scores(np.concatenate((calm[None], genomes)), remaining, table.rates)
        row = int(score[1:].argmin())
        return genomes[row] if score[row + 1] <= (1.0 - self.hysteresis) * score[0] else calm


def _remember(state: Population, nodes: tuple[tuple[str, int], ...], genomes: Ints, table: "_Table") -> Population:
    owners = np.unique(genomes[genomes != EMPTY])
    place = np.full(len(table.jobs) + 1, EMPTY)
    place[owners] = np.arange(len(owners))
    keys = tuple(table.jobs[row].key for row in owners.tolist())
    return replace(state, nodes=nodes, jobs=keys, genomes=tuple(evolution.runs_of(genome) for genome in place[genomes]))


@dataclass(frozen=True, eq=False)
class _Table:
    """The jobs that a search looks at, as columns.

    done: samples processed. young: has processed too few epochs to be dropped. settled: has run long enough on its GPUs to be
    displaced. executed: has reported progress.
    """

    jobs: tuple[Job, ...]
    least: Ints
    limit: Ints
    done: Floats
    epochs: Floats
    left: Floats
    figures: Floats
    young: Bools
    settled: Bools
    executed: Bools
    rates: Throughputs

    @classmethod
    def of(cls, policy: Ones, cluster: Cluster, jobs: Sequence[Job], limits: dict[str, Limit], owners: set[str]) -> "_Table":
        chosen, waiting = [], 0
        for job in jobs_that_fit(cluster, jobs):
            if not (job.grant or job.reports or job.key in owners):
                waiting += 1
                if waiting > cluster.gpus:
                    continue  # it has no turn even if all the others get a GPU each
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
            figures_of(sample_of(job) for job in chosen),
            epochs < policy.young,
            since >= policy.settled,
            epochs > 0,
            Throughputs.of([_points(job) for job in chosen]),
        )

    def draw(self, model: BetaModel | None, rng: np.random.Generator) -> Floats:
        """Draw how far each job has come, and return the samples that it then still needs."""
        beta = prior_beta(self.left) if model is None else model.beta(self.figures)
        share = np.maximum(rng.beta(alpha_of(self.epochs), beta), LEAST_SHARE)
        return np.asarray(self.done * (1.0 / share - 1.0))

    def turn(self, remaining: Floats) -> Ints:
        """Return the order in which GPUs are offered: new jobs by submission, then the others, shortest on one GPU first."""
        rows = np.arange(len(self.jobs))
        alone = remaining / self.rates.at(rows, np.ones_like(rows))
        return np.asarray(np.lexsort((np.where(self.executed, alone, rows), self.executed)))

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

    def genomes(self, state: Population, deployed: Ints) -> Ints:
        """Return the remembered genomes without the jobs that have ended; the deployed one where there are none."""
        row = {job.key: number for number, job in enumerate(self.jobs)}
        rows = np.array([*(row.get(key, EMPTY) for key in state.jobs), EMPTY], np.int64)
        genomes = [rows[evolution.genome_of(runs)] for runs in state.genomes]
        return np.stack(genomes) if genomes else deployed[None]


def _row(job: Job, limits: dict[str, Limit]) -> tuple[float, float, float, float, float, float]:
    request, done = job.request, job.done
    limit = limits[job.key].gpus if job.key in limits else request.least
    since = 0.0
    if job.grant:
        before = bisect_right(job.reports, job.since_s, key=lambda report: report.at_s)
        since = done - (job.reports[before - 1].iteration if before else 0.0)
    epoch = request.epoch
    return request.least, limit, done * request.batch_size, done / epoch, job.remaining / epoch, since / epoch


def _points(job: Job) -> list[tuple[float, float]]:
    """Return samples per second by GPUs; of a job that was not measured, one in proportion to what it has done until now."""
    measured = sorted((float(gpus), rate) for gpus, rate in throughputs(job.speeds).items() if gpus > 0 and 0 < rate < inf)
    if measured:
        return measured
    done = job.done * job.request.batch_size
    return [(1.0, done / job.gpu_s if done > 0 and job.gpu_s > 0 else 1.0)]
