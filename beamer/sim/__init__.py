"""Event-driven flow-level simulation of scenarios and traces, calling the same decisions as the live system."""

from beamer.sim.network import SimResult, simulate
from beamer.sim.network_level import Assumptions

__all__ = ["Assumptions", "SimResult", "simulate"]
