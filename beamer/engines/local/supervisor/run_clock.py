"""How long the ranks of a job have run, and how long they have printed nothing: what a search may limit.

Both count from the beginning of an attempt at the job's target, over all of its runs, and leave out what it was suspended for,
parked or on its way to other GPUs: a job that is started anew before it has printed anything is no less silent for that.
"""


class RunClock:
    """Counts for one run. now: monotonic time of its launch. ran_s, quiet_s: of the runs before it."""

    def __init__(self, now: float, ran_s: float, quiet_s: float) -> None:
        self._since_s: float | None = now  # None while the ranks are suspended.
        self._before = self._ran_s, self._quiet_s = ran_s, quiet_s

    def suspend(self, now: float) -> None:
        """Stop counting."""
        self._ran_s, self._quiet_s = self.ran_s(now), self.quiet_s(now)
        self._since_s = None

    def resume(self, now: float) -> None:
        """Go on counting."""
        self._since_s = now

    def restart(self, now: float) -> None:
        """Count this run from now on."""
        self._ran_s, self._quiet_s = self._before[0], min(self.quiet_s(now), self._before[1])
        self._since_s = now

    def hear(self, now: float) -> None:
        """Take in that a rank has printed something."""
        self._ran_s, self._quiet_s = self.ran_s(now), 0.0
        self._since_s = None if self._since_s is None else now

    def ran_s(self, now: float) -> float:
        """Return how long they have run."""
        return self._ran_s + self._passed(now)

    def quiet_s(self, now: float) -> float:
        """Return how long they have run since any of them printed anything."""
        return self._quiet_s + self._passed(now)

    def _passed(self, now: float) -> float:
        return 0.0 if self._since_s is None else max(now - self._since_s, 0.0)
