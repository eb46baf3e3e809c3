"""What agents' counters and reported progress tell of a running attempt: bytes of a synchronisation, seconds of an iteration.

A *boundary* is a report of progress: at that moment the number of steps is exact, and what each rank has sent lies between the
reading of its counter before and the one after. Two boundaries make a *window* as soon as what is uncertain at both of them is
a small share of what was sent in between, so that a window is as long as the traffic needs it to be and no longer. The first
boundary is the first report of progress in the attempt: what a job sends to start up lies before it.

Assumptions. Progress is reported at the end of a step and arrives soon. A collective's sends are those of
`beamer.network.collectives`; of them the ones between hosts are counted, as counters do. Counters hold payload without
retransmissions; a counter that held these too would raise what is measured by their share of the traffic, and never lower it.
"""

from dataclasses import dataclass, field
from statistics import median

import numpy as np

from beamer.network.collectives import exchanges
from beamer.network.fabric import Fabric
from beamer.network.footprint import Footprints
from beamer.network.job import JobSpec

TOLERANCE = 0.2  # This share of a window's bytes may be uncertain: at one reading a second, windows of steady traffic last 5 s.
MIN_WINDOWS = 2  # A measurement takes so many windows: one alone may hold an evaluation, a checkpoint, a pause.
RECENT_WINDOWS = 5  # The measurement is the median of so many recent windows.
SILENT_RANK_S = 10.0  # A rank that is silent for so long, ten missed readings, is left out of the measurement.
MIN_PACE_S = 5.0  # A window of a job that sends nothing between hosts is at least so long, against the jitter of reports.
UNREPORTED_S = 60.0  # After so long without progress, bytes are compared with the declaration; steps last seconds.
# So many declared ones may go unreported: an honest trial of ten steps a second may report every quarter of an hour.
UNREPORTED_SYNCS = 10_000
# A synchronisation counts with at least so many bytes: heartbeats of a job that declares none are no lie.
UNREPORTED_SYNC_BYTES = 10_000
# Loads are worked out for so many bytes, as they are proportional; the number is large against rounding.
REFERENCE_BYTES = 1_000_000_000


@dataclass(frozen=True)
class TrafficPattern:
    """What an attempt's synchronisation does to the network per gradient byte.

    sent_bytes: by rank, to other hosts; where one process attaches for all ranks of a host, by the first there. counts_for: by
    rank, the one that what it is seen to send counts for. gamma_s: seconds that it lasts with the fabric to itself. overlap:
    share of the computing during which it may already run.
    """

    sent_bytes: dict[int, float]
    counts_for: dict[int, int]
    gamma_s: float
    overlap: float

    @classmethod
    def of(cls, spec: JobSpec, plane: int, fabric: Fabric, footprints: Footprints, by_host: bool = False) -> "TrafficPattern":
        """Return the pattern of a job on the paths of `plane`, whatever the bytes of its synchronisation are.

        by_host: whether one process attaches for all ranks of a host.
        """
        reference = JobSpec(spec.name, spec.workers, 0, REFERENCE_BYTES, spec.collective)
        host = np.unique([worker.host for worker in spec.workers], return_inverse=True)[1]
        sent = np.zeros(len(spec.workers))
        for phase in exchanges(reference):
            between = host[phase.src] != host[phase.dst]
            np.add.at(sent, phase.src[between], phase.size_bytes / REFERENCE_BYTES)
        first: dict[str, int] = {}
        counts_for: dict[int, int] = {}
        by_rank: dict[int, float] = {}
        for worker, size in zip(spec.workers, sent.tolist(), strict=True):
            rank = first.setdefault(worker.host, worker.rank) if by_host else worker.rank
            counts_for[worker.rank] = rank
            by_rank[rank] = by_rank.get(rank, 0.0) + size
        return cls(by_rank, counts_for, footprints.of(reference, plane).gamma_s / REFERENCE_BYTES, spec.overlap)

    @property
    def loads(self) -> bool:
        """Whether anything is sent between hosts."""
        return any(self.sent_bytes.values())

    def compute_s(self, iteration_s: float, sync_bytes: float) -> float:
        """Return the seconds of computing in an iteration whose synchronisation runs alone: at most so many if it does not.

        From iteration = max(compute, (1 - overlap) compute + gamma).
        """
        alone_s = max(iteration_s - self.gamma_s * sync_bytes, 0.0)
        return min(alone_s / (1 - self.overlap), iteration_s) if self.overlap < 1 else iteration_s


@dataclass(frozen=True)
class AttemptMeasurement:
    """What was measured of an attempt.

    sync_bytes: of a synchronisation; None for a job that sends nothing between hosts. iteration_s: the shortest iteration so
    far. compute_s: an upper bound, which is tight as soon as the network was once free for the job.
    """

    sync_bytes: float | None
    iteration_s: float
    compute_s: float


@dataclass
class _Reading:
    at_s: float
    sent_bytes: int


@dataclass
class _Boundary:
    """A report of progress with the readings of counters around it, by rank. cap_share: as in `AttemptMeasurer.progressed`."""

    at_s: float
    step: int
    before: dict[int, _Reading]
    after: dict[int, _Reading] = field(default_factory=dict)
    cap_share: float = 1.0

    @property
    def is_complete(self) -> bool:
        return len(self.after) == len(self.before)

    @property
    def sent_bytes(self) -> float:
        """Bytes sent until then, interpolated."""
        return sum(self._at(rank) for rank in self.before)

    @property
    def uncertain_bytes(self) -> int:
        return sum(self.after[rank].sent_bytes - reading.sent_bytes for rank, reading in self.before.items())

    def _at(self, rank: int) -> float:
        before, after = self.before[rank], self.after[rank]
        lasted_s = after.at_s - before.at_s
        share = (self.at_s - before.at_s) / lasted_s if lasted_s > 0 else 1.0
        return before.sent_bytes + share * (after.sent_bytes - before.sent_bytes)


