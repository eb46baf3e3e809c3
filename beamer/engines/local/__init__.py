"""Real training processes here, in Mininet hosts or over ssh, each job under supervisors that outlive the engine."""

from beamer.engines.local.engine import LocalEngine
from beamer.engines.local.launchers import Launcher, MininetHost, NetworkNamespace, Ssh, Subprocess
from beamer.engines.local.spec import LaunchSpec, LocalCluster, LocalNode

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
