"""Smallest effective bottleneck first."""

from beamer.network.arrays import Floats
from beamer.network.ranking import Ranking, effective_bottleneck_s
from beamer.network.snapshot import Snapshot


class Sebf(Ranking):
    """Serve the coflow first that would end first with the network to itself.

    The ordering heuristic of Varys (Chowdhury, Zhong, Stoica 2014, SIGCOMM). Varys' rates are those of the
    allocator `madd`; the bottleneck here counts whole links, not what coflows before it leave free.
    """

    name = "sebf"

    def sort_key(self, snapshot: Snapshot) -> Floats:
        """Return the seconds that what is left needs of its busiest link alone."""
        return effective_bottleneck_s(snapshot)
