"""Event-driven flow-level simulation of the same scenarios, calling the same decisions."""

from beamer.sim.simulation import Assumptions, SimResult, simulate

__all__ = ["Assumptions", "SimResult", "simulate"]
