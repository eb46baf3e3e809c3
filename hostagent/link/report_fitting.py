"""Reports as the controller takes them: what is beyond its limits is left out, logged once, and its workers are remembered."""

import logging
from collections.abc import Iterator

from beamer.network.message_limits import fitted
from beamer.network.protocol import Message, ReportLimits, WorkerId

log = logging.getLogger("beamer.hostagent")


class ReportFitting:
    """Cuts reports to the limits of one controller after the other."""

    def __init__(self) -> None:
        self._workers: dict[type[Message], dict[WorkerId, str]] = {}
        self._logged: dict[type[Message], frozenset[str]] = {}  # Parts whose entries are left out, by kind of report.

    def begin(self) -> None:
        """Take in that another controller is connected, whose limits may be others."""
        self._workers = {}

    @property
    def workers(self) -> Iterator[tuple[WorkerId, str]]:
        """The workers of whom something is left out of the latest reports, and why."""
        for found in self._workers.values():
            yield from found.items()

    def fit(self, report: Message, limits: ReportLimits) -> Message:
        """Return as much of a report as the controller takes."""
        kind, found = type(report), fitted(report, limits)
        self._workers[kind] = dict(found.workers)
        parts, before = frozenset(found.left_out), self._logged.get(kind, frozenset())
        self._logged[kind] = parts
        if parts - before:
            counts = ", ".join(f"{count} {part}" for part, count in found.left_out.items())
            log.warning("the controller takes less than there is to report; left out of %s: %s", kind.__name__, counts)
        elif before and not parts:
            log.info("the controller takes all that there is to report in %s again", kind.__name__)
        return found.report
