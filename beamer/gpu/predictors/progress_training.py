"""Online training of ONES' progress model on the jobs that end under the policy: samples kept, and when it is trained again.

That the model is trained online on finished jobs is ONES [Bian, Li, Wang and You 2021]; which samples are kept, and how often
it is trained, is ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from random import Random

import numpy as np

from beamer.gpu.model import Job
from beamer.gpu.predictors.progress import BetaModel, ProgressSample, fit

# The jobs tracked at once are bounded, as the state is journaled with every decision and must not grow with the queue.
MAX_TRACKED_JOBS = 256
MAX_SAMPLES = 1024  # Only the latest samples of ended jobs are kept, which bounds the state and the time of a training.
JOBS_PER_TRAINING = 16  # A training follows so many ended jobs, which bounds its share of the decisions' time.


def progress_sample(job: Job) -> ProgressSample:
    """Return the sample of a job's progress now; figures that are not finite count as zero."""
    request, last = job.request, job.reports[-1] if job.reports else None
    figures = (job.reports[0].loss, last.loss, last.accuracy or 0.0) if last else (0.0, 0.0, 0.0)
    first, loss, accuracy = (figure if isfinite(figure) else 0.0 for figure in figures)
    return ProgressSample(float(request.epoch * request.batch_size), first, loss, accuracy, job.done / request.epoch)


@dataclass(frozen=True)
class TrackedJob:
    """A job that has not ended. epochs: processed. total: that it was submitted for. samples: after 1, 2, 4, ... epochs."""

    key: str
    epochs: float
    total: float
    samples: tuple[ProgressSample, ...]

    @property
    def complete(self) -> bool:
        """Whether it ended by itself, if it has ended: the last report comes with the end, so that a policy never sees it."""
        return self.epochs >= self.total - 1


@dataclass(frozen=True)
class ProgressTraining:
    """The training's state. ended_samples: of jobs that have ended. ended_jobs: since the last training.

    All that a policy sees of a job's end is that the job is missing. It learns from those that had no more than their last
    epoch to go: they count as having processed what they were submitted for. A job that is missing before that was killed,
    failed, or was stopped at its target: how far it would have gone is not known, and to take what it did for the whole would
    teach that similar jobs are almost done.
    """

    tracked: tuple[TrackedJob, ...] = ()
    ended_samples: tuple[ProgressSample, ...] = ()
    ended_jobs: int = 0
    model: BetaModel | None = None

    def updated(self, jobs: Sequence[Job], rng: Random) -> "ProgressTraining":
        """Sample the jobs that have not ended, take those that are missing for ended, train again after `JOBS_PER_TRAINING`."""
        by_key = {job.key: job for job in jobs}
        tracked: list[TrackedJob] = []
        ended: list[ProgressSample] = []
        ended_jobs = self.ended_jobs
        for before in self.tracked:
            job = by_key.get(before.key)
            if job:
                tracked.append(_sampled(before, job))
            elif before.complete and before.samples:
                ended += [replace(sample, total=before.total) for sample in before.samples]
                ended_jobs += 1
        known = {one.key for one in tracked}
        for job in jobs:
            if len(tracked) >= MAX_TRACKED_JOBS:
                break
            if job.reports and job.key not in known:
                tracked.append(_sampled(TrackedJob(job.key, 0.0, job.request.iterations / job.request.epoch, ()), job))
        samples = (*self.ended_samples, *ended)[-MAX_SAMPLES:]
        if ended_jobs < JOBS_PER_TRAINING:
            return ProgressTraining(tuple(tracked), samples, ended_jobs, self.model)
        model = fit(samples, np.random.default_rng(rng.getrandbits(64)), self.model)
        return ProgressTraining(tuple(tracked), samples, 0, model)


def _sampled(before: TrackedJob, job: Job) -> TrackedJob:
    sample = progress_sample(job)
    due = sample.epochs >= 2 ** len(before.samples)
    return replace(before, epochs=sample.epochs, samples=(*before.samples, sample) if due else before.samples)
