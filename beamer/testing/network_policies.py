"""The conformance suite of network policies; run each of `NETWORK_POLICY_CHECKS` on your own."""

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import strategies as st

from beamer.decision.state import read_state, write_state
from beamer.network.decide import decide
from beamer.network.policy import NetworkPolicy, Order
from beamer.network.snapshot import Snapshot
from beamer.network.views import StudyView
from beamer.studies.model import split_key, trial_key
from beamer.testing.fabrics import star
from beamer.testing.profile import of_drawn
from beamer.testing.situations import Situation, situations, snapshots

NetworkPolicyCheck = Callable[[NetworkPolicy[Any]], None]

NOW = 10.0


def _order(policy: NetworkPolicy[Any], snapshot: Snapshot) -> Order:
    return policy.order(policy.initial(), snapshot, NOW, Random(0))[1]


def _renamed(key: str) -> str:
    study, trial = split_key(key)
    return trial_key(f"z{9 - int(study[-1])}", trial)


def _rename(study: StudyView) -> StudyView:
    stages = tuple(
        replace(stage, jobs=tuple(replace(job, key=_renamed(job.key)) for job in stage.jobs)) for stage in study.stages
    )
    return replace(study, name=f"z{9 - int(study.name[-1])}", stages=stages)


@of_drawn(snapshots())
def orders_every_job_once(policy: NetworkPolicy[Any], snapshot: Snapshot) -> None:
    """Every running job is in exactly one tier, no tier is empty, and a wake-up lies ahead."""
    _, order, wake_at = policy.order(policy.initial(), snapshot, NOW, Random(0))
    assert all(tier.jobs for tier in order)
    assert sorted(key for tier in order for key in tier.jobs) == sorted(snapshot.jobs.key)
    assert wake_at is None or wake_at > NOW


def orders_nothing_when_nothing_runs(policy: NetworkPolicy[Any]) -> None:
    """A snapshot without running jobs has an empty order."""
    fabric = star(2)
    for studies in ((), (StudyView("study0", 1.0, ()),)):
        assert _order(policy, Snapshot.of(fabric, studies)) == ()


@of_drawn(snapshots())
def repeats_itself(policy: NetworkPolicy[Any], snapshot: Snapshot) -> None:
    """Equal arguments give equal results, and asking again with the new state changes no order."""
    first = policy.order(policy.initial(), snapshot, NOW, Random(0))
    assert first == policy.order(policy.initial(), snapshot, NOW, Random(0))
    assert first[1] == policy.order(first[0], snapshot, NOW, Random(0))[1]


@of_drawn(situations())
def ignores_names(policy: NetworkPolicy[Any], situation: Situation) -> None:
    """Other names for the same studies give the same order, ties included."""
    renamed = replace(situation, studies=tuple(_rename(study) for study in situation.studies))
    order = _order(policy, situation.snapshot())
    expected = tuple(replace(tier, jobs=tuple(map(_renamed, tier.jobs))) for tier in order)
    assert _order(policy, renamed.snapshot()) == expected


@of_drawn(situations())
def leaves_the_snapshot_alone(policy: NetworkPolicy[Any], situation: Situation) -> None:
    """The policy changes none of the columns that it is given."""
    snapshot, untouched = situation.snapshot(), situation.snapshot()
    _order(policy, snapshot)
    for part in ("jobs", "coflows"):
        after, before = vars(getattr(snapshot, part)), vars(getattr(untouched, part))
        assert all(
            (column == after[name]) if name == "key" else (column == after[name]).all() for name, column in before.items()
        )
    assert (snapshot.remaining == untouched.remaining).all()
    assert (snapshot.klass == untouched.klass).all()
    assert (snapshot.stage_weight == untouched.stage_weight).all()
    assert (snapshot.capacity_bps == untouched.capacity_bps).all()


@of_drawn(snapshots())
def remembers_plain_data(policy: NetworkPolicy[Any], snapshot: Snapshot) -> None:
    """The state survives the journal: it is the same after a way through JSON."""
    state, _, _ = policy.order(policy.initial(), snapshot, NOW, Random(0))
    assert read_state(policy, json.loads(json.dumps(write_state(policy, state)))) == state
    hash(state)


@of_drawn(snapshots(), snapshots())
def outlives_any_change(policy: NetworkPolicy[Any], before: Snapshot, after: Snapshot) -> None:
    """The state of one situation does not spoil the order of another."""
    state, _, _ = policy.order(policy.initial(), before, NOW, Random(0))
    _, order, _ = policy.order(state, after, NOW + 1, Random(0))
    assert sorted(key for tier in order for key in tier.jobs) == sorted(after.jobs.key)


@of_drawn(snapshots(), st.integers(1, 8))
def fits_the_queues(policy: NetworkPolicy[Any], snapshot: Snapshot, queues: int) -> None:
    """On any number of queues every job that loads a link has one of their classes, and no more urgent tier has a lower one."""
    _, plan, _ = decide(policy, queues)(policy.initial(), snapshot, NOW, Random(0))
    assert plan.queues == queues
    loading = {key for key, loads in zip(snapshot.jobs.key, snapshot.jobs.loads.tolist(), strict=True) if loads}
    assert plan.jobs.keys() == loading
    waited_for = {key for key, left in zip(snapshot.jobs.key, snapshot.remaining.tolist(), strict=True) if left}
    relevant = loading & waited_for if policy.orders else loading
    ranks = [plan.jobs[key].klass for tier in _order(policy, snapshot) for key in tier.jobs if key in relevant]
    assert ranks == sorted(ranks)
    assert all(0 <= klass < queues for klass in ranks)


@of_drawn(snapshots())
def serves_last_what_nobody_waits_for(policy: NetworkPolicy[Any], snapshot: Snapshot) -> None:
    """No job without remaining iterations has a more urgent class than one that is waited for, if the policy orders any."""
    _, plan, _ = decide(policy, 8)(policy.initial(), snapshot, NOW, Random(0))
    left = dict(zip(snapshot.jobs.key, snapshot.remaining.tolist(), strict=True))
    waited_for = [job.klass for key, job in plan.jobs.items() if left[key]]
    arrived = [job.klass for key, job in plan.jobs.items() if not left[key]]
    assert not policy.orders or max(waited_for, default=0) <= min(arrived, default=8)


NETWORK_POLICY_CHECKS: tuple[NetworkPolicyCheck, ...] = (
    orders_every_job_once,
    orders_nothing_when_nothing_runs,
    repeats_itself,
    ignores_names,
    leaves_the_snapshot_alone,
    remembers_plain_data,
    outlives_any_change,
    fits_the_queues,
    serves_last_what_nobody_waits_for,
)
"""What every network policy has to pass: each takes a policy."""
