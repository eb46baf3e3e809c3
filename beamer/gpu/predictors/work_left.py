"""The work that jobs of unknown ends have left, as far as those that ended before them tell.

A job that may end at any time is worth serving by its Gittins index: the largest ratio, over all amounts of further service, of
the probability that it ends within it to the service expected until then. That order minimises the mean completion time where
only the distribution of sizes is known [Gittins 1979; Aalto, Ayesta and Righter 2009]; Tiresias uses it with the distribution
of a cluster's past [Gu et al. 2019, section 4.2]. The distribution is estimated from the jobs that have ended and, censored,
from those that run [Kaplan and Meier 1958]. Where few are known, what a job has left counts as what it has had: the order of
least attained service, best where sizes have a decreasing hazard rate [Nuyens and Wierman 2008]. Ours is how both are weighed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from beamer.gpu.arrays import Floats

NOTHING: Floats = np.zeros(0)
MIN_ENDED = 8  # The distribution is looked at from so many ended jobs on; below, a single one would decide.
MIN_SERVICE = 1e-9  # GPU-seconds; keeps ratios finite
ASSUMED_AS_MANY = 2.0  # The assumption "as much left as done" counts as so many ended jobs beside those that took longer.


@dataclass(frozen=True, eq=False)
class WorkLeft:
    """What is known about the sizes of a cluster's jobs, GPU-seconds.

    sizes: of those that ended, rising, each once. survival: share of jobs larger than each. service: mean work of a job until
    it has reached each size or ended. ended: of all that ended, rising.
    """

    sizes: Floats
    survival: Floats
    service: Floats
    ended: Floats

    @classmethod
    def of(cls, ended: Sequence[float], running: Sequence[float]) -> "WorkLeft":
        """Estimate the distribution. ended: work of jobs that ended. running: work until now of those that have not."""
        done = np.sort(np.asarray(ended, np.float64))
        if len(done) < MIN_ENDED:
            return cls(NOTHING, NOTHING, NOTHING, done)
        sizes, count = np.unique(done, return_counts=True)
        both = np.sort(np.concatenate((done, running)))
        at_risk = len(both) - np.searchsorted(both, sizes)
        survival: Floats = np.cumprod(1.0 - count / at_risk, dtype=np.float64)
        service = np.cumsum(np.concatenate(([1.0], survival[:-1])) * np.diff(sizes, prepend=0.0))
        return cls(sizes, survival, service, done)

    def expected(self, attained: Floats, least: Floats | float) -> Floats:
        """Return the inverse of each job's Gittins index, in GPU-seconds.

        attained: work of each until now. least: GPU-seconds that each is expected to take at least.
        """
        assumed = attained + least
        if not len(self.sizes):
            return assumed
        index = self._index(attained)
        longer = len(self.ended) - np.searchsorted(self.ended, attained, side="right")
        share = np.where(index > 0, longer / (longer + ASSUMED_AS_MANY), 0.0)
        learnt = np.maximum(1.0 / np.where(index > 0, index, 1.0), 1.0)
        return np.asarray(assumed ** (1.0 - share) * learnt**share)

    def _index(self, attained: Floats) -> Floats:
        """Return Gittins indices, 0 beyond the largest size."""
        first = np.searchsorted(self.sizes, attained, side="right")
        alive = np.concatenate(([1.0], self.survival))[first]
        since = np.concatenate(([0.0], self.sizes))[first]
        before = np.concatenate(([0.0], self.service))[first] + alive * (attained - since)
        ahead = np.arange(len(self.sizes)) >= first[:, None]
        ends = np.where(ahead, alive[:, None] - self.survival, 0.0)
        service = np.where(ahead, self.service - before[:, None], 1.0)
        return np.asarray((ends / np.maximum(service, MIN_SERVICE)).max(axis=1))
