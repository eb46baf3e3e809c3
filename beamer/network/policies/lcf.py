"""Lightest coflow first."""

from beamer.network.arrays import Floats
from beamer.network.ranking import Ranking
from beamer.network.snapshot import Snapshot


class Lcf(Ranking):
    """Serve the coflow with the fewest bytes left first.

    Lightest-first as in CoflowSim, the simulator by the authors of Chowdhury, Zhong, Stoica 2014 (SIGCOMM). The programs by
    the authors of Sincronia (Agarwal et al. 2018, SIGCOMM) call it TCF and go by total instead of remaining bytes.
    """

    name = "lcf"

    def sort_key(self, snapshot: Snapshot) -> Floats:
        """Return the bits that all flows together have left."""
        return snapshot.coflows.left_bits
