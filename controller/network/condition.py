"""In what the network differs from its file, as switches and hosts show it: kept for whoever asks, and logged as it changes."""

from collections.abc import Iterable

import structlog

from beamer.log_limit import LogLimit
from beamer.network.fabric import Fabric
from beamer.network.observed_fabric import Mismatch, cut_off
from controller.limited_log import LINES_AN_HOUR
from controller.openflow.reports import NetworkSeen

HOSTS_LOGGED = 5  # So many hosts are named in a line of the log; the API names all.

log = structlog.get_logger("beamer-controller")


class NetworkCondition:
    """Know what is wrong with a network. cut_off: the hosts that no path leads to from most others."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self.seen = NetworkSeen(unread=fabric.with_databases)
        self.cut_off: tuple[str, ...] = ()
        self._limit = LogLimit(LINES_AN_HOUR, 3600.0)

    @property
    def fits(self) -> bool:
        """Whether nothing is known to differ from the file, and all queues that the controller makes have been read back."""
        return not (self.seen.mismatches or self.seen.unread)

    def take_in(self, seen: NetworkSeen) -> bool:
        """Take in what is seen now; return whether other cables are dead than before."""
        before, self.seen = self.seen, seen
        known, now = set(before.mismatches), set(seen.mismatches)
        for one in self._logged(now - known):
            log.warning("the network is not as its file says", mismatch=one.text)
        wrong = {(one.switch, one.port) for one in now}
        for text in seen.remarks:
            if text not in before.remarks and self._limit.take(text):
                log.info("a remark on the network", remark=text)
        # Of a switch that is not connected any more nothing is known, but of its database; nor of the use of queues before
        # it has been seen.
        shown = (one for one in known if one.switch in seen.switches or one.kind == "no database")
        shown = (one for one in shown if one.kind != "not queued" or one.switch not in seen.unread)
        mended = (one for one in shown if (one.switch, one.port) not in wrong)
        for one in self._logged(mended):
            what = "a port is as the network's file says again" if one.port else "a switch is as the network's file says again"
            log.info(what, switch=one.switch, **({"port": one.port} if one.port else {}))
        if seen.dead == before.dead:
            return False
        self.cut_off = cut_off(self._fabric, seen.dead)
        if self.cut_off and self._limit.take(self.cut_off):
            log.error("no path leads to some hosts", hosts=list(self.cut_off[:HOSTS_LOGGED]), number=len(self.cut_off))
        return True

    def _logged(self, some: Iterable[Mismatch]) -> list[Mismatch]:
        """Return those of which a line is due: a cable may come and go many times."""
        ordered = sorted(some, key=lambda one: (one.switch, one.port, one.kind))
        return [one for one in ordered if self._limit.take((one.switch, one.port, one.kind))]
