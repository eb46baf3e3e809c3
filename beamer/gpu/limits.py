"""What a search tolerates of a trial's runs before a run, or the trial, is given up."""

from dataclasses import dataclass
from math import inf

from beamer.errors import InputError
from beamer.gpu.engine import Observed, RunState


@dataclass(frozen=True)
class RunLimits:
    """Limits of a trial's runs; what they count is in `Observed`.

    retries: how often a trial whose run has failed is started again from its checkpoint, in all. timeout_s: the longest that a
    trial may run for one target, or after a failure for what it has left to it. silent_s: the longest that it may print
    nothing. Both count seconds on GPUs, whatever a policy does with the trial meanwhile. A run beyond them has failed.
    """

    retries: int = 0
    timeout_s: float = inf
    silent_s: float = inf

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise InputError("retries", self.retries, "at least 0")
        for name in ("timeout_s", "silent_s"):
            if not getattr(self, name) > 0:
                raise InputError(name, getattr(self, name), "above 0")

    def exceeded(self, seen: Observed) -> str:
        """Return which limit a run is beyond, as the reason for which it has failed; "" if none."""
        if seen.state is not RunState.RUNNING or not seen.launch:
            return ""
        if seen.quiet_s > self.silent_s:
            return f"it printed nothing for {seen.quiet_s:.3g} s on its GPUs, longer than silent_s: {self.silent_s:g}"
        if seen.ran_s > self.timeout_s:
            return f"it ran for {seen.ran_s:.3g} s without coming to its target, longer than timeout_s: {self.timeout_s:g}"
        return ""
