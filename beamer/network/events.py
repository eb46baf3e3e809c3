"""What happens at the network level."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from beamer.decision.differences import difference, patched
from beamer.network.connection import Connection
from beamer.network.plan import JobPlan
from beamer.studies.events import Decision, Event
from beamer.studies.wakes import Wakes


@dataclass(frozen=True)
class ConnectionsSeen(Event, wakes=Wakes.TARGETS):
    """All connections of registered workers that one host agent sees; replaces what it saw before."""

    agent: str
    connections: tuple[Connection, ...]


@dataclass(frozen=True)
class ConnectionsChanged(Event, wakes=Wakes.TARGETS):
    """What one host agent sees, as what differs from before, so that the journal grows by what changes."""

    agent: str
    come: tuple[Connection, ...] = ()
    gone: tuple[Connection, ...] = ()

    def applied_to(self, known: Iterable[Connection]) -> tuple[Connection, ...]:
        """Return all that it sees now. known: what it saw before."""
        return tuple({*known}.difference(self.gone).union(self.come))


def seen_connections(
    at_s: float, agent: str, known: Collection[Connection], seen: Collection[Connection]
) -> ConnectionsSeen | ConnectionsChanged:
    """Return the shorter event of the two by which an agent sees `seen` where it saw `known`."""
    before, after = {*known}, {*seen}
    changed = ConnectionsChanged(
        at_s, agent, tuple(c for c in seen if c not in before), tuple(c for c in known if c not in after)
    )
    if len(changed.come) + len(changed.gone) < len(seen):
        return changed
    return ConnectionsSeen(at_s, agent, tuple(seen))


@dataclass(frozen=True)
class Planned(Decision):
    """A network policy's decision. queues: managed classes per port. jobs: the plan's, by job."""

    queues: int
    jobs: dict[str, JobPlan]


@dataclass(frozen=True)
class PlanChanged(Decision):
    """A network policy's decision, as what differs from the one before, so that the journal grows by what changes.

    generation: the one after `before`, the decision that it changes. state: how what the policy remembers differs, as
    `beamer.decision.differences` writes it. jobs: those that are new, or treated otherwise. dropped: those that the plan has no
    more.
    """

    before: int
    queues: int
    jobs: dict[str, JobPlan]
    dropped: tuple[str, ...] = ()

    @staticmethod
    def state_difference(last: Planned, policy: str, state: Any) -> Any:
        """Return how a state of a policy differs from that of a decision."""
        return difference(last.state if last.policy == policy else None, state)

    @classmethod
    def of(cls, last: Planned, new: Planned, state: Any) -> "PlanChanged":
        """Return how a decision differs from the one before it. state: how what the policy remembers does."""
        jobs = {key: plan for key, plan in new.jobs.items() if last.jobs.get(key) != plan}
        dropped = tuple(key for key in last.jobs if key not in new.jobs)
        return cls(new.at_s, new.policy, new.generation, state, last.generation, new.queues, jobs, dropped)

    def applied_to(self, last: Planned) -> Planned:
        """Return the decision as a whole."""
        dropped = set(self.dropped)
        jobs = {key: plan for key, plan in last.jobs.items() if key not in dropped} | self.jobs
        state = patched(last.state if last.policy == self.policy else None, self.state)
        return Planned(self.at_s, self.policy, self.generation, state, self.queues, jobs)


@dataclass(frozen=True)
class Measured(Event, wakes=Wakes.PACE):
    """Counters and progress tell otherwise than before what a trial's attempt does in a step.

    sync_bytes: gradient bytes of a synchronisation; None for an attempt that sends nothing between hosts. iteration_s: seconds
    of its shortest iterations. compute_s: seconds of computing, at most. All None: bytes worth many declared synchronisations
    were counted, but no progress that they could be divided by was reported.
    """

    trial: str
    attempt: str
    sync_bytes: float | None
    iteration_s: float | None
    compute_s: float | None
