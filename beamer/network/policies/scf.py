"""Shortest coflow first."""

from beamer.network.arrays import Floats
from beamer.network.ranking import Ranking
from beamer.network.snapshot import Snapshot


class Scf(Ranking):
    """Serve the coflow first whose longest flow has least left.

    Shortest-first of Chowdhury, Zhong, Stoica 2014 (SIGCOMM), as in CoflowSim, the same authors' simulator.
    """

    name = "scf"

    def sort_key(self, snapshot: Snapshot) -> Floats:
        """Return the bits that the longest flow has left."""
        return snapshot.coflows.longest_bits
