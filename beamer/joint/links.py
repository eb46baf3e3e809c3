"""How much running jobs use each link of a fabric, and what a job that comes would find there."""

import numpy as np

from beamer.errors import InputError
from beamer.gpu.attempts import traffic_on, workers_on
from beamer.gpu.model import Cluster, Grant, Job
from beamer.network.footprint import Footprint, Footprints
from beamer.network.job import JobSpec, job_spec
from beamer.studies.model import split_key

Load = tuple[JobSpec, Footprint]
"""A job on what it is granted, and what it loads."""


def loading(job: Job, grant: Grant, cluster: Cluster, footprints: Footprints) -> Load | None:
    """Return what a job loads on what it is granted; None where its collective cannot run so."""
    devices = tuple((node, index) for node, count in cluster.in_order(grant.gpus) for index in range(count))
    spec = job_spec(split_key(job.key)[1], workers_on(grant, devices), traffic_on(job, grant))
    try:
        return spec, footprints.of(spec, 0)
    except InputError:
        return None


def iteration_s(spec: JobSpec, footprint: Footprint) -> float:
    """Return what an iteration of a job takes with the fabric to itself, seconds."""
    return max(spec.compute_s, (1 - spec.overlap) * spec.compute_s + footprint.gamma_s)


class LinkUse:
    """The share of time for which the jobs that are added would keep each link busy, each with the fabric to itself."""

    def __init__(self, links: int) -> None:
        self._use = np.zeros(links)

    def add(self, spec: JobSpec, footprint: Footprint) -> None:
        """Count a job."""
        lasts_s = iteration_s(spec, footprint)
        if lasts_s > 0:
            self._use[footprint.link] += footprint.seconds / lasts_s

    def found_s(self, footprint: Footprint) -> tuple[float, float]:
        """Return what a synchronisation takes on its slowest link, and on all, if it shares each with what is there."""
        shared_s = footprint.seconds * (1.0 + self._use[footprint.link])
        return float(shared_s.max(initial=0.0)), float(shared_s.sum())
