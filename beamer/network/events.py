"""What happens at the network level."""

from dataclasses import dataclass

from beamer.network.connection import Connection
from beamer.network.plan import JobPlan
from beamer.studies.events import Decision, Event


@dataclass(frozen=True)
class ConnectionsSeen(Event):
    """All connections of registered workers that one host agent sees; replaces what it saw before."""

    agent: str
    connections: tuple[Connection, ...]


@dataclass(frozen=True)
class Planned(Decision):
    """A network policy's decision. queues: managed classes per port. jobs: the plan's, by job."""

    queues: int
    jobs: dict[str, JobPlan]


@dataclass(frozen=True)
class Measured(Event):
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
