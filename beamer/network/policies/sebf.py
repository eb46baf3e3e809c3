"""Smallest effective bottleneck first."""

from beamer.network.arrays import Floats
from beamer.network.ranking import Ranking, effective_bottleneck_s
from beamer.network.snapshot import Snapshot


class Sebf(Ranking):
    """Serve the coflow first that would end first with the network to itself. [source: Varys, by ALGORITHMS 3]"""

    name = "sebf"

    def figure(self, snapshot: Snapshot) -> Floats:
        """Return the seconds that what is left needs of its busiest link alone."""
        return effective_bottleneck_s(snapshot)
