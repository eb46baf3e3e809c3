"""A simulated run of a GPU policy with what experiments measure beside it."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from beamer.gpu.policies import GpuPolicy
from beamer.sim.gpu import GpuRun, JobRun
from eval.timing import timed


@dataclass(frozen=True)
class MeasuredGpuRun(GpuRun):
    """A policy's run. decision_s: wall time of its decisions."""

    decision_s: tuple[float, ...] = field(repr=False, default=())

    def quantile_jct_s(self, share: float) -> float:
        """Return the job completion time that `share` of the jobs do not exceed; infinite if more than the others never end."""
        times = sorted(job.jct_s for job in self.jobs)
        place = share * (len(times) - 1)
        above = times[math.ceil(place)]
        if math.isinf(above) or place == int(place):
            return above
        return float(np.quantile(times, share))


def reached_s(job: JobRun, loss: float) -> float:
    """Return when a trial first reported at most `loss`, infinity if it never did."""
    return next((report.at_s for report in job.reports if report.loss <= loss), math.inf)


class TimedGpuPolicy(GpuPolicy[Any]):
    """Another policy, with the seconds that each of its decisions took."""

    def __init__(self, policy: GpuPolicy[Any]) -> None:
        self.policy = policy
        self.name = policy.name  # type: ignore[misc]  # The wrapper stands for the other policy.
        self.State = policy.State
        self.seconds: list[float] = []
        self._timed = timed(policy.allocate, self.seconds)

    def initial(self) -> Any:
        """Return the other policy's first state."""
        return self.policy.initial()

    def allocate(self, *arguments: Any) -> Any:
        """Allocate as the other policy does, and note how long it took."""
        return self._timed(*arguments)
