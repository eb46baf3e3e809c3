"""The remaining work of stages and studies: the items that Beamer's policies order."""

from dataclasses import dataclass

import numpy as np

from beamer.network.arrays import Floats, Ints
from beamer.network.bssi import Items
from beamer.network.kernels import bssi
from beamer.network.snapshot import Snapshot


@dataclass(frozen=True, eq=False)
class RemainingWork:
    """What is ordered as one, each a stage or a study with everything it still has to do.

    of_job: position by job, ascending. critical_s: what each job takes at least, by job.
    """

    name: tuple[str, ...]
    items: Items
    of_job: Ints
    critical_s: Floats


def remaining_work(snapshot: Snapshot, looks_ahead: bool) -> RemainingWork:
    """Return the units that run: studies that have declared later rungs, if `looks_ahead`, and the other studies' stages."""
    jobs = snapshot.jobs
    ahead = np.array([looks_ahead and bool(study.later) for study in snapshot.studies], np.bool_)
    study_of_stage = np.zeros(len(snapshot.stages), np.int64)
    study_of_stage[jobs.stage] = jobs.study
    starts_unit = np.ones(len(snapshot.stages), np.bool_)
    starts_unit[1:] = (study_of_stage[1:] != study_of_stage[:-1]) | ~ahead[study_of_stage[1:]]
    unit_of_stage = np.cumsum(starts_unit) - 1
    unit = unit_of_stage[jobs.stage]
    many = int(unit_of_stage[-1]) + 1 if len(unit_of_stage) else 0
    study_of_unit = study_of_stage[starts_unit]
    critical_s = snapshot.remaining * jobs.iteration_s
    of_stage = np.zeros(len(snapshot.stages))
    np.maximum.at(of_stage, jobs.stage, critical_s)
    critical: Floats = np.bincount(unit_of_stage, of_stage, many).astype(np.float64)
    seconds = snapshot.left_s
    if ahead.any():
        slowest = np.zeros(len(snapshot.studies))
        np.maximum.at(slowest, jobs.study, jobs.iteration_s)
        running = np.bincount(jobs.study, minlength=len(snapshot.studies))
        iterations = np.zeros(len(snapshot.studies))
        again = np.zeros(len(snapshot.studies))
        for s in np.flatnonzero(ahead).tolist():
            later = snapshot.studies[s].later
            iterations[s] = sum(rung.iterations for rung in later)
            again[s] = sum(rung.jobs * rung.iterations for rung in later) / running[s]
        seconds = seconds + again[jobs.study[jobs.owner]] * jobs.seconds
        critical = critical + (iterations * slowest)[study_of_unit]
    links = len(snapshot.capacity_bps)
    pooled = bssi.pool(unit, many, jobs.first, jobs.link, seconds, links)
    weight = np.array([study.weight for study in snapshot.studies], np.float64)[study_of_unit]
    names = tuple(
        snapshot.studies[s].name if ahead[s] else snapshot.stages[first]
        for s, first in zip(study_of_unit.tolist(), np.flatnonzero(starts_unit).tolist(), strict=True)
    )
    return RemainingWork(names, Items(weight, *pooled, critical, links), unit, critical_s)
