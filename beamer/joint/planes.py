"""Which of several equal paths a job takes: those of the plane on which it finds its links used least."""

from collections.abc import Iterable

from beamer.joint.links import LinkUse
from beamer.network.footprint import Footprints
from beamer.network.job import JobSpec

Placed = tuple[JobSpec, int]
"""A job and its plane."""


def least_used_plane(footprints: Footprints, spec: JobSpec, others: Iterable[Placed]) -> int:
    """Return the plane on which a job's synchronisation takes least beside the others, each of which keeps its own."""
    fabric = footprints.fabric
    use = LinkUse(len(fabric.links))
    for other, plane in others:
        use.add(other, footprints.of(other, plane))
    return min(range(fabric.planes), key=lambda plane: use.found_s(footprints.of(spec, plane)))
