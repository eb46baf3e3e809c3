"""Whether a controller that was killed and started again plans as it would have gone on, after each kill, under load.

The journal, as the kill has left it, says what the controller knew and had decided. What a policy decides on that, at the very
time of the first decision of the next life, is what that one has to be: what is under load in between changes nothing of it, as
a controller decides before it listens.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from beamer.decision.core import DecisionCore, seeded
from beamer.network.decide import check_plan, decide
from beamer.network.events import PlanChanged, Planned
from beamer.network.ledger import NetworkLedger
from beamer.network.plan import QUEUES, Plan
from beamer.network.policies import network_policy
from beamer.network.snapshot import Snapshot
from beamer.studies.events import Event
from beamer.studies.journal.location import Location
from beamer.studies.journal.store import Journal
from beamer.studies.tracker import Tracker
from controller.journal.replay import Recovered, recover
from controller.limits import Limits
from eval.faults.site import FABRIC

SEED = 0  # This is the default of `beamer-controller`.
TIMELESS = frozenset({"fifo", "fair"})
"""The policies whose order does not depend on the time that has passed."""


class PlanWitness:
    """Follows a journal from kill to kill. compared: decisions after one; differing: of these, not what they should be."""

    def __init__(self, journal: Location, policy: str) -> None:
        self.compared = self.differing = 0
        self._policy = network_policy(policy)
        self._journal = Journal(journal, writes=False)
        self._known: Recovered | None = None  # The state that the journal led to, up to the last kill.

    def close(self) -> None:
        """Let go of the journal."""
        self._journal.close()

    def look(self, until_s: float) -> None:
        """Compare the first event since the last kill with what it should be, and take in all of them until a time."""
        if self._known is None:
            self._known = recover(self._journal, FABRIC, 1.0, Limits().kept)
            return
        entries = ((link, event) for link, event in self._journal.entries(self._known.link) if event.at_s <= until_s)
        for number, (link, event) in enumerate(entries):
            if number == 0:
                self._compare(self._known.network, self._known.tracker, event)
            self._known.tracker.apply(event)
            self._known.leases.take_in(event, self._known.tracker)
            self._known.link = link

    def _compare(self, network: NetworkLedger, tracker: Tracker, first: Event) -> None:
        before = network.decision
        if before is None:
            return
        if isinstance(first, PlanChanged):
            decided = first.applied_to(before)
        elif isinstance(first, Planned):
            decided = first
        elif self._policy.name in TIMELESS:
            decided = before  # Nothing was decided that differs.
        else:
            return  # The time of the decision is not known.
        core: DecisionCore[Any, Snapshot, Plan] = DecisionCore(
            self._policy, decide(self._policy, QUEUES), check_plan, before, seeded(SEED), live=False
        )
        in_force = Plan(before.queues, before.jobs)
        expected = core.propose(lambda: network.snapshot(tracker), in_force, first.at_s, before.generation + 1).content
        self.compared += 1
        self.differing += dict(decided.jobs) != dict(expected.jobs)


@contextmanager
def witnessing(journal: Location, policy: str) -> Iterator[PlanWitness]:
    """Follow a journal, which is there, until the context ends."""
    witness = PlanWitness(journal, policy)
    try:
        witness.look(0.0)
        yield witness
    finally:
        witness.close()
