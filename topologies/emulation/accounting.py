"""Did the bytes travel in the class they were given? Edge rules' counts against every hop's queues, from the kernel.

Each edge rule counts one job's bytes in one class from one host to another (a host pair). A pair's path is known, so
at every switch port the bytes of each queue must be the sum of the pairs through it, less what queues before it dropped. Hosts
come before the edge: a difference there is the window in which a host and its edge switch do not yet agree, after a connect or
a plan change.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from beamer.network.fabric import Fabric
from beamer.units import ETHERNET_HEADER, TCP_HEADERS, segment

# A queue that carried less than this share of its port's bytes is too little for a meaningful ratio.
NEGLIGIBLE_SHARE = 0.05
CLASS_SHARE_LIMIT = 0.99
DROP_LIMIT = 0.01  # the simulator sends nothing again, and what a starved class loses is missing for as long

Queue = tuple[str, int]  # interface and class


@dataclass(frozen=True)
class PairBytes:
    """Bytes that an edge rule counted for `job` from host `src` to host `dst` in class `klass`.

    Acknowledgements are in class 0. marked: those that their host had marked with this class; the others passed while host and
    edge did not agree, in a window after a connect or a plan change.
    """

    job: str
    src: str
    dst: str
    plane: int
    klass: int
    marked: bool
    sent_bytes: int


@dataclass(frozen=True)
class QueueBytes:
    """What the kernel counted in one queue: what left it, packets it dropped. klass None: unregistered traffic."""

    interface: str
    klass: int | None
    sent_bytes: int
    dropped_packets: int


@dataclass(frozen=True)
class HopShare:
    """One queue's account.

    edge_bytes: by the rules, less upstream drops. queue_bytes: by the kernel, drops added. window_bytes: of windows after a
    change, through this port in any class; they may be in this queue and are not expected in it. dropped_packets: by it.
    """

    interface: str
    klass: int
    edge_bytes: int
    queue_bytes: int
    window_bytes: int
    dropped_packets: int
    negligible: bool

    @property
    def share(self) -> float:
        """The smaller count over the larger one, windows left out."""
        queue_bytes = min(max(self.edge_bytes, self.queue_bytes - self.window_bytes), self.queue_bytes)
        low, high = sorted((self.edge_bytes, queue_bytes))
        return low / high if high else 1.0


def hop_shares(fabric: Fabric, pairs: Iterable[PairBytes], queues: Iterable[QueueBytes]) -> tuple[HopShare, ...]:
    """Return the account of every managed queue of every switch port and host interface in `queues`.

    What a queue dropped is taken from the pairs through it in proportion, for the queues after it. What a host dropped never
    reached the edge. The kernel counts dropped packets, not their bytes: of the sizes that a frame can have, the account takes
    the one at which both counts come nearest to each other.
    """
    pairs, queues = list(pairs), [queue for queue in queues if queue.klass is not None]
    windows = _by_port(_arrivals(fabric, [pair for pair in pairs if not pair.marked], {}))
    smallest, (_, largest) = ETHERNET_HEADER + TCP_HEADERS, segment(fabric.mtu)
    low, high = (_account(fabric, [pair for pair in pairs if pair.marked], queues, size) for size in (smallest, largest))
    dropped = {(queue.interface, queue.klass): queue.dropped_packets for queue in queues}
    ports = _by_port({queue: expected for queue, (expected, _) in low.items()})
    shares = []
    for interface, klass in sorted(low):
        expected, counted = _nearest(low[interface, klass], high[interface, klass])
        shares.append(
            HopShare(
                interface=interface,
                klass=klass,
                edge_bytes=round(expected),
                queue_bytes=round(counted),
                window_bytes=round(windows.get(interface, 0.0)),
                dropped_packets=dropped.get((interface, klass), 0),
                negligible=max(expected, counted) < NEGLIGIBLE_SHARE * ports.get(interface, 0.0),
            )
        )
    return tuple(shares)


def _account(
    fabric: Fabric, pairs: Sequence[PairBytes], queues: Sequence[QueueBytes], frame: int
) -> dict[Queue, tuple[float, float]]:
    """Return by queue what the edge lets expect and what the kernel counted, if every dropped frame had `frame` bytes."""
    at_hosts = {link.interface for link in fabric.links if link.src in fabric.host}
    counted: dict[Queue, float] = {}
    dropped: dict[Queue, float] = {}
    for queue in queues:
        assert queue.klass is not None
        key = queue.interface, queue.klass
        dropped[key] = 0.0 if queue.interface in at_hosts else float(queue.dropped_packets * frame)
        counted[key] = queue.sent_bytes + dropped[key]
    expected = _arrivals(fabric, pairs, dropped)
    carrying = expected.keys() | {key for key, sent in counted.items() if sent}
    return {key: (expected.get(key, 0.0), counted.get(key, 0.0)) for key in carrying}


def _nearest(low: tuple[float, float], high: tuple[float, float]) -> tuple[float, float]:
    """Return the pair between `low` and `high`, each expected and counted, whose two values differ least."""
    at_low, at_high = low[0] - low[1], high[0] - high[1]
    part = min(max(at_low / (at_low - at_high), 0.0), 1.0) if at_low != at_high else 0.0
    return low[0] + part * (high[0] - low[0]), low[1] + part * (high[1] - low[1])


def _by_port(arrived: Mapping[Queue, float]) -> dict[str, float]:
    ports: dict[str, float] = {}
    for (interface, _), sent in arrived.items():
        ports[interface] = ports.get(interface, 0.0) + sent
    return ports


def _arrivals(fabric: Fabric, pairs: Sequence[PairBytes], dropped: Mapping[Queue, float]) -> dict[Queue, float]:
    """Return the bytes that came to every queue on the pairs' paths, upstream drops subtracted."""
    surviving: dict[Queue, float] = {}
    arrived: dict[Queue, float] = {}
    for _ in range(1 + max((len(fabric.path(pair.src, pair.dst, pair.plane)) for pair in pairs), default=0)):
        arrived = {}
        for pair in pairs:
            left = float(pair.sent_bytes)
            for hop in fabric.path(pair.src, pair.dst, pair.plane):
                queue = fabric.links[hop].interface, pair.klass
                arrived[queue] = arrived.get(queue, 0.0) + left
                left *= surviving.get(queue, 1.0)
        surviving = {queue: 1 - min(dropped.get(queue, 0.0) / sent, 1.0) for queue, sent in arrived.items() if sent}
    return arrived


