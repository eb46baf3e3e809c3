"""A policy with a limit on its decisions, so that a run without progress fails instead of running on."""

from random import Random
from typing import Any

from beamer.network.policy import NetworkPolicy, Order
from beamer.network.snapshot import Snapshot

MAX_DECISIONS = 3000  # decisions; what the strategies draw needs a few hundred at most


class Bounded(NetworkPolicy[Any]):
    """Delegate to `policy`, at most `most` times."""

    def __init__(self, policy: NetworkPolicy[Any], most: int = MAX_DECISIONS) -> None:
        self._policy = policy
        self._most = most
        self._decisions = 0
        for attribute in ("name", "by_coflow", "orders", "shares", "State"):
            setattr(self, attribute, getattr(policy, attribute))

    def initial(self) -> Any:
        """Return what `policy` remembers before its first decision."""
        return self._policy.initial()

    def order(self, state: Any, snapshot: Snapshot, now: float, rng: Random) -> tuple[Any, Order, float | None]:
        """Return the order of `policy`."""
        self._decisions += 1
        assert self._decisions <= self._most, f"{self._policy.name} has decided {self._decisions} times by {now:g} s"
        return self._policy.order(state, snapshot, now, rng)
