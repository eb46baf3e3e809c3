"""Narrowest coflow first."""

import numpy as np

from beamer.network.arrays import Floats
from beamer.network.ranking import Ranking
from beamer.network.snapshot import Snapshot


class Ncf(Ranking):
    """Serve the coflow with the fewest senders or receivers first, whichever are fewer. [source: CoflowSim, by ALGORITHMS 3]"""

    name = "ncf"

    def figure(self, snapshot: Snapshot) -> Floats:
        """Return the smaller number of hosts."""
        return np.minimum(snapshot.jobs.senders, snapshot.jobs.receivers).astype(np.float64)
