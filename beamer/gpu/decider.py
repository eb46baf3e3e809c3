"""The seam of decisions: who grants GPUs, a policy that is asked here, or a controller that decides for several searches."""

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Any, Protocol

from beamer.decision.core import DecisionCore, Proposal, seeded
from beamer.gpu.devices import Devices
from beamer.gpu.events import Allocated
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.model import Allocation, Cluster, Grant, Job, check_allocation
from beamer.gpu.policy import GpuPolicy
from beamer.studies.tracker import Tracker

GpuView = tuple[Cluster, Sequence[Job]]
"""What a GPU policy decides on: the cluster, and the jobs that want GPUs, in the order in which they asked."""

Take = Callable[[Allocated], bool]
"""Takes in a decision, durable before it takes effect, and says whether it changes anything."""

Upcoming = dict[str, tuple[Grant, Devices]]
"""By job that waits, what it would be granted if others ended, and the GPUs that this means."""


class Decider(Protocol):
    """Decides which jobs have which GPUs.

    is_due: whether there is something to decide on that no event has told of. looks_ahead: whether it can tell who comes next,
    so that jobs may be started ahead.
    """

    looks_ahead: bool = False
    prepared: Mapping[str, Devices] = MappingProxyType({})
    """By job that was started ahead, for which GPUs."""

    @property
    def is_due(self) -> bool:
        """Whether `decide` is to be called although nothing has happened."""

    def decide(self, now: float, take: Take) -> float | None:
        """Have `take` take in what is to hold from now on, if that is new.

        Returns when to be asked again if nothing happens, None: not at all.
        """

    def upcoming(self, now: float, ahead: Collection[str]) -> Upcoming:
        """Return which jobs would have which GPUs if those ended that have them, and those in `ahead`; the first one first."""
        return {}

    def revoke(self, now: float, take: Take) -> None:
        """Have `take` take their GPUs from all jobs."""


class PolicyDecider:
    """Decide by a policy.

    tracker: with `ledger` among its ledgers. seed: of the policy's randomness. live: as of `DecisionCore`.
    """

    def __init__(self, tracker: Tracker, ledger: GpuLedger, policy: GpuPolicy[Any], seed: int = 0, live: bool = True) -> None:
        self.policy = policy
        self.is_due = False
        self.looks_ahead = True
        self.prepared: Mapping[str, Devices] = {}
        self._tracker = tracker
        self._ledger = ledger
        self._core: DecisionCore[Any, GpuView, Allocation] = DecisionCore(
            policy, self._ask, _check, ledger.decision, seeded(seed), live
        )

    def decide(self, now: float, take: Take) -> float | None:
        """Ask the policy about all jobs that want GPUs, and have `take` take in what it decides, if that is new."""
        proposal = self.propose(self._view, self._ledger.granted, now)
        self.adopt(proposal, now, take)
        return proposal.wake_s

    def propose(self, view_of: Callable[[], GpuView], granted: Allocation, now: float) -> Proposal[Any, Allocation]:
        """Return what the policy decides on a view. granted: to its jobs, which stays in force if the policy fails."""
        return self._core.propose(view_of, granted, now, next_generation(self._ledger))

    def adopt(self, proposal: Proposal[Any, Allocation], now: float, take: Take) -> None:
        """Have `take` take in a proposal, if it changes anything."""
        grants = dict(proposal.content)
        if proposal.state == self._core.state and grants == self._ledger.granted:
            return
        devices = self._ledger.assigned(grants, self.prepared)
        take(Allocated(now, self.policy.name, next_generation(self._ledger), proposal.plain_state, grants, devices))
        self._core.adopt(proposal)

    def upcoming(self, now: float, ahead: Collection[str]) -> Upcoming:
        """Ask the policy about the jobs that wait alone, and take nothing of that in."""
        granted = self._ledger.granted
        cluster, jobs = self._view()
        waiting = [job for job in jobs if job.key not in granted and job.key not in ahead]
        if not waiting:
            return {}
        grants = self.propose(lambda: (cluster, waiting), {}, now).content
        devices = self._ledger.assigned(grants, self.prepared)
        return {key: (grant, devices[key]) for key, grant in grants.items()}

    def revoke(self, now: float, take: Take) -> None:
        """Have `take` take their GPUs from all jobs; what the policy remembers stays."""
        standing = self._core.standing({})
        take(Allocated(now, self.policy.name, next_generation(self._ledger), standing.plain_state, {}, {}))

    def _view(self) -> GpuView:
        return self._ledger.cluster, self._ledger.submitted(self._tracker)

    def _ask(self, state: Any, view: GpuView, now: float, rng: Random) -> tuple[Any, Allocation, float | None]:
        return self.policy.allocate(state, *view, now, rng)


def by_policy(policy: GpuPolicy[Any], seed: int = 0, live: bool = True) -> Callable[[Tracker, GpuLedger], Decider]:
    """Return what makes a `PolicyDecider` for what is known of a search."""
    return lambda tracker, ledger: PolicyDecider(tracker, ledger, policy, seed, live)


def next_generation(ledger: GpuLedger) -> int:
    """Return the number of the next decision."""
    return ledger.decision.generation + 1 if ledger.decision else 1


def _check(view: GpuView, allocation: Allocation) -> None:
    check_allocation(*view, allocation)
