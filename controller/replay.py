"""What a restarted controller knows: its journal, taken in on a fabric that may have changed since it was written."""

import structlog

from beamer.errors import InputError
from beamer.network.fabric import Fabric
from beamer.network.job import job_spec
from beamer.network.ledger import check_on_fabric
from beamer.studies.events import AttemptEnded
from beamer.studies.journal.store import Journal
from beamer.studies.model import EndReason, TrialStatus
from beamer.studies.tracker import Tracker
from controller.leases import Leases

log = structlog.get_logger("beamer-controller")


def replay(journal: Journal, tracker: Tracker, leases: Leases) -> None:
    """Let a new tracker and new leases take in everything that the journal holds."""
    for event in journal.replay():
        tracker.apply(event)
        leases.take_in(event, tracker)


def impossible(tracker: Tracker, fabric: Fabric, now: float) -> list[AttemptEnded]:
    """Return the ends of attempts that cannot go on as the fabric is now, each of which is logged."""
    ends: list[AttemptEnded] = []
    for trial in tracker.trials.values():
        attempt = trial.attempt
        if attempt is None or trial.status not in (TrialStatus.RUNNING, TrialStatus.SILENT):
            continue
        try:
            check_on_fabric(job_spec(trial.name, attempt.workers, attempt.profile), fabric)
        except InputError as error:
            log.warning("not on this fabric, the attempt ends", trial=trial.key, attempt=attempt.name, reason=str(error))
            ends.append(AttemptEnded(now, trial.key, attempt.name, EndReason.LOST))
    return ends
