"""What the rules of host pairs have counted, added up: of those in force, and of those that are gone."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from controller.event_loop.time_slices import CHEAP, Work, batched
from controller.openflow.rules import HostPair, Rule

MAX_FINAL_COUNTS = 3 << 16  # Final counts of so many pairs and classes are kept per switch: some 60 MB; 1000 jobs of 60 pairs.


@dataclass
class FlowCounts:
    """Bytes and packets by host pair, class and whether the host had marked them with it."""

    by_pair: dict[tuple[HostPair, int, bool], tuple[int, int]] = field(default_factory=dict)

    def add(self, rule: Rule, sent_bytes: int, sent_packets: int) -> None:
        """Add what `rule`, one of a host pair's, has counted; new pairs count no more once there are `MAX_FINAL_COUNTS`."""
        assert rule.pair is not None
        key = rule.pair, rule.klass, not rule.climbs
        if key not in self.by_pair and len(self.by_pair) >= MAX_FINAL_COUNTS:
            return
        before_bytes, before_packets = self.by_pair.get(key, (0, 0))
        self.by_pair[key] = before_bytes + sent_bytes, before_packets + sent_packets

    def copy(self) -> "FlowCounts":
        """Return the same, which later counts do not change."""
        return FlowCounts(dict(self.by_pair))


def added(counts: FlowCounts, read: Iterable[tuple[Rule, int, int]]) -> Work[None]:
    """Add what was read of rules, each with its bytes and packets, to the counts."""
    for some in batched(read, CHEAP):
        for rule, sent_bytes, sent_packets in some:
            if rule.counts:
                counts.add(rule, sent_bytes, sent_packets)
        yield CHEAP // 2
