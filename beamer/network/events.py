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
