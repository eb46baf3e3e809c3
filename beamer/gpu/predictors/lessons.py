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
    """A job that runs. epochs: that it has processed. samples: after 1, 2, 4, ... of them."""

    key: str
    epochs: float
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Lessons:
    """What was seen and learnt. ended: samples of jobs that have ended. fresh: such jobs since the last training."""

    watched: tuple[Watched, ...] = ()
    ended: tuple[Sample, ...] = ()
    fresh: int = 0
    model: BetaModel | None = None

    def after(self, jobs: Sequence[Job], rng: Random) -> "Lessons":
        """Look at the jobs that have not ended, take those that are missing for ended, train again when there were `EVERY`."""
        now = {job.key: job for job in jobs}
        watched, ended, fresh = [], [], self.fresh
        for seen in self.watched:
            job = now.get(seen.key)
            if job:
                watched.append(_look(seen, job))
            elif seen.epochs > 0:
                ended += [replace(sample, total=seen.epochs) for sample in seen.samples]
                fresh += 1
        known = {seen.key for seen in watched}
        for job in jobs:
            if len(watched) >= WATCHED:
                break
            if job.reports and job.key not in known:
                watched.append(_look(Watched(job.key, 0.0, ()), job))
        samples = (*self.ended, *ended)[-SAMPLES:]
        if fresh < EVERY:
            return Lessons(tuple(watched), samples, fresh, self.model)
        model = fit(samples, np.random.default_rng(rng.getrandbits(64)), self.model)
        return Lessons(tuple(watched), samples, 0, model)


def _look(seen: Watched, job: Job) -> Watched:
    sample = sample_of(job)
    due = sample.epochs >= 2 ** len(seen.samples)
    return Watched(seen.key, sample.epochs, (*seen.samples, sample) if due else seen.samples)
