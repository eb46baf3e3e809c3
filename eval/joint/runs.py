"""What the study of both levels consists of, as in `eval/configs/joint.yaml`, and one run of it.

Every pair of policies is given the same searches for a seed, so that comparisons are paired; the trials that win are the same,
whichever policies run them.
"""

from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from pydantic import Field

from beamer.bounds.joint import search_bound_s
from beamer.errors import InputError, nearest
from beamer.gpu.policies import gpu_policy
from beamer.joint.parts import JointParts
from beamer.network.policies import network_policy
from beamer.sim.joint import simulate_scenario
from beamer.sim.network_level import Assumptions
from beamer.units import parse_rate
from beamer.workloads.joint import JointScenario, parse
from beamer.workloads.models import MODELS
from eval.config_section import ConfigSection
from eval.joint.disturbances import Disturbances, DisturbedEngine
from eval.pairs import pair, policies_of


class JointCell(ConfigSection):
    """A cluster and how searches on it are drawn; what a field means is said in the config file."""

    topology: dict[str, Any]
    gpus_per_host: int
    searches: int
    arrivals_s: float
    models: tuple[str, ...]
    bytes_scale: float
    compute_ratio: float
    compute_jitter: float
    gpus: int
    min_gpus: int
    max_gpus: int
    trials: tuple[int, int]
    iterations: int
    budget_spread: float
    floor: tuple[float, float]
    half: tuple[float, float]
    costs: dict[str, float]
    report_s: float
    collectives: tuple[str, ...] = Field(min_length=1)


class JointVariant(ConfigSection):
    """What a run has beyond its pair of policies; what a field means is said in the config file."""

    parts: tuple[str, ...] = ()
    queues: int | None = None
    bytes_off: float = 1.0
    reports_lost: float = 0.0
    cable: tuple[float, str, str] | None = None
    unregistered: float = 0.0


PLAIN = JointVariant()


class JointVariants(ConfigSection):
    """Cells, and pairs of policies as `pair` names them, that run in variants."""

    cells: tuple[str, ...]
    pairs: tuple[str, ...]
    variants: dict[str, JointVariant]


class JointConfig(ConfigSection):
    """What the study consists of, as in the config file."""

    seeds: int = Field(ge=2)
    first_seed: int
    gpu_policies: tuple[str, ...] = Field(min_length=1)
    network_policies: tuple[str, ...] = Field(min_length=1)
    base: JointCell
    cells: dict[str, dict[str, Any]]
    cells_of_parts: dict[str, dict[str, Any]]
    parts: JointVariants
    resizing: JointVariants
    robustness: JointVariants

    def model_post_init(self, context: Any) -> None:
        """Check that there are the policies, cells and parts that are named."""
        known = {*self.cells, *self.cells_of_parts}
        for who in self.pairs:
            policies_of(who)
        for field, table in (("parts", self.parts), ("resizing", self.resizing), ("robustness", self.robustness)):
            for name in table.cells:
                if name not in known:
                    raise InputError(f"{field}.cells", name, nearest(name, known))
            for who in table.pairs:
                policies_of(who, f"{field}.pairs")
            for called, variant in table.variants.items():
                JointParts.of(f"{field}.variants.{called}.parts", variant.parts)

    def cell(self, name: str) -> JointCell:
        """Return the cell of that name."""
        return JointCell.model_validate(self.base.model_dump() | (self.cells | self.cells_of_parts)[name])

    def plain_pairs(self, cell: str) -> tuple[str, ...]:
        """Return the pairs of policies that run on a cell as they are."""
        if cell in self.cells:
            return self.pairs
        return tuple(dict.fromkeys(who for table in self.tables if cell in table.cells for who in table.pairs))

    @property
    def tables(self) -> tuple[JointVariants, ...]:
        """What runs in variants."""
        return self.parts, self.resizing, self.robustness

    @property
    def pairs(self) -> tuple[str, ...]:
        """The pairs of policies, as `pair` names them."""
        return tuple(pair(gpu, network) for gpu in self.gpu_policies for network in self.network_policies)


def in_variant(who: str, variant: str) -> str:
    """Return the name of a pair of policies in a variant."""
    return f"{who}, {variant}"


def scenario(cell: JointCell, seed: int) -> JointScenario:
    """Return the searches of a cell for a seed."""
    rng = Random(f"{seed}/joint")
    collectives = Random(f"{seed}/joint/collectives")
    searches = [_search(cell, i, rng, collectives.choice(cell.collectives)) for i in range(cell.searches)]
    return parse(
        {
            "name": "joint",
            "topology": cell.topology,
            "gpus_per_host": cell.gpus_per_host,
            "seed": seed,
            "report_s": cell.report_s,
            "costs": cell.costs,
            "searches": searches,
        }
    )


def _search(cell: JointCell, number: int, rng: Random, collective: str) -> dict[str, Any]:
    model = MODELS[rng.choice(cell.models)]
    size = round(model.gradient_bytes * cell.bytes_scale)
    alone_s = 8 * size * 2 * (cell.gpus - 1) / cell.gpus / parse_rate(cell.topology["rate"], "rate")
    trials = rng.randint(*cell.trials)
    first = max(round(cell.iterations * cell.budget_spread ** rng.uniform(-1, 1)), 1)
    rungs: list[dict[str, int]] = []
    left, step = trials, first
    while left > 1:
        left //= 2
        rungs.append({"iterations": step, "keep": left})
        step *= 2
    return {
        "name": f"search{number}-{model.name}",
        "arrival_s": rng.uniform(0, cell.arrivals_s),
        "request": {"gpus": cell.gpus, "min_gpus": cell.min_gpus, "max_gpus": cell.max_gpus},
        "job": {
            "bytes": size,
            "collective": collective,
            "compute_s": cell.compute_ratio * alone_s,
            "compute_jitter": cell.compute_jitter,
            "epoch": max(first // 4, 1),
        },
        "curves": {"trials": trials, "floor": cell.floor, "half": cell.half, "start": 2.3},
        "rungs": [*rungs, {"iterations": step}],
    }


def run_pair(cell: JointCell, gpu: str, network: str, seed: int, variant: JointVariant = PLAIN) -> dict[str, float]:
    """Return what is measured of a pair of policies on the searches of a seed.

    search_s, sct_s, jct_s: seconds, means over searches, stages, trials; p95_sct_s: of stages; bound_s: that search_s is not
    below, for the bytes that are declared. idle: share of GPU-seconds that no trial held. network_gb: over all links.
    """
    searches = scenario(cell, seed)
    disturbances = Disturbances(variant.bytes_off, variant.reports_lost, variant.cable)
    disturbances.check_cable(searches.fabric)
    run = simulate_scenario(
        searches if variant.queues is None else replace(searches, queues=variant.queues),
        gpu_policy(gpu),
        network_policy(network),
        Assumptions(unregistered_share=variant.unregistered),
        parts=JointParts.of("parts", variant.parts),
        make_engine=partial(DisturbedEngine, disturbances=disturbances, seed=seed),
    )
    return {
        "bound_s": search_bound_s(searches),
        "search_s": run.mean_search_s,
        "sct_s": run.mean_sct_s,
        "p95_sct_s": run.p95_sct_s,
        "jct_s": run.mean_jct_s,
        "idle": run.idle_share,
        "network_gb": run.network_bytes / 1e9,
    }
