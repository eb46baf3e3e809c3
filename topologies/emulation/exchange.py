"""What the supervisor gives to the process inside a run's namespace, and the measurements that it returns."""

from dataclasses import dataclass
from typing import Any

from beamer.network.plan_modes import DEFAULT_MODE
from topologies.emulation.accounting import PairBytes, QueueBytes
from topologies.emulation.sampling import Health


@dataclass(frozen=True)
class RunConfig:
    """How a run is to be made.

    directory: the run's; scenario: path of its file. calibrate: whether to check fairness first. expiry_s: how long agents
    keep their queues without a controller. mode: how the order becomes a plan. queues: per port, if not the scenario's.
    controllers: on one journal, the first of which leads at first. journal: URL; None: SQLite in the run's directory.
    gpu_policy: decides on GPUs, which the scenario is to be one of searches for; None: the scenario says what runs where.
    joint: what each level is told of the other, as the controller's option of that name.
    """

    directory: str
    scenario: str
    policy: str
    seed: int
    calibrate: bool = False
    expiry_s: float = 120.0
    mode: str = DEFAULT_MODE
    queues: int | None = None
    controllers: int = 1
    journal: str | None = None
    gpu_policy: str | None = None
    joint: str = ""


@dataclass(frozen=True)
class RunMeasurements:
    """Everything read at the end of a run; times are Unix times, `started_s` that of the scenario's start.

    host_queues: empty under a mode that caps senders, as the counters of capped classes are gone with these.
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
