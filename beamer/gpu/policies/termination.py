"""Termination-based elasticity: the baseline of the elastic, non-intrusive scheduler."""

from dataclasses import dataclass
from typing import ClassVar

from beamer.gpu.policies.elastic import Elastic


@dataclass(frozen=True)
class Termination(Elastic):
    """Do as `elastic` where every change of a job's GPUs ends its container: the same rule under a larger restart cost.

    The baseline that Wang, Gonzalez, Zhou, Williams, Friedman, Havemann and Woo 2020 compare with; which rule it follows is our
    reconstruction. What a restart takes is the engine's or the simulation's to say, so that equal costs give equal schedules.
    """

    name: ClassVar[str] = "termination"
