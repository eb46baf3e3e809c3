"""From a profile of codepoints to the queues of a switch's port: in which queue each DSCP waits.

Classes have queues of strict priority, class 0 the first and acknowledgements beside it. Network control is above them: CS6 and
CS7 (RFC 2474, section 4.2.2.2). Everything else is below. Where a profile leaves precedence 3 free, that is RoCE's and keeps
its queue. A class is never in that queue, in one that is lossless by default, or in that of control.
"""

from dataclasses import dataclass

from beamer.errors import InputError, nearest
from beamer.network.codepoints import PROFILES, Codepoints

_DSCPS = 64
_CONTROL = (48, 56)  # CS6 and CS7
_ROCE_PRECEDENCE = 3


@dataclass(frozen=True)
class PortQueues:
    """The queues of a port, of which the one with the larger number is served first.

    classes: those that classes may have, most urgent first. beside_roce: the same in a profile that leaves precedence 3 to
    RoCE. lossless: those that pause senders by default. control: that of network control. other: that of everything else.
    roce: that of RoCE.
    """

    classes: tuple[int, ...]
    beside_roce: tuple[int, ...]
    lossless: frozenset[int] = frozenset()
    control: int = 7
    other: int = 0
    roce: int = 3


@dataclass(frozen=True)
class QueueMap:
    """Where a switch puts each DSCP.

    profile: its name. queues: by DSCP, of which the larger is served first. classes: by class. control, other: the queues of
    network control and of everything else. roce: the queue of RoCE, None where the profile leaves it none.
    """

    profile: str
    codepoints: Codepoints
    queues: tuple[int, ...]
    classes: tuple[int, ...]
    control: int
    other: int
    roce: int | None

    @property
    def of_classes(self) -> tuple[int, ...]:
        """The queues that classes have, most urgent first."""
        return tuple(dict.fromkeys(self.classes))

    @property
    def strict(self) -> tuple[int, ...]:
        """The queues that have to be served in strict priority: that of control, then those of classes."""
        return (self.control, *self.of_classes)

    @property
    def used(self) -> tuple[int, ...]:
        """Every queue that has a DSCP, the first to be served first."""
        return tuple(sorted({*self.queues}, reverse=True))

    def dscps(self, queue: int) -> tuple[int, ...]:
        """Return the DSCPs of a queue."""
        return tuple(dscp for dscp, own in enumerate(self.queues) if own == queue)

    def members(self, queue: int) -> tuple[int, ...]:
        """Return the classes of a queue."""
        return tuple(klass for klass, own in enumerate(self.classes) if own == queue)


def queue_map(profile: str, port: PortQueues) -> QueueMap:
    """Return where a switch with these queues puts each DSCP. Raises `InputError` for a profile that does not exist.

    Where there are fewer queues than classes, the least urgent classes share the last.
    """
    if profile not in PROFILES:
        raise InputError("--codepoints", profile, nearest(profile, PROFILES))
    codepoints = PROFILES[profile]
    beside_roce = all(dscp >> 3 != _ROCE_PRECEDENCE for dscp in codepoints.all)
    own = port.beside_roce if beside_roce else port.classes
    classes = tuple(own[min(klass, len(own) - 1)] for klass in range(len(codepoints.classes)))
    known = dict.fromkeys(_CONTROL, port.control)
    if beside_roce:
        known |= {dscp: port.roce for dscp in range(_DSCPS) if dscp >> 3 == _ROCE_PRECEDENCE}
    known |= dict(zip(codepoints.classes, classes, strict=True)) | {codepoints.acknowledgement: classes[0]}
    queues = tuple(known.get(dscp, port.other) for dscp in range(_DSCPS))
    return QueueMap(profile, codepoints, queues, classes, port.control, port.other, port.roce if beside_roce else None)
