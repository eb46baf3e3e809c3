"""What the supervisor gives to the process inside a run's namespace, and the measurements that it returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beamer.network.plan_modes import DEFAULT_MODE
from topologies.emulation.accounting import PairBytes, QueueBytes
from topologies.emulation.sampling import Health


@dataclass(frozen=True)
class RunConfig:
    """How a run is to be made."""

    scenario: Path
    """The scenario's file."""
    policy: str
    """The name of the network policy."""
    seed: int = 0
    """The seed of the policies' draws."""
    calibrate: bool = False
    """Whether to check first that equal jobs get equal shares."""
    expiry_s: float = 120.0
    """Seconds for which agents keep their queues without a controller."""
    mode: str = DEFAULT_MODE
    """How the order becomes a plan, by name."""
    queues: int | None = None
    """Classes per port; None: the scenario's."""
    controllers: int = 1
    """Controllers on one journal, of which the first leads at first. Several need a journal in PostgreSQL."""
    journal: str | None = None
    """URL of the journal; None: SQLite in the run's directory."""
    gpu_policy: str | None = None
    """The name of the GPU policy, for a scenario whose searches ask for GPUs; None: the scenario says what runs where."""
    joint: str = ""
    """What each level is told of the other, as the controller's option of that name."""


@dataclass(frozen=True)
class RunMeasurements:
    """Everything read at the end of a run; times are Unix times, `started_s` that of the scenario's start.

    host_queues: empty under a mode that caps senders, as the counters of capped classes are gone with these. events: how many
    called for a decision while the scenario ran. phases_ms: quantiles of all events' times by phase, as /v1/latencies
    has them.
    """

    started_s: float
    studies: list[dict[str, Any]]
    latencies_ms: list[float]
    pairs: list[PairBytes]
    unmatched_bytes: dict[str, int]
    host_queues: list[QueueBytes]
    switch_queues: list[QueueBytes]
    health: Health
    duration_s: float
    jain: float | None
    events: int = 0
    phases_ms: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
