"""Real training processes here, in Mininet hosts or over ssh, each job under supervisors that outlive the engine."""

from typing import TYPE_CHECKING, Any

from beamer.engines.local.launchers import Launcher, MininetHost, NetworkNamespace, Ssh, Subprocess
from beamer.engines.local.spec import LaunchSpec, LocalCluster, LocalNode

if TYPE_CHECKING:
    from beamer.engines.local.engine import LocalEngine

__all__ = [
    "LaunchSpec",
    "Launcher",
    "LocalCluster",
    "LocalEngine",
    "LocalNode",
    "MininetHost",
    "NetworkNamespace",
    "Ssh",
    "Subprocess",
]


def __getattr__(name: str) -> Any:
    """Import the engine when it is asked for: supervisors import this package, too, and every job waits for them."""
    if name != "LocalEngine":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from beamer.engines.local.engine import LocalEngine

    return LocalEngine
