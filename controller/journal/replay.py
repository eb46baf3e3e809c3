"""What a restarted controller knows: its journal, taken in on a fabric that may have changed since it was written."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from beamer.clock import SteadyClock
from beamer.errors import BeamerError, InputError, NewerError
from beamer.gpu.ledger import GpuLedger
from beamer.joint.convergence import converged_step
from beamer.network.fabric import Fabric
from beamer.network.job import job_spec
from beamer.network.ledger import NetworkLedger, check_on_fabric
from beamer.studies.events import AttemptEnded
from beamer.studies.journal.chain import BEGINNING, ChainLink
from beamer.studies.journal.store import Journal, JournalSnapshot
from beamer.studies.model import EndReason, TrialStatus
from beamer.studies.registry import Retention
from beamer.studies.tracker import STUDIES, TIME, Tracker
from beamer.studies.versions import Versioned, present_parts
from controller.liveness.leases import LEASES, Leases

PARTS: Sequence[Versioned] = (STUDIES, TIME, NetworkLedger.part(), GpuLedger.part(), LEASES)
"""What a controller's snapshot is made of."""

log = structlog.get_logger("beamer-controller")


@dataclass
class Growth:
    """How long a journal has grown. events, characters: since its snapshot. snapshot: characters of that, 0 for none."""

    events: int = 0
    characters: int = 0
    snapshot: int = 0


@dataclass
class Recovered:
    """What a journal led to. link: of its last event. growth: how much of it had to be read."""

    network: NetworkLedger
    gpus: GpuLedger
    tracker: Tracker
    leases: Leases
    link: ChainLink
    growth: Growth

    def follow(self, journal: Journal) -> None:
        """Take in what was written since.

        Raises `InputError` for a journal that was not written so, `NewerError` for one that a newer Beamer wrote.
        """
        before = journal.read_characters
        try:
            for link, event in journal.entries(self.link):
                for happened in self.tracker.apply(event):
                    self.leases.take_in(happened, self.tracker)
                self.link = link
                self.growth.events += 1
            self.growth.characters += journal.read_characters - before
        except BeamerError:
            raise
        except Exception as error:  # Any error has to be named, be it of a defect or an edit by hand.
            what = f"nothing follows from event {self.link.number + 1} ({type(error).__name__}: {error})"
            raise journal.damage(what) from error


def recover(journal: Journal, fabric: Fabric, grace_s: float, kept: Retention) -> Recovered:
    """Return what a journal leads to. grace_s: as of `Leases`. kept: as of `Tracker`.

    Raises `InputError` for a journal that was not written so, `NewerError` for one that a newer Beamer wrote.
    """
    network = NetworkLedger(fabric, converged_step)
    gpus = GpuLedger()
    tracker, leases = Tracker(network, gpus, kept=kept), Leases(fabric, grace_s)
    recovered = Recovered(network, gpus, tracker, leases, BEGINNING, Growth())
    last = journal.snapshot()
    if last is not None:
        state = parts_of(last, journal)
        try:
            tracker.restore(state)
            leases.restore(state[LEASES.stored_name])
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise journal.damage(f"nothing follows from the snapshot at event {last.link.number} ({error})") from error
        recovered.link, recovered.growth.snapshot = last.link, len(last.content)
    recovered.follow(journal)
    return recovered


def parts_of(snapshot: JournalSnapshot, journal: Journal) -> dict[str, str]:
    """Return the parts of a journal's snapshot in their present versions. Raises `InputError` and `NewerError` as `recover`."""
    try:
        return present_parts(json.loads(snapshot.content), PARTS)
    except NewerError as error:
        raise journal.newer(f"the snapshot at event {snapshot.link.number} holds", error) from error
    except (ValueError, AttributeError) as error:
        raise journal.damage(f"nothing follows from the snapshot at event {snapshot.link.number} ({error})") from error


def snapshot(journal: Journal, fabric: Fabric, kept: Retention) -> JournalSnapshot:
    """Return what the events that are in a journal lead to, to take their place."""
    recovered = recover(journal, fabric, 1.0, kept)
    state = {**recovered.tracker.state(), LEASES.stored_name: recovered.leases.state()}
    return JournalSnapshot(recovered.link, json.dumps(state))


def resume(journal: Journal, recovered: Recovered, fabric: Fabric, clock: SteadyClock) -> None:
    """Go on where a journal ends: no earlier, and without the attempts that cannot go on as the fabric is now.

    recovered: what the journal led to, to which the ends of these are added. Raises as `Journal.append`.
    """
    clock.not_before(recovered.tracker.now_s)
    for end in _impossible(recovered.tracker, fabric, clock()):
        journal.append(end)
        recovered.tracker.apply(end)


def _impossible(tracker: Tracker, fabric: Fabric, now: float) -> list[AttemptEnded]:
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
