"""Coflow traces in the two formats that the literature exchanges, as arrays of flows on a big switch of numbered ports."""

from beamer.sim.traces.model import Coflow, Trace
from beamer.sim.traces.reading import FORMATS, read

__all__ = ["FORMATS", "Coflow", "Trace", "read"]
