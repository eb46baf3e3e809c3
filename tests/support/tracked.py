"""A study whose trials run on a small fabric, as events, for the tests of the tracker."""

from beamer.network.connection import Connection
from beamer.network.ledger import NetworkLedger
from beamer.studies.events import (
    AttemptStarted,
    Event,
    StudyRegistered,
    TargetSet,
    TrialRegistered,
)
from beamer.studies.model import (
    Profile,
    Rung,
    Worker,
    trial_key,
)
from beamer.studies.tracker import Tracker
from beamer.testing.fabrics import two_spines

FABRIC = two_spines(1)
HOSTS = [host.name for host in FABRIC.hosts]
AGENTS = [host.agent for host in FABRIC.hosts]
WORKERS = (Worker(0, HOSTS[0]), Worker(1, HOSTS[1]))
PROFILE = Profile(1000)
TRIAL = "vision/t"
SEEN = Connection(TRIAL, 0, "10.0.0.1", 4000, "10.0.0.2", 5000)
STUDY = StudyRegistered(1, "vision", "1", 2.0, (Rung("rung0", 1, 5), Rung("rung1", 1, 15)))
START = AttemptStarted(4, TRIAL, "first", WORKERS, PROFILE)


def network(tracker: Tracker) -> NetworkLedger:
    (ledger,) = tracker.ledgers
    assert isinstance(ledger, NetworkLedger)
    return ledger


def take(tracker: Tracker, *events: Event) -> list[bool]:
    changed = []
    for event in events:
        changed.append(tracker.check(event))
        if changed[-1]:
            tracker.apply(event)
    return changed


def another(name: str, target: int = 5) -> tuple[Event, ...]:
    """One more trial that runs in the first rung."""
    key = trial_key("vision", name)
    return (
        TrialRegistered(4, "vision", name),
        TargetSet(4, key, target, "rung0"),
        AttemptStarted(4, key, "first", WORKERS, PROFILE),
    )
