"""The controller's limits: how much it accepts, so that no request and no agent can keep it from answering all others.

Every limit may be set in a file; the defaults are for the largest site that decisions are measured for, 10 000 jobs at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from beamer.errors import InputError, nearest
from beamer.studies.known import Kept
from beamer.units import whole
from beamer.yaml_files import read_mapping


@dataclass(frozen=True)
class Limits:
    """The most of everything that grows with what comes in.

    Of HTTP. body_bytes: of a request; 4 096 workers with names of hosts take 160 kB. header_bytes: of a request's line and
    headers that wait for their rest; the client's take 200. request_s: from a request's first byte to its last, and for the
    answer to be taken off; hosts beside the controller need milliseconds. connections: that are open, those of agents apart;
    every trial that runs may hold one. connections_per_address: of them; no host runs more trials at once. requests: under way,
    each of which may hold a body in memory; twice what one address may have.

    Of what the tracker knows. studies: by name. past_runs: of a study that are kept; the oldest one is forgotten. rungs,
    stages, trials: of a study; a long search's. declared_trials: of all rungs of a study together. targets: of a trial; one a
    minute for three days. attempts: of a trial that are kept; the oldest but the first is forgotten. jobs: trials that run at
    once. workers: of an attempt; running_workers: of all that run. transfers: of an attempt's synchronisation, from worker to
    worker, there and back counted once: each costs about 10 microseconds once, all-to-all among 128 workers has 16 256.

    Of agents' reports. message_bytes: of a message; 4 096 connections take 550 kB. messages_per_s: of an agent, whose reports
    come once a second or with changes; one of more than 20 kB counts as several. entries_per_s: connections, leases and
    counters of its reports that are taken in; of reports that wait, the latest counts. connection_changes_per_s: of an agent,
    connections that come or go, each of which is an entry of the journal and a rule on a switch, beyond two reports' whole at
    once; what goes again while it waits leaves no trace. agent_connections, agent_leases: in a report; a host of 8 GPUs has
    some hundred. agent_ports: of the fabric's largest switch. agent_classes: of a port.
    """

    body_bytes: int = 512 * 1024
    header_bytes: int = 16 * 1024
    request_s: int = 10
    connections: int = 1024
    connections_per_address: int = 256
    requests: int = 512
    studies: int = 1000
    past_runs: int = 16
    rungs: int = 1000
    stages: int = 4096
    trials: int = 10_000
    declared_trials: int = 65_536
    targets: int = 4096
    attempts: int = 100
    jobs: int = 16_384
    workers: int = 4096
    running_workers: int = 262_144
    transfers: int = 16_384
    message_bytes: int = 1024 * 1024
    messages_per_s: int = 50
    entries_per_s: int = 2000
    connection_changes_per_s: int = 100
    agent_connections: int = 4096
    agent_leases: int = 1024
    agent_ports: int = 1024
    agent_classes: int = 64

    def __post_init__(self) -> None:
        """Raise `InputError` for a limit that is no count above 0."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"limits.{field.name}", value, "an integer above 0")

    @property
    def kept(self) -> Kept:
        """How much is kept of what is over."""
        return Kept(self.past_runs, self.attempts)

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
