"""How an order becomes a plan: by classes, by ceilings on the rates of senders, or by both; each registered under its name.

Simulator and controller call the same modes through `beamer.network.decide` and the allocator `classes`.
"""

from abc import ABC, abstractmethod
from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from beamer.errors import InputError, nearest
from beamer.network.assignment import assign_classes
from beamer.network.ceilings import Ceilings
from beamer.network.plan import JobPlan
from beamer.network.policy import Order
from beamer.network.snapshot import Snapshot


@dataclass(frozen=True)
class PlanMode(ABC):
    """A way to carry out an order on ports with so many queues.

    name: what users select it by. caps: whether it caps the rates of senders.
    """

    name: ClassVar[str]
    caps: ClassVar[bool] = True

    @abstractmethod
    def of_loading(self, order: Order, snapshot: Snapshot, queues: int) -> dict[str, JobPlan]:
        """Return the treatment of jobs all of which load the network."""

    def plan(self, order: Order, snapshot: Snapshot, queues: int) -> dict[str, JobPlan]:
        """Return the treatment of every job of `order` that loads the network."""
        return self.of_loading(without_idle(order, snapshot), snapshot, queues)


class ByClasses(PlanMode):
    """Let the queues of the ports keep the order."""

    name = "classes"
    caps = False

    def of_loading(self, order: Order, snapshot: Snapshot, queues: int) -> dict[str, JobPlan]:
        """Give every job a class and none a cap."""
        plans = [JobPlan(klass) for klass in range(queues)]  # Most of thousands of jobs share one of these plans.
        return {key: plans[klass] for key, klass in _classes(order, snapshot, queues).items()}


@dataclass(frozen=True)
class ByRates(PlanMode):
    """Let ceilings on the rates of senders keep the order, for fabrics without priority queues: all jobs share a class."""

    name = "rates"
    ceilings: Ceilings = field(default_factory=Ceilings)

    def of_loading(self, order: Order, snapshot: Snapshot, queues: int) -> dict[str, JobPlan]:
        """Give every job that others go before a cap."""
        keys = [key for tier in order for key in tier.jobs]
        caps = self.ceilings.of(order, snapshot, set(keys))
        return {key: JobPlan(0, caps.get(key)) for key in keys}


@dataclass(frozen=True)
class Hybrid(PlanMode):
    """Let classes keep the order, and ceilings that among the jobs that share the lowest class."""

    name = "hybrid"
    ceilings: Ceilings = field(default_factory=Ceilings)

    def of_loading(self, order: Order, snapshot: Snapshot, queues: int) -> dict[str, JobPlan]:
        """Give every job a class, and those of the lowest one that others of it go before a cap."""
        klass = _classes(order, snapshot, queues)
        caps = self.ceilings.of(order, snapshot, {key for key, its in klass.items() if its == queues - 1})
        return {key: JobPlan(its, caps.get(key)) for key, its in klass.items()}


PLAN_MODES: dict[str, PlanMode] = {mode.name: mode for mode in (ByClasses(), ByRates(), Hybrid())}
DEFAULT_MODE = ByClasses.name


def plan_mode(name: str) -> PlanMode:
    """Return the mode that is registered under `name`. Raises `InputError` with the nearest name if there is none."""
    if name not in PLAN_MODES:
        raise InputError("--mode", name, nearest(name, PLAN_MODES))
    return PLAN_MODES[name]


def without_idle(order: Order, snapshot: Snapshot) -> Order:
    """Leave out jobs that load no link, all of whose workers share a host, say: they need no class, others may."""
    if snapshot.jobs.loads.all():
        return order
    return _only(order, {snapshot.jobs.key[i] for i in np.flatnonzero(snapshot.jobs.loads).tolist()})


def _only(order: Order, keys: Container[str]) -> Order:
    tiers = (replace(tier, jobs=tuple(key for key in tier.jobs if key in keys)) for tier in order)
    return tuple(tier for tier in tiers if tier.jobs)


def _classes(order: Order, snapshot: Snapshot, queues: int) -> dict[str, int]:
    current = {key: klass for key, klass in zip(snapshot.jobs.key, snapshot.klass.tolist(), strict=True) if klass >= 0}
    return assign_classes(order, queues, current)
