"""Generated workloads: searches on a cluster, drawn from a seed and written as scenario files."""

from beamer.workloads.generate import Workload, generate, write
from beamer.workloads.models import MODELS, Model
from beamer.workloads.placement import PLACEMENTS
from beamer.workloads.searches import (
    SEARCHES,
    Hyperband,
    PopulationBased,
    RandomSearch,
    SearchAlgorithm,
    SuccessiveHalving,
    search,
)

__all__ = [
    "MODELS",
    "PLACEMENTS",
    "SEARCHES",
    "Hyperband",
    "Model",
    "PopulationBased",
    "RandomSearch",
    "SearchAlgorithm",
    "SuccessiveHalving",
    "Workload",
    "generate",
    "search",
    "write",
]
