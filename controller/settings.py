"""What a controller is asked to do, whatever its journal holds."""

from dataclasses import dataclass
from typing import Any

from beamer.gpu.policy import GpuPolicy
from beamer.network.codepoints import LOCAL, Codepoints
from beamer.network.fabric import Fabric
from beamer.network.plan import QUEUES, check_queues
from beamer.network.plan_modes import PlanMode
from beamer.network.policies import NetworkPolicy
from controller.journal.compaction import EVENTS
from controller.limits import Limits
from controller.liveness.watch import WatchOptions


@dataclass(frozen=True)
class ControllerSettings:
    """What a controller decides on, by which policies, and within which bounds."""

    fabric: Fabric
    """The network."""
    policy: NetworkPolicy[Any]
    """The policy that decides the order of coflows."""
    queues: int = QUEUES
    """The number of classes per port."""
    mode: PlanMode | None = None
    """How the order becomes a plan; None: as of `decide`."""
    gpu_policy: GpuPolicy[Any] | None = None
    """The policy that decides which trials have which GPUs; None: engines do, or whoever runs trials."""
    seed: int = 0
    """The seed of policies that draw random numbers."""
    watch: WatchOptions = WatchOptions()  # noqa: RUF009  # It is frozen.
    """How long a process may be missing, and nothing be said of a study, before that counts."""
    limits: Limits = Limits()  # noqa: RUF009  # It is frozen.
    """How many studies, trials, connections and the like are accepted."""
    codepoints: Codepoints = LOCAL
    """The codepoints of classes."""
    snapshot_events: int = EVENTS
    """After so many events a snapshot takes their place in the journal; 0: never."""

    def __post_init__(self) -> None:
        """Raise `InputError` for queues that no port can have."""
        self.codepoints.check(check_queues(self.queues))
