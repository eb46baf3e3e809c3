"""The meters of the trials that run: what is to be recorded of what agents count and trials report."""

from collections.abc import Iterable

from beamer.network.events import Measured
from beamer.network.job import job_spec
from beamer.network.ledger import NetworkLedger
from beamer.network.protocol import WorkerBytes
from beamer.network.traffic_measurement import AttemptMeasurement, AttemptMeasurer, TrafficPattern
from beamer.studies.model import TrialStatus
from beamer.studies.records import AttemptRecord, TrialRecord
from beamer.studies.tracker import Tracker


class TrialMeasurements:
    """A meter for the present attempt of every trial that runs. What they hold is not journaled: only what they find is."""

    def __init__(self, ledger: NetworkLedger, tracker: Tracker) -> None:
        self._ledger = ledger
        self._tracker = tracker
        self._meters: dict[str, tuple[int, AttemptMeasurer]] = {}

    def measurement(self, trial: str) -> AttemptMeasurement | None:
        """Return what has been measured of a trial's present attempt until now; None where nothing has, or it does not run."""
        meter = self._meter(trial, create=False)
        return meter.measurement if meter else None

    def counted(self, agent: str, workers: Iterable[WorkerBytes], at_s: float) -> tuple[Measured, ...]:
        """Take in an agent's counters of its own hosts' workers; return what is to be recorded because of them."""
        seen: dict[str, None] = {}
        local: dict[str, frozenset[int]] = {}
        for worker in workers:
            if worker.job not in local:
                local[worker.job] = self._ranks(worker.job, agent)
            # A rank that has moved may still be in a report of its former host.
            if worker.rank not in local[worker.job]:
                continue
            if meter := self._meter(worker.job):
                meter.read(at_s, worker.rank, worker.sent_bytes)
                seen[worker.job] = None
        return tuple(event for trial in seen if (event := self._due(trial, at_s)))

    def progressed(self, trial: str, at_s: float) -> tuple[Measured, ...]:
        """Take in that a trial has reported the progress that the tracker knows; return what is to be recorded for it."""
        meter = self._meter(trial)
        if meter is None:
            return ()
        record = self._tracker.trial(trial)
        meter.progressed(at_s, record.done, self._ledger.cap_share(record))
        event = self._due(trial, at_s)
        return (event,) if event else ()

    def forget(self, trial: str) -> None:
        """Drop the meter of a trial that does not run any more."""
        self._meters.pop(trial, None)

    def prune(self) -> None:
        """Drop the meters of all trials that do not run."""
        self._meters = {trial: kept for trial, kept in self._meters.items() if self._running(trial) is not None}

    def _due(self, trial: str, at_s: float) -> Measured | None:
        attempt, meter = self._running(trial), self._meter(trial, create=False)
        if attempt is None or meter is None:
            return None
        if found := meter.measurement:
            event = Measured(at_s, trial, attempt.name, found.sync_bytes, found.iteration_s, found.compute_s)
        elif self._is_unreported(trial, attempt, meter, at_s):
            event = Measured(at_s, trial, attempt.name, None, None, None)
        else:
            return None
        return event if self._ledger.profiles.is_new(event) else None

    def _is_unreported(self, trial: str, attempt: AttemptRecord, meter: AttemptMeasurer, at_s: float) -> bool:
        """Say whether an attempt declares bytes that are not to be believed, of a trial whose bytes were never measured."""
        declared, known = attempt.profile.sync_bytes, self._ledger.profiles.of_trial(trial)
        was_measured = known is not None and known.sync_bytes is not None
        return declared is not None and not was_measured and meter.is_unreported(at_s, declared)

    def _ranks(self, trial: str, agent: str) -> frozenset[int]:
        """Return the ranks of a trial that run on an agent's hosts."""
        attempt, hosts = self._running(trial), self._ledger.fabric.host
        workers = attempt.workers if attempt else ()
        return frozenset(w.rank for w in workers if w.host in hosts and hosts[w.host].agent == agent)

    def _running(self, trial: str) -> AttemptRecord | None:
        record: TrialRecord | None = self._tracker.trials.get(trial)
        return record.attempt if record is not None and record.status is TrialStatus.RUNNING else None

    def _meter(self, trial: str, create: bool = True) -> AttemptMeasurer | None:
        attempt = self._running(trial)
        if attempt is None:
            return None
        known = self._meters.get(trial)
        if known is not None and known[0] == attempt.seq:
            return known[1]
        fabric = self._ledger.fabric
        # An attempt that was journaled on another fabric runs where no agent of this one counts.
        if not create or any(worker.host not in fabric.host for worker in attempt.workers):
            return None
        spec = job_spec(trial, attempt.workers, attempt.profile)
        plane = fabric.plane_of(attempt.seq)
        meter = AttemptMeasurer(TrafficPattern.of(spec, plane, fabric, self._ledger.footprints, attempt.by_host))
        self._meters[trial] = attempt.seq, meter
        return meter
