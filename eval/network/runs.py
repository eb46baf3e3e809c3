"""One run of the study: a contender on the work of a cell and a seed, and what is measured of it."""

from typing import Any

import numpy as np

from beamer.bounds.scenario import scenario_bounds, scenario_instance
from beamer.network.policies import network_policy
from beamer.sim import simulate
from eval.network.cells import Cell, Contender
from eval.network.wrapped import Timed, ToldSurvivors

MEASURES = ("mean_s", "p95_s", "stretch", "makespan_s", "decide_p99_s")


def run_contender(cell: Cell, contender: Contender, queues: int, seed: int) -> dict[str, float]:
    """Return what is measured of a contender's run.

    mean_s: of the SCTs, weighted by study. p95_s: of the SCTs. stretch: the largest ratio of an SCT to the least time that the
    stage takes alone. makespan_s: the longest of a study's. decide_p99_s: of the seconds that a decision takes,
    0 if the policy is never asked.
    """
    work = cell.scenario(seed)
    policy = Timed(network_policy(contender.policy))
    informed = ToldSurvivors(policy, work) if contender.survivors else policy
    run = simulate(work, informed, assumptions=contender.assumptions, allocator=contender.carried_out_by(queues))
    _, stages = scenario_instance(work, acknowledgements=False)
    names = [(study.name, stage.name) for study in work.studies for stage in study.stages]
    alone_s = dict(zip(names, (stages.floor_s - stages.release_s).tolist(), strict=True))
    weight = {study.name: study.weight for study in work.studies}
    sct_s = [stage.sct_s for stage in run.stages]
    return {
        "mean_s": float(np.average(sct_s, weights=[weight[stage.study] for stage in run.stages])),
        "p95_s": run.p95_sct_s,
        "stretch": max(stage.sct_s / alone_s[stage.study, stage.stage] for stage in run.stages),
        "makespan_s": max(run.makespans_s.values()),
        "decide_p99_s": float(np.percentile(policy.seconds or [0.0], 99)),
    }


def run_bound(cell: Cell, seed: int) -> dict[str, Any]:
    """Return the best lower bound on the mean SCT, seconds, and its name; none where weights differ: it is of plain means."""
    if len(set(cell.weights)) > 1:
        return {}
    bound = scenario_bounds(cell.scenario(seed), acknowledgements=False)
    return {"bound": bound.best, "bound_s": bound.mean_s}
