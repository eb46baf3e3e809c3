"""From what is known to a class for every running job, pure, and the checks of what policies return."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import TypeVar

from beamer.decision.core import Decide
from beamer.errors import InputError
from beamer.network.plan import JobPlan, Plan, check_queues
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.snapshot import Snapshot

SEPARATION = 4  # moved jobs that telling two jobs of the most urgent tier apart is worth

S = TypeVar("S")


def decide(policy: NetworkPolicy[S], queues: int) -> Decide[S, Snapshot, Plan]:
    """Return the decision of `policy` for ports with `queues` managed classes. Raises `InputError` for too many of them."""
    check_queues(queues)

    def decision(state: S, snapshot: Snapshot, now: float, rng: Random) -> tuple[S, Plan, float | None]:
        state, order, wake_at = policy.order(state, snapshot, now, rng)
        check_order(snapshot, order)
        if policy.orders:
            order = waited_for_first(order, snapshot)
        current = {key: klass for key, klass in zip(snapshot.jobs.key, snapshot.klass.tolist(), strict=True) if klass >= 0}
        loading = without_idle(order, snapshot)
        jobs = {key: JobPlan(klass) for key, klass in assign_classes(loading, queues, current).items()}
        return state, Plan(queues, MappingProxyType(jobs)), wake_at

    return decision


def check_order(snapshot: Snapshot, order: Order) -> None:
    """Check that every running job is in exactly one tier of an order, and no other job in any. Raises `InputError`."""
    keys = [key for tier in order for key in tier.jobs]
    known = snapshot.jobs.position.keys()
    if len(keys) == len(known) and set(keys) == known:
        return
    for key in keys:
        if key not in known or keys.count(key) > 1:
            raise InputError("order", key, "a running job, in one tier alone")
    raise InputError("order", sorted(known - set(keys)), "a tier for every running job")


def waited_for_first(order: Order, snapshot: Snapshot) -> Order:
    """Put jobs that nobody waits for behind all others: trials that have arrived at their barrier and still run, say.

    They come in one tier, where there is no reason to prefer any.
    """
    idle = {key for key, left in zip(snapshot.jobs.key, snapshot.remaining.tolist(), strict=True) if left == 0}
    if not idle:
        return order
    tiers = [replace(tier, jobs=tuple(key for key in tier.jobs if key not in idle)) for tier in order]
    last = Tier(tuple(key for tier in order for key in tier.jobs if key in idle))
    return (*(tier for tier in tiers if tier.jobs), last)


def without_idle(order: Order, snapshot: Snapshot) -> Order:
    """Leave out jobs that load no link, all of whose workers share a host, say: they need no class, others may."""
    loads = dict(zip(snapshot.jobs.key, snapshot.jobs.loads.tolist(), strict=True))
    if all(loads.values()):
        return order
    tiers = (replace(tier, jobs=tuple(key for key in tier.jobs if loads[key])) for tier in order)
    return tuple(tier for tier in tiers if tier.jobs)


def check_plan(snapshot: Snapshot, plan: Plan) -> None:
    """Check that a plan names every job that loads the network, no other, and classes that ports have. Raises `InputError`."""
    loading = {key for key, loads in zip(snapshot.jobs.key, snapshot.jobs.loads.tolist(), strict=True) if loads}
    for key in plan.jobs.keys() ^ loading:
        raise InputError("plan.jobs", key, "a job that loads the network" if key in plan.jobs else "a class for every such job")
    for key, job in plan.jobs.items():
        if not 0 <= job.klass < plan.queues:
            raise InputError(f"plan.jobs[{key}].klass", job.klass, f"0 to {plan.queues - 1}")


def assign_classes(order: Order, queues: int, current: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the class of every job of `order`, 0 served first.

    A class per tier in order; tiers that find none left share the lowest. Classes that tiers leave over separate the jobs of
    divisible tiers, slowest first, the most urgent tier's before the next one's. Sincronia's implementation gives the first
    ranks a queue each and all others the lowest [Agarwal et al. 2018, "Sincronia: near-optimal network design for coflows"];
    dividing tiers, and what follows, is ours. current: the classes that jobs have; of all assignments that keep the order, one
    that moves few of them, as every move touches rules, marks and packets under way.
    """
    tiers = [tier for tier in order if tier.jobs]
    fresh = _fresh_classes(tiers, queues)
    if not current or len(tiers) > queues:
        return fresh
    return _least_moves(tiers, queues, current, fresh)


def _least_moves(tiers: Sequence[Tier], queues: int, current: Mapping[str, int], fresh: Mapping[str, int]) -> dict[str, int]:
    """Return the assignment that moves fewest jobs, leaves fewest of the most urgent tier together, nearest to `fresh`.

    A dynamic programme over groups of jobs that share a class, in order: classes never fall, and rise between tiers. O(n K^2).
    """
    groups: list[tuple[int, tuple[str, ...]]] = []
    for number, tier in enumerate(tiers):
        groups += [(number, (key,)) for key in tier.jobs] if tier.divisible else [(number, tier.jobs)]
    move = 1 + queues * len(groups)
    costs = [0.0] * queues  # of the groups so far, by the class of the last one
    reached_from: list[list[int]] = []
    for position, (number, keys) in enumerate(groups):
        same_tier = position > 0 and groups[position - 1][0] == number
        row, parents = [], []
        for klass in range(queues):
            own = sum(move * (current.get(key, klass) != klass) + abs(klass - fresh[key]) for key in keys)
            together = SEPARATION * move if number == 0 else 0
            options = [(costs[last], last) for last in range(klass)] if position else [(0.0, 0)]
            if same_tier:
                options.append((costs[klass] + together, klass))
            cost, parent = min(options, default=(math.inf, 0))
            row.append(cost + own)
            parents.append(parent)
        costs = row
        reached_from.append(parents)
    klass = min(range(queues), key=costs.__getitem__)
    chosen: dict[str, int] = {}
    for (_, keys), parents in zip(reversed(groups), reversed(reached_from), strict=True):
        chosen.update(dict.fromkeys(keys, klass))
        klass = parents[klass]
    return chosen


def _fresh_classes(tiers: Sequence[Tier], queues: int) -> dict[str, int]:
    spare = max(queues - len(tiers), 0)
    klass: dict[str, int] = {}
    first = 0
    for tier in tiers:
        extra = min(spare, len(tier.jobs) - 1) if tier.divisible else 0
        for i, key in enumerate(tier.jobs):
            klass[key] = min(first + min(i, extra), queues - 1)
        first += 1 + extra
        spare -= extra
    return klass
