"""The remaining work of stages and studies: the work items that Beamer's policies order."""

from dataclasses import dataclass

import numpy as np

from beamer.network.arrays import Floats, Ints
from beamer.network.bssi import Items
from beamer.network.kernels import bssi
from beamer.network.snapshot import Snapshot


@dataclass(frozen=True, eq=False)
class RemainingWork:
    """The work items, each a stage or a study with everything that it still has to do.

    name: of each item. items: their weights, loads and critical paths. item_of_job: position of each job's item, ascending.
    critical_s: the least time that each job still takes, by job.
    """

    name: tuple[str, ...]
    items: Items
    item_of_job: Ints
    critical_s: Floats


def remaining_work(snapshot: Snapshot, looks_ahead: bool) -> RemainingWork:
    """Return the work items in progress: studies that have declared later rungs, if `looks_ahead`, the other studies' stages.

    A trial that no stage waits for is a stage of its own, with what it has left until it completes.
    A declared rung has not been placed yet: its jobs are taken to load links as the running jobs of its study do on average,
    and to take as long per iteration as the slowest of them.
    """
    jobs = snapshot.jobs
    ahead = np.array([looks_ahead and bool(study.later) for study in snapshot.studies], np.bool_)
    study_of_stage = np.zeros(len(snapshot.stages), np.int64)
    study_of_stage[jobs.stage] = jobs.study
    starts_item = np.ones(len(snapshot.stages), np.bool_)
    starts_item[1:] = (study_of_stage[1:] != study_of_stage[:-1]) | ~ahead[study_of_stage[1:]]
    item_of_stage = np.cumsum(starts_item) - 1
    item_of_job = item_of_stage[jobs.stage]
    count = int(item_of_stage[-1]) + 1 if len(item_of_stage) else 0
    study_of_item = study_of_stage[starts_item]
    critical_s = snapshot.remaining * jobs.iteration_s
    of_stage = np.zeros(len(snapshot.stages))
    np.maximum.at(of_stage, jobs.stage, critical_s)
    critical: Floats = np.bincount(item_of_stage, of_stage, count).astype(np.float64)
    seconds = snapshot.left_s
    if ahead.any():
        slowest = np.zeros(len(snapshot.studies))
        np.maximum.at(slowest, jobs.study, jobs.iteration_s)
        running = np.bincount(jobs.study, minlength=len(snapshot.studies))
        iterations = np.zeros(len(snapshot.studies))
        declared = np.zeros(len(snapshot.studies))  # iterations of later rungs per running job
        for s in np.flatnonzero(ahead).tolist():
            later = snapshot.studies[s].later
            iterations[s] = sum(rung.iterations for rung in later)
            declared[s] = sum(rung.jobs * rung.iterations for rung in later) / running[s]
        seconds = seconds + declared[jobs.study[jobs.owner]] * jobs.seconds
        critical = critical + (iterations * slowest)[study_of_item]
    links = len(snapshot.capacity_bps)
    pooled = bssi.pool(item_of_job, count, jobs.first, jobs.link, seconds, links)
    whole = np.array([study.weight for study in snapshot.studies], np.float64)[study_of_item]
    weight = np.where(ahead[study_of_item], whole, snapshot.stage_weight[starts_item])
    names = tuple(
        snapshot.studies[s].name if ahead[s] else snapshot.stages[first]
        for s, first in zip(study_of_item.tolist(), np.flatnonzero(starts_item).tolist(), strict=True)
    )
    return RemainingWork(names, Items(weight, *pooled, critical, links), item_of_job, critical_s)
