"""First come, first served: the baseline that orders coflows but knows nothing of stages."""

import numpy as np

from beamer.network.arrays import Floats
from beamer.network.ranking import Ranking
from beamer.network.snapshot import Snapshot


class Fifo(Ranking):
    """Serve coflows in order of release; where releases are not known, jobs in order of registration."""

    name = "fifo"

    def sort_key(self, snapshot: Snapshot) -> Floats:
        """Return 0 for coflows in flight, which have been released, and 1 for those to come."""
        known = snapshot.coflows.in_flight
        return np.where(known, 0.0, 1.0) if known.any() else np.zeros(len(known))
