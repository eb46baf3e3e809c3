"""The controller's limits: how much it accepts, so that no request and no agent can keep it from answering all others.

Every limit may be set in a file; the defaults are for the largest site that decisions are measured for, 10 000 jobs at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from beamer.errors import InputError, nearest
from beamer.studies.registry import Retention
from beamer.units import whole
from beamer.yaml_files import read_mapping


@dataclass(frozen=True)
class Limits:
    """The most of everything that grows with what comes in: over HTTP, in the tracker, and in agents' reports."""

    body_bytes: int = 512 * 1024
    """Bytes of a request's body. 4 096 workers with names of hosts take 160 kB."""
    header_bytes: int = 16 * 1024
    """Bytes of a request's line and headers that wait for their rest. The client's take 200."""
    request_s: int = 10
    """Seconds from a request's first byte to its last, and for its answer to be taken off. Hosts nearby need milliseconds."""
    connections: int = 1024
    """Open connections, those of agents apart. Every trial that runs may hold one."""
    connections_per_address: int = 256
    """Open connections of one address. No host runs more trials at once."""
    requests: int = 512
    """Requests under way, each of which may hold a body in memory: twice what one address may have."""

    studies: int = 1000
    """Studies by name."""
    past_runs: int = 16
    """Past runs of a study that are kept; the oldest one is forgotten."""
    rungs: int = 1000
    """Rungs of a study."""
    stages: int = 4096
    """Stages of a study."""
    trials: int = 10_000
    """Trials of a study."""
    members: int = 4096
    """Processes that take part in a study. The largest searches are run by hundreds."""
    declared_trials: int = 65_536
    """Trials of all declared rungs of a study together."""
    targets: int = 4096
    """Targets of a trial: one a minute for three days."""
    attempts: int = 100
    """Attempts of a trial that are kept; the oldest but the first is forgotten."""
    jobs: int = 16_384
    """Trials that run at once."""
    workers: int = 4096
    """Workers of an attempt."""
    running_workers: int = 262_144
    """Workers of all attempts that run."""
    transfers: int = 16_384
    """Pairs of workers that send to each other in a synchronisation. Each costs about 10 microseconds once.

    All-to-all among 128 workers has 16 256.
    """

    message_bytes: int = 1024 * 1024
    """Bytes of an agent's message. 4 096 connections take 550 kB."""
    messages_per_s: int = 50
    """Messages of an agent in a second, who reports once a second or at changes. One of more than 20 kB counts as several."""
    entries_per_s: int = 2000
    """Connections, leases and counters of an agent's reports that are taken in. Of reports that wait, the latest counts."""
    connection_changes_per_s: int = 100
    """Connections of an agent that come or go, beyond two whole reports at once.

    Each is an entry of the journal and a rule on a switch. What goes again while it waits leaves no trace.
    """
    agent_connections: int = 4096
    """Connections in a report. A host of 8 GPUs has some hundred."""
    agent_leases: int = 1024
    """Leases in a report."""
    agent_ports: int = 1024
    """Ports in a report: those of the fabric's largest switch."""
    agent_classes: int = 64
    """Classes of a port in a report."""

    def __post_init__(self) -> None:
        """Raise `InputError` for a limit that is no count above 0."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"limits.{field.name}", value, "an integer above 0")

    @property
    def kept(self) -> Retention:
        """How much is kept of what is over."""
        return Retention(self.past_runs, self.attempts)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Limits":
        """Return the limits of a mapping, defaults for what is missing. Raises `InputError` for an unknown key."""
        known = [field.name for field in fields(cls)]
        for name, value in data.items():
            if name not in known:
                raise InputError(f"limits.{name}", value, nearest(str(name), known))
        return cls(**{name: whole(value) for name, value in data.items()})


def read_limits(path: Path) -> Limits:
    """Read limits from a JSON or YAML file. Raises `InputError`."""
    return Limits.from_dict(read_mapping(path, "--limits", "of limits by name"))
