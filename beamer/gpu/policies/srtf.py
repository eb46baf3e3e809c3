"""Shortest remaining time first: the optimal order on one machine if remaining times are known [Schrage 1968]."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from beamer.decision.policy import Stateless
from beamer.gpu.model import Allocation, Cluster, Job
from beamer.gpu.placement import pack
from beamer.gpu.policy import GpuPolicy, check_at_least


@dataclass(frozen=True)
class Srtf(GpuPolicy[Stateless]):
    """Run the jobs that have least left, at the size they ask for, by their declared iterations and measured speed.

    Jobs that take several GPUs are packed in this order, which is a heuristic: the optimality proof is for one machine
    [L. Schrage, "A proof of the optimality of the shortest remaining processing time discipline", Operations Research 1968].

    hysteresis: by what share a waiting job must be shorter than a running one to take its place.
    A job that has not reported its speed yet runs first, so that it is measured.
    """

    hysteresis: float = 0.1

    name = "srtf"
    State = Stateless

    def __post_init__(self) -> None:
        check_at_least(self, 0, "hysteresis", endless=True)

    def allocate(
        self, state: Stateless, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Stateless, Allocation, float | None]:
        """Order by what is left, running jobs at an advantage."""
        return state, pack(cluster, sorted(jobs, key=self._key)), None

    def _key(self, job: Job) -> float:
        left = remaining_s(job)
        return left / (1 + self.hysteresis) if job.grant else left


def remaining_s(job: Job) -> float:
    """Return how long the job has still to run at the size it asks for, as its reports say; 0 where they do not yet."""
    last = job.reports[-1] if job.reports else None
    if last is None or last.iteration <= 0:
        return 0.0
    return job.remaining * last.service_s / last.iteration
