"""From what is known to a plan for every running job, pure, and the checks of what policies return."""

from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import TypeVar

from beamer.decision.core import Decide
from beamer.errors import InputError
from beamer.network.plan import Plan, check_queues
from beamer.network.plan_modes import DEFAULT_MODE, PLAN_MODES, PlanMode
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.snapshot import Snapshot

S = TypeVar("S")


def decide(policy: NetworkPolicy[S], queues: int, mode: PlanMode | None = None) -> Decide[S, Snapshot, Plan]:
    """Return the decision of `policy` for ports with `queues` managed classes.

    mode: how its order becomes a plan; None: the default one. Raises `InputError` for too many queues.
    """
    carried_out = mode or PLAN_MODES[DEFAULT_MODE]
    check_queues(queues)

    def decision(state: S, snapshot: Snapshot, now: float, rng: Random) -> tuple[S, Plan, float | None]:
        state, order, wake_at = policy.order(state, snapshot, now, rng)
        check_order(snapshot, order)
        if policy.orders:
            order = waited_for_first(order, snapshot)
        return state, Plan(queues, MappingProxyType(carried_out.plan(order, snapshot, queues)), order), wake_at

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


def check_plan(snapshot: Snapshot, plan: Plan) -> None:
    """Check that a plan names every job that loads the network, no other, with classes that ports have and caps above 0.

    Raises `InputError`.
    """
    loading = {key for key, loads in zip(snapshot.jobs.key, snapshot.jobs.loads.tolist(), strict=True) if loads}
    for key in plan.jobs.keys() ^ loading:
        raise InputError("plan.jobs", key, "a job that loads the network" if key in plan.jobs else "a class for every such job")
    for key, job in plan.jobs.items():
        if not 0 <= job.klass < plan.queues:
            raise InputError(f"plan.jobs[{key}].klass", job.klass, f"0 to {plan.queues - 1}")
        if job.cap_bps is not None and job.cap_bps <= 0:
            raise InputError(f"plan.jobs[{key}].cap_bps", job.cap_bps, "a rate above 0 bit/s")
