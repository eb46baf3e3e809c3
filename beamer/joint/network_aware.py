"""A GPU policy that knows the network: it decides as another one, with what the network level knows."""

from typing import Any

from beamer.gpu.policy import GpuPolicy
from beamer.network.fabric import Fabric
from beamer.network.footprint import Footprints


class NetworkAware(GpuPolicy[Any]):
    """Stand for another policy; subclasses say what that is given beyond its view, or what becomes of what it decides."""

    def __init__(self, policy: GpuPolicy[Any], fabric: Fabric) -> None:
        self.name, self.fair, self.resizes = policy.name, policy.fair, policy.resizes  # type: ignore[misc]
        self.State = policy.State
        self.policy = policy
        self.footprints = Footprints(fabric)

    def initial(self) -> Any:
        """Return what the other policy remembers."""
        return self.policy.initial()
