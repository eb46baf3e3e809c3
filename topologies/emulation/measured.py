"""What a run's measurements say of the run itself: its packets' classes, its drops, how soon plans were installed."""

from functools import cached_property

from beamer.measures import quantile
from beamer.network.fabric import Fabric
from topologies.emulation.accounting import HopShare, class_share, dropped_share, findings, hop_shares
from topologies.emulation.exchange import RunMeasurements
from topologies.emulation.sampling import JUDGED_PARTS


class MeasuredRun:
    """The measurements of a run on a fabric, whatever ran."""

    def __init__(self, fabric: Fabric, measured: RunMeasurements) -> None:
        self.fabric = fabric
        self.measured = measured

    @cached_property
    def hops(self) -> tuple[HopShare, ...]:
        """The account of every queue, host interfaces included where they have been read."""
        read = [*self.measured.switch_queues, *self.measured.host_queues]
        at_hosts = {link.interface for link in self.fabric.links if link.src in self.fabric.host}
        unread = set() if self.measured.host_queues else at_hosts
        return tuple(hop for hop in hop_shares(self.fabric, self.measured.pairs, read) if hop.interface not in unread)

    @property
    def class_share_min(self) -> float:
        """The smallest agreement between edge counts and a queue, over all queues on the way that are not negligible."""
        return class_share(self.hops)

    @property
    def dropped_share(self) -> float:
        """The share of the bytes sent that queues dropped."""
        return dropped_share(self.fabric, self.hops, self.measured.pairs)

    @property
    def findings(self) -> tuple[str, ...]:
        """What makes the run invalid."""
        return (*self.measured.health.findings(), *findings(self.fabric, self.hops, self.measured.pairs))

    def plan_ms(self, share: float) -> float | None:
        """Return a quantile of the milliseconds from a stage event to its plan being installed everywhere, None if none was."""
        return quantile(self.measured.latencies_ms, share)

    @property
    def plan_text(self) -> str:
        """The median and the 99th percentile of these milliseconds."""
        return " / ".join("none" if value is None else f"{value:.0f}" for value in map(self.plan_ms, (0.5, 0.99)))

    @property
    def processor_ms(self) -> dict[str, dict[str, float]]:
        """Milliseconds per event for which each part ran and waited for a processor; empty if not known."""
        times, events = self.measured.health.processor or {}, self.measured.events
        if not events:
            return {}
        return {
            part: {"running": time.running_ns / 1e6 / events, "waiting": time.waiting_ns / 1e6 / events}
            for part, time in times.items()
        }

    @property
    def waiting_text(self) -> str:
        """The shares of their time for which the parts that decide on validity waited for a processor."""
        shares = self.measured.health.waiting_shares
        return "unknown" if shares is None else " / ".join(f"{shares.get(part, 0.0):.0%}" for part in JUDGED_PARTS)