class AttemptMeasurer:
    """Measures one attempt. Times are of one clock and do not fall."""

    def __init__(self, pattern: TrafficPattern) -> None:
        self.pattern = pattern
        self._seen: dict[int, dict[int, int]] = {}  # bytes that each rank has sent, by the rank that it counts for
        self._last: dict[int, _Reading] = {}
        self._start: _Boundary | None = None
        self._pending: _Boundary | None = None
        self._sync_bytes: list[float] = []
        self._iterations_s: list[float] = []
        self._shortest_s = float("inf")
        self._step = -1
        self._unreported_since_s: float | None = None
        self._unreported_bytes = 0

    @property
    def measurement(self) -> AttemptMeasurement | None:
        """What was measured so far; None before there are enough windows."""
        if len(self._iterations_s) < MIN_WINDOWS:
            return None
        sync_bytes = median(self._sync_bytes) if self._sync_bytes else None
        return AttemptMeasurement(
            sync_bytes, self._shortest_s, self.pattern.compute_s(self._shortest_s, sync_bytes or 0.0)
        )  # fmt: skip

    def read(self, at_s: float, rank: int, sent_bytes: int) -> None:
        """Take in what a rank has sent to other hosts since some moment; it falls where the counter began anew."""
        if rank not in self.pattern.counts_for:
            return
        seen = self._seen.setdefault(self.pattern.counts_for[rank], {})
        seen[rank] = sent_bytes
        rank, sent_bytes = self.pattern.counts_for[rank], sum(seen.values())
        last = self._last.get(rank)
        self._last[rank] = reading = _Reading(at_s, sent_bytes)
        if self._unreported_since_s is None:
            self._unreported_since_s = at_s
        if last is not None:
            self._unreported_bytes += sent_bytes - last.sent_bytes if sent_bytes >= last.sent_bytes else sent_bytes
        if last is not None and sent_bytes < last.sent_bytes:
            self._begin_anew()
        pending = self._pending
        if pending is None:
            return
        if rank in pending.before:
            pending.after.setdefault(rank, reading)
        if pending.is_complete:
            self._close(pending)
        elif at_s - pending.at_s > SILENT_RANK_S:
            self._begin_anew()

    def progressed(self, at_s: float, step: int, cap_share: float = 1.0) -> None:
        """Take in that `step` steps are complete. While the counters of one boundary are awaited there is no other.

        cap_share: what the job may send under the cap in force, as a share of what it sends at with the fabric to itself.
        """
        if step > self._step:
            self._step, self._unreported_since_s, self._unreported_bytes = step, at_s, 0
        if self._pending is not None:
            return
        if not self.pattern.loads:
            self._close(_Boundary(at_s, step, {}, cap_share=cap_share))
            return
        heard = {rank: last for rank, last in self._last.items() if at_s - last.at_s <= SILENT_RANK_S}
        if any(self.pattern.sent_bytes[rank] for rank in heard):
            self._pending = _Boundary(at_s, step, heard, cap_share=cap_share)

    def is_unreported(self, at_s: float, sync_bytes: int) -> bool:
        """Say whether so much was sent for so long without progress that synchronisations of `sync_bytes` are not believed."""
        if self._unreported_since_s is None or at_s - self._unreported_since_s < UNREPORTED_S:
            return False
        per_sync = max(sync_bytes, UNREPORTED_SYNC_BYTES) * sum(self.pattern.sent_bytes[rank] for rank in self._last)
        return 0 < UNREPORTED_SYNCS * per_sync < self._unreported_bytes

    def _begin_anew(self) -> None:
        self._start = self._pending = None

    def _close(self, end: _Boundary) -> None:
        """Make the window from the start to a complete boundary, if it is long enough; otherwise a later one will end it."""
        start, self._pending = self._start, None
        if start is None or start.before.keys() != end.before.keys():
            self._start = end
            return
        steps = end.step - start.step
        if steps <= 0:
            return
        sent = end.sent_bytes - start.sent_bytes
        iteration_s = (end.at_s - start.at_s) / steps
        if self.pattern.loads:
            if (start.uncertain_bytes + end.uncertain_bytes) / 2 > TOLERANCE * sent:
                return
            if sent > 0:  # A job that is not seen to send anything tells nothing of what it sends.
                per_byte = sum(self.pattern.sent_bytes[rank] for rank in end.before)
                sync_bytes = sent / steps / per_byte
                self._sync_bytes = [*self._sync_bytes, sync_bytes][-RECENT_WINDOWS:]
                # The time is that without the cap, as waiting for the cap would otherwise pass for computing.
                alone_s = self.pattern.gamma_s * sync_bytes
                held_s = alone_s / max(start.cap_share, end.cap_share) - alone_s
                iteration_s = max(iteration_s - held_s, alone_s)
        elif end.at_s - start.at_s < MIN_PACE_S:
            return
        self._start = end
        if sent > 0 or not self.pattern.loads:
            self._iterations_s = [*self._iterations_s, iteration_s][-RECENT_WINDOWS:]
            # The shortest of all medians counts, not of the recent ones: a job that is served late iterates slowly. It would so
            # look as if it computed long, go first for it, and look fast again.
            if len(self._iterations_s) >= MIN_WINDOWS:
                self._shortest_s = min(self._shortest_s, median(self._iterations_s))
