"""Event-driven flow-level simulation of scenarios and traces, calling the same decisions as the live system."""

from beamer.sim.network import Assumptions, SimResult, simulate

__all__ = ["Assumptions", "SimResult", "simulate"]
