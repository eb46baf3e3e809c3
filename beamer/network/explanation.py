"""Why a job has its place: what the policy was told of it, where it stands in the order, and the link that it needs longest.

Everything here is read from the snapshot and the order of one decision; nothing is decided.
"""

import math
from dataclasses import dataclass

import numpy as np

from beamer.network.fabric import Fabric
from beamer.network.plan import Plan
from beamer.network.snapshot import Snapshot


@dataclass(frozen=True, eq=False)
class Basis:
    """What a decision was made from, and the plan that it made. at_s: when, Unix seconds."""

    snapshot: Snapshot
    plan: Plan
    at_s: float


@dataclass(frozen=True)
class Bottleneck:
    """The link that a job's remaining work needs longest.

    src, dst: its ends. left_bytes, left_s: of the job's remaining work there, alone at `rate_bps`. jobs_ahead, ahead_s: how
    many jobs of a class that is served before its own load the link, and how long their remaining work needs it. jobs_beside:
    how many other jobs of its own class load it.
    """

    src: str
    dst: str
    rate_bps: float
    left_bytes: int
    left_s: float
    jobs_ahead: int
    ahead_s: float
    jobs_beside: int


@dataclass(frozen=True)
class Explanation:
    """A job's place in the order of a decision, and what the decision rests on.

    at_s: when it was made, Unix seconds. place: of the job in the order, from 1, among `jobs`. tier: of its tier, from 1, among
    `tiers`; tier_jobs: how many jobs the policy would serve together with it, itself included. stage: that waits for it, None
    where none does; stage_jobs: how many of its trials run; slowest: the key of the one that would take longest alone.
    remaining_steps: until what is waited for. step_s: of one with the fabric to itself; left_s: of all of them. bottleneck:
    None of a job that sends nothing.
    """

    at_s: float
    place: int
    jobs: int
    tier: int
    tiers: int
    tier_jobs: int
    stage: str | None
    stage_jobs: int
    slowest: str
    remaining_steps: int
    step_s: float
    left_s: float
    bottleneck: Bottleneck | None


def explain(fabric: Fabric, basis: Basis, key: str, started_s: float) -> Explanation | None:
    """Return why a job has its place; None where the decision was not about its attempt that began at `started_s`.

    Takes time in proportion to all jobs and the links that they load.
    """
    snapshot, jobs = basis.snapshot, basis.snapshot.jobs
    j = jobs.position.get(key)
    if j is None or float(jobs.started_s[j]) != started_s:
        return None
    order = basis.plan.order
    ranked = [other for tier in order for other in tier.jobs]
    tier = next(i for i, one in enumerate(order) if key in one.jobs)
    together = np.flatnonzero(jobs.stage == jobs.stage[j])
    left_s = snapshot.remaining * jobs.iteration_s
    slowest = int(together[np.argmax(left_s[together])])
    stage, study = int(jobs.stage[j]), snapshot.studies[int(jobs.study[j])].name
    return Explanation(
        at_s=basis.at_s,
        place=ranked.index(key) + 1,
        jobs=len(ranked),
        tier=tier + 1,
        tiers=len(order),
        tier_jobs=len(order[tier].jobs),
        stage=None if math.isinf(float(snapshot.since_s[stage])) else snapshot.stages[stage].removeprefix(study + "/"),
        stage_jobs=len(together),
        slowest=jobs.key[slowest],
        remaining_steps=int(snapshot.remaining[j]),
        step_s=float(jobs.iteration_s[j]),
        left_s=float(left_s[j]),
        bottleneck=_bottleneck(fabric, basis, j),
    )


def _bottleneck(fabric: Fabric, basis: Basis, j: int) -> Bottleneck | None:
    """Return the link that job `j` needs longest, the first of several."""
    snapshot, jobs = basis.snapshot, basis.snapshot.jobs
    own = slice(int(jobs.first[j]), int(jobs.first[j + 1]))
    if own.start == own.stop:
        return None
    # A job of which nobody waits for anything has nothing left: then the link of its next step is named.
    needed = snapshot.left_s if snapshot.remaining[j] else jobs.seconds
    busiest = own.start + int(np.argmax(needed[own]))
    link = fabric.links[int(jobs.link[busiest])]
    there = np.flatnonzero(jobs.link == jobs.link[busiest])
    klass = np.array([basis.plan.jobs[jobs.key[i]].klass for i in jobs.owner[there].tolist()], np.int64)
    own_class = basis.plan.jobs[jobs.key[j]].klass
    ahead = there[klass < own_class]
    left_s = float(snapshot.left_s[busiest])
    return Bottleneck(
        src=link.src,
        dst=link.dst,
        rate_bps=float(link.rate_bps),
        left_bytes=round(left_s * link.rate_bps / 8),
        left_s=left_s,
        jobs_ahead=len(ahead),
        ahead_s=float(snapshot.left_s[ahead].sum()),
        jobs_beside=int((klass == own_class).sum()) - 1,
    )
