"""Lightest coflow first."""

from beamer.network.arrays import Floats
from beamer.network.ranking import Ranking
from beamer.network.snapshot import Snapshot


class Lcf(Ranking):
    """Serve the coflow with the fewest bytes left first. [source: CoflowSim, by ALGORITHMS 3; Sincronia's programs: TCF]"""

    name = "lcf"

    def figure(self, snapshot: Snapshot) -> Floats:
        """Return the bits that all flows together have left."""
        return snapshot.coflows.left_bits
