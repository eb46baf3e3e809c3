"""What a policy learns about progress from the jobs that end under it: the state of an online `BetaModel`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from random import Random

import numpy as np

from beamer.gpu.model import Job
from beamer.gpu.predictors.progress import BetaModel, Sample, fit

WATCHED = 256  # jobs at once: what is remembered must not grow with the queue
SAMPLES = 1024  # of jobs that have ended
EVERY = 16  # ended jobs between two trainings


def sample_of(job: Job) -> Sample:
    """Return what a job looks like now, without garbage."""
    request, last = job.request, job.reports[-1] if job.reports else None
    figures = (job.reports[0].loss, last.loss, last.accuracy or 0.0) if last else (0.0, 0.0, 0.0)
    first, loss, accuracy = (figure if isfinite(figure) else 0.0 for figure in figures)
    return Sample(float(request.epoch * request.batch_size), first, loss, accuracy, job.done / request.epoch)


@dataclass(frozen=True)
class Watched:
    """A job that runs. epochs: that it has processed. total: that it was submitted for. samples: after 1, 2, 4, ... epochs."""

    key: str
    epochs: float
    total: float
    samples: tuple[Sample, ...]

    @property
    def complete(self) -> bool:
        """Whether it ended by itself, if it has ended: the last report comes with the end, so that a policy never sees it."""
        return self.epochs >= self.total - 1


@dataclass(frozen=True)
class Lessons:
    """What was seen and learnt. ended: samples of jobs that have ended. fresh: such jobs since the last training.

    All that a policy sees of a job's end is that the job is missing. It learns from those that had no more than their last
    epoch to go: they count as having processed what they were submitted for. What is missing before that was killed, failed, or
    was stopped at its target: how far it would have gone is not known, and to take what it did for the whole would teach that
    jobs which look like it are as good as done.
    """

    watched: tuple[Watched, ...] = ()
    ended: tuple[Sample, ...] = ()
    fresh: int = 0
    model: BetaModel | None = None

    def after(self, jobs: Sequence[Job], rng: Random) -> "Lessons":
        """Look at the jobs that have not ended, take those that are missing for ended, train again after `EVERY`."""
        now = {job.key: job for job in jobs}
        watched, ended, fresh = [], [], self.fresh
        for seen in self.watched:
            job = now.get(seen.key)
            if job:
                watched.append(_look(seen, job))
            elif seen.complete and seen.samples:
                ended += [replace(sample, total=seen.total) for sample in seen.samples]
                fresh += 1
        known = {seen.key for seen in watched}
        for job in jobs:
            if len(watched) >= WATCHED:
                break
            if job.reports and job.key not in known:
                watched.append(_look(Watched(job.key, 0.0, job.request.iterations / job.request.epoch, ()), job))
        samples = (*self.ended, *ended)[-SAMPLES:]
        if fresh < EVERY:
            return Lessons(tuple(watched), samples, fresh, self.model)
        model = fit(samples, np.random.default_rng(rng.getrandbits(64)), self.model)
        return Lessons(tuple(watched), samples, 0, model)


def _look(seen: Watched, job: Job) -> Watched:
    sample = sample_of(job)
    due = sample.epochs >= 2 ** len(seen.samples)
    return replace(seen, epochs=sample.epochs, samples=(*seen.samples, sample) if due else seen.samples)
