"""What the study of searches without barriers consists of, as in `eval/configs/asynchronous.yaml`, and one run of it.

Every policy is given the same arrivals, slots and losses for a seed, so that comparisons are paired. What a search decides
depends on when its trials arrive, so that which trials it promotes differs between policies, as it would in a live system.
"""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import Field

from beamer.network.allocation import Classes
from beamer.workloads.generate import Workload, generate
from beamer.workloads.scenario import parse
from beamer.workloads.searches import SuccessiveHalving
from eval.asynchronous.searches import KINDS
from eval.asynchronous.simulation import AsynchronousScenario, Draws, asynchronous_searches, simulate
from eval.config_section import ConfigSection
from eval.network.cells import LIVE

RATE = "10gbit"


class AsynchronousCell(ConfigSection):
    """A cluster and the searches on it.

    kind, trials, settings: of each search without barriers; so many `searches`, each with so many `slots`. studies: searches by
    synchronous halving beside them. leaves: of a leaf-spine network with one spine and uplinks of a host's rate; 1: one switch.
    """

    kind: Literal["asha", "median-stopping", "random"]
    trials: int
    settings: dict[str, int]
    searches: int
    slots: int
    studies: int
    hosts: int
    leaves: int
    workers: int
    compute_ratio: float
    models: tuple[str, ...]


class AsynchronousConfig(ConfigSection):
    """What the study consists of, as in the config file. queues: classes of the network."""

    seeds: int = Field(ge=2)
    first_seed: int
    queues: int
    policies: tuple[str, ...] = Field(min_length=2)
    base: AsynchronousCell
    cells: dict[str, dict[str, Any]]

    def cell(self, name: str) -> AsynchronousCell:
        """Return the cell of that name."""
        return AsynchronousCell.model_validate(self.base.model_dump() | self.cells[name])


def scenario(cell: AsynchronousCell, seed: int) -> AsynchronousScenario:
    """Return the work of a cell for a seed."""
    topology: dict[str, Any] = {"shape": "single", "hosts": cell.hosts, "rate": RATE}
    if cell.leaves > 1:
        per_leaf = cell.hosts // cell.leaves
        topology = {"shape": "leaf-spine", "leaves": cell.leaves, "hosts_per_leaf": per_leaf, "spines": 1, "rate": RATE}
    workload = Workload(
        seed=seed,
        topology=topology,
        studies=max(cell.studies, 1),
        search=SuccessiveHalving(),
        models=cell.models,
        workers=(cell.workers,),
        placement="random",
        compute_ratio=cell.compute_ratio,
    )
    search = KINDS[cell.kind](trials=cell.trials, **cell.settings)
    draws = Draws(cell.models, (cell.workers,), cell.compute_ratio)
    plans = asynchronous_searches(workload.fabric, search, cell.searches, cell.slots, draws, seed)
    beside = parse(generate(workload))
    return AsynchronousScenario(**vars(replace(beside, studies=beside.studies[: cell.studies])), asynchronous=plans)


def run_policy(cell: AsynchronousCell, policy: str, queues: int, seed: int) -> dict[str, float]:
    """Return what is measured of a policy on the work of a seed, seconds, means over the searches of a kind.

    first_s: until a search's first trial has completed the top rung. best_s: until the best of all that complete it has.
    search_s: until the search ends. loss: what the searches' best trials reported. sct_s: of the stages beside them, if any.
    """
    run = simulate(scenario(cell, seed), policy, LIVE, Classes(queues=queues))
    found = {
        name: float(np.mean([getattr(search, name) for search in run.searches])) for name in ("first_s", "best_s", "search_s")
    }
    found["loss"] = float(np.mean([np.inf if search.best is None else search.best.loss for search in run.searches]))
    return found | ({"sct_s": run.mean_sct_s} if run.stages else {})