def class_share(hops: Iterable[HopShare]) -> float:
    """Return the smallest agreement between edge counts and a queue, over all that are not negligible."""
    return min((hop.share for hop in hops if not hop.negligible), default=1.0)


def dropped_share(fabric: Fabric, hops: Iterable[HopShare], pairs: Iterable[PairBytes]) -> float:
    """Return the share of the bytes sent that queues dropped, at most: every dropped frame may have been a full one."""
    _, frame = segment(fabric.mtu)
    return frame * sum(hop.dropped_packets for hop in hops) / max(sum(pair.sent_bytes for pair in pairs), 1)


def findings(fabric: Fabric, hops: Sequence[HopShare], pairs: Iterable[PairBytes]) -> tuple[str, ...]:
    """Return what of these accounts makes a run invalid."""
    found = []
    if apart := [hop for hop in hops if not hop.negligible and hop.share < CLASS_SHARE_LIMIT]:
        worst = min(apart, key=lambda hop: hop.share)
        found.append(
            f"the edge counted {worst.edge_bytes} bytes for class {worst.klass} at {worst.interface}, the queue "
            f"{worst.queue_bytes}: a class share of {worst.share:.1%} (limit {CLASS_SHARE_LIMIT:.0%})"
        )
    if (dropped := dropped_share(fabric, hops, pairs)) > DROP_LIMIT:
        found.append(f"queues dropped {dropped:.1%} of the bytes sent (limit {DROP_LIMIT:.0%}): see queue_packets and window")
    return tuple(found)


def excluded_share(fabric: Fabric, hops: Iterable[HopShare], queues: Iterable[QueueBytes]) -> float:
    """Return the share of all hosts' bytes that travelled in a window after a connect or a plan change.

    These are the bytes that left their host without a class, and those that left it in another class than the edge counted.
    """
    at_hosts = {link.interface for link in fabric.links if link.src in fabric.host}
    counted = [queue for queue in queues if queue.interface in at_hosts]
    unmarked = sum(queue.sent_bytes for queue in counted if queue.klass is None)
    misclassified = sum(max(hop.queue_bytes - hop.edge_bytes, 0) for hop in hops if hop.interface in at_hosts)
    return (unmarked + misclassified) / max(sum(queue.sent_bytes for queue in counted), 1)


def unregistered_share(pairs: Iterable[PairBytes], unmatched_bytes: Mapping[str, int]) -> dict[str, float]:
    """Return per job the share of its bytes that travelled before its connections were matched."""
    matched: Counter[str] = Counter()
    for pair in pairs:
        matched[pair.job] += pair.sent_bytes
    return {job: unmatched_bytes.get(job, 0) / max(sent + unmatched_bytes.get(job, 0), 1) for job, sent in matched.items()}
