"""Round-robin time slicing: the baseline that serves every job alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from beamer.gpu.model import Allocation, Cluster, Job
from beamer.gpu.placement import pack
from beamer.gpu.policy import GpuPolicy, check_interval


@dataclass(frozen=True)
class TimeSlice:
    """When the current time slice ends, seconds."""

    ends_s: float = 0.0


@dataclass(frozen=True)
class RoundRobin(GpuPolicy[TimeSlice]):
    """Give every job the GPUs it asks for, for a time slice, those that have waited longest first.

    quantum_s: length of a slice. Slices begin together, so that a large job finds its GPUs free; jobs that fit what is left
    over run in between.
    """

    quantum_s: float = 60.0

    name = "round-robin"
    fair = True
    State = TimeSlice

    def __post_init__(self) -> None:
        check_interval(self, "quantum_s")

    def allocate(
        self, state: TimeSlice, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[TimeSlice, Allocation, float | None]:
        """Start the next slice when the current one has ended, otherwise keep what runs."""
        waiting = sorted((job for job in jobs if not job.grant), key=lambda job: job.since_s)
        running = sorted((job for job in jobs if job.grant), key=lambda job: job.since_s)
        if now < state.ends_s:
            grants = pack(cluster, running + waiting)
        else:
            state = TimeSlice(now + self.quantum_s)
            grants = pack(cluster, waiting + running)
        return state, grants, state.ends_s if len(grants) < len(jobs) else None
