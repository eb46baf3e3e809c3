"""Narrowest coflow first."""

import numpy as np

from beamer.network.arrays import Floats
from beamer.network.ranking import Ranking
from beamer.network.snapshot import Snapshot


class Ncf(Ranking):
    """Serve the coflow with the fewest senders or receivers first, whichever are fewer.

    Narrowest-first of Chowdhury, Zhong, Stoica 2014 (SIGCOMM); the width is that of CoflowSim, the same authors' simulator.
    """

    name = "ncf"

    def sort_key(self, snapshot: Snapshot) -> Floats:
        """Return the smaller number of hosts."""
        return np.minimum(snapshot.jobs.senders, snapshot.jobs.receivers).astype(np.float64)
