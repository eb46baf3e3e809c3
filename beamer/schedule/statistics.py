"""What was done to a search's configurations, counted from its events alone: a resumed search has the same counts."""

from dataclasses import dataclass
from math import isfinite

from beamer.gpu.devices import Devices
from beamer.gpu.events import Allocated, GpusRequested, RunFailed, RunFinished, TrialReported
from beamer.studies.events import Event, TrialEnded


@dataclass
class TrialCounts:
    """Of a trial: how often its GPUs were taken, how often it was started from its checkpoint, as decided, how often it failed.

    What follows from coming to a target and being given a farther one, or from a failure, is left out of the first two.
    """

    suspensions: int = 0
    restarts: int = 0
    failures: int = 0


class SearchStatistics:
    """Count what is done to trials; only `apply` changes it.

    target_loss: of the search. reached: of the trials that have come to it, the report that did. devices: the GPUs that trials
    have. reports: of all trials. unread: trials of which a run has come to its end before any trial had reported anything.
    """

    def __init__(self, target_loss: float | None = None) -> None:
        self.target_loss = target_loss
        self.reached: dict[str, TrialReported] = {}
        self.counts: dict[str, TrialCounts] = {}
        self.ends: dict[str, TrialEnded] = {}
        self.devices: dict[str, Devices] = {}
        self.decisions = 0
        self.reports = 0
        self.unread: set[str] = set()
        self._last: dict[str, Devices] = {}
        self._gone: set[str] = set()

    def apply(self, event: Event) -> None:
        """Count an event that the tracker has applied."""
        match event:
            case RunFinished(trial=key) if not self.reports:
                self.unread.add(key)
            case TrialReported(report=report) if report:
                self.reports += 1
        match event:
            case GpusRequested(trial=key):
                self.counts[key] = TrialCounts()
            case RunFinished(trial=key):
                self._leave(key)
            case RunFailed(trial=key):
                self._leave(key)
                self.counts[key].failures += 1
            case TrialEnded(trial=key):
                self.ends[key] = event
                self._leave(key)
            case TrialReported(trial=key, report=report) if report and self.target_loss is not None:
                if isfinite(report.loss) and report.loss <= self.target_loss:
                    self.reached.setdefault(key, event)
            case Allocated():
                self.decisions += 1
                self._allocate(event)

    def _leave(self, key: str) -> None:
        self.devices.pop(key, None)
        self._last.pop(key, None)
        self._gone.discard(key)

    def _allocate(self, event: Allocated) -> None:
        """Compare what trials have with what they had; what takes everything from all of them has parked them."""
        now = event.devices
        for key in self.devices.keys() - now.keys():
            self.counts[key].suspensions += 1
        for key, devices in now.items():
            if key in self._last and (self._last[key] != devices or key in self._gone):
                self.counts[key].restarts += 1
            self._gone.discard(key)
        if not now:
            self._gone |= self._last.keys()
        self.devices = dict(now)
        self._last |= now
