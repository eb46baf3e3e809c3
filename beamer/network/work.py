"""The remaining work of stages and studies: the work items that Beamer's policies order."""

from dataclasses import dataclass, replace

import numpy as np

from beamer.network.arrays import Floats, Ints
from beamer.network.bssi import Items
from beamer.network.kernels import bssi
from beamer.network.snapshot import Snapshot
from beamer.network.views import LaterRung
from beamer.studies.model import split_key


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
    and to take as long per iteration as the slowest of them. Where its survivors are known, only these count.
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
        declared = np.zeros(len(jobs.key))  # iterations of later rungs, by running job
        later_s = np.zeros(len(snapshot.studies))
        for s in np.flatnonzero(ahead).tolist():
            members = np.flatnonzero(jobs.study == s)
            for rung in snapshot.studies[s].later:
                likely = _survivors(snapshot, members, rung)
                declared[likely] += rung.iterations * rung.jobs / len(likely)
                later_s[s] += rung.iterations * jobs.iteration_s[likely].max()
        seconds = seconds + declared[jobs.owner] * jobs.seconds
        critical = critical + later_s[study_of_item]
    links = len(snapshot.capacity_bps)
    pooled = bssi.pool(item_of_job, count, jobs.first, jobs.link, seconds, links)
    whole = np.array([study.weight for study in snapshot.studies], np.float64)[study_of_item]
    weight = np.where(ahead[study_of_item], whole, snapshot.stage_weight[starts_item])
    names = tuple(
        snapshot.studies[s].name if ahead[s] else snapshot.stages[first]
        for s, first in zip(study_of_item.tolist(), np.flatnonzero(starts_item).tolist(), strict=True)
    )
    return RemainingWork(names, Items(weight, *pooled, critical, links), item_of_job, critical_s)


def _survivors(snapshot: Snapshot, members: Ints, rung: LaterRung) -> Ints:
    """Return those of a study's running jobs that are known to be in a later rung; all of them where none is."""
    known = [split_key(snapshot.jobs.key[j])[1] in rung.survivors for j in members.tolist()]
    return members[known] if any(known) else members


def aged(work: RemainingWork, snapshot: Snapshot, now: float, power: float, overdue: float) -> RemainingWork:
    """Return work items whose weights are (1 + age / left)^power times as large, and more if they are overdue.

    age: seconds since an item's running stage was registered, 0 of a trial that no stage waits for: its search goes on with
    others, and what it has promoted must not wait for fresh ones. left: the least time that this stage still takes, the larger
    of its critical path and its busiest link's load; of several running stages the one for which age / left is largest counts.
    A stage that has waited for long relative to what it has left so goes before others, and a long study's first stage does not
    wait for all stages of all shorter studies. With fair shares among n items none takes more than about n times as long as
    alone: from age / left = n on, the weight also grows with (age / left / n)^overdue.
    """
    jobs, stages = snapshot.jobs, len(snapshot.stages)
    first, _, seconds = bssi.pool(jobs.stage, stages, jobs.first, jobs.link, snapshot.left_s, len(snapshot.capacity_bps))
    if not stages:
        return work
    left_s = np.maximum.reduceat(work.critical_s, np.searchsorted(jobs.stage, np.arange(stages)))
    loading = np.diff(first) > 0
    if loading.any():
        left_s[loading] = np.maximum(left_s[loading], np.maximum.reduceat(seconds, first[:-1][loading]))
    age_s = np.maximum(now - snapshot.since_s, 0.0)
    stretch = np.divide(age_s, left_s, out=np.zeros(stages), where=left_s > 0)
    largest = np.maximum.reduceat(stretch[jobs.stage], np.searchsorted(work.item_of_job, np.arange(len(work.name))))
    factor = (1.0 + largest) ** power * np.maximum(largest / max(len(work.name), 1), 1.0) ** overdue
    return replace(work, items=replace(work.items, weight=work.items.weight * factor))
