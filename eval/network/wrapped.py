"""Network policies around another one: with a clock, or told what no live system knows."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from beamer.network.policies import NetworkPolicy, Order
from beamer.network.snapshot import RunningStudy, Snapshot
from beamer.workloads.scenario import Scenario
from eval.timing import timed


class Wrapped(NetworkPolicy[Any]):
    """Another policy, under its own name."""

    def __init__(self, policy: NetworkPolicy[Any]) -> None:
        self._policy = policy
        self.name = policy.name  # type: ignore[misc]
        self.State = policy.State
        self.by_coflow, self.orders, self.shares = policy.by_coflow, policy.orders, policy.shares  # type: ignore[misc]

    def order(self, state: Any, snapshot: Snapshot, now: float, rng: Random) -> tuple[Any, Order, float | None]:
        """Order the running jobs as the other policy does."""
        return self._policy.order(state, snapshot, now, rng)


class Timed(Wrapped):
    """Another policy, with the seconds that each of its decisions took."""

    def __init__(self, policy: NetworkPolicy[Any]) -> None:
        super().__init__(policy)
        self.seconds: list[float] = []
        self._timed = timed(super().order, self.seconds)

    def order(self, state: Any, snapshot: Snapshot, now: float, rng: Random) -> tuple[Any, Order, float | None]:
        """Order the running jobs as the other policy does, and note how long it took."""
        return self._timed(state, snapshot, now, rng)


class ToldSurvivors(Wrapped):
    """Another policy, told which trials each later rung of a scenario will hold."""

    def __init__(self, policy: NetworkPolicy[Any], scenario: Scenario) -> None:
        super().__init__(policy)
        self._survivors: Mapping[tuple[str, str], tuple[str, ...]] = {
            (study.name, stage.name): tuple(job.name for job in stage.jobs)
            for study in scenario.studies
            for stage in study.stages
        }

    def order(self, state: Any, snapshot: Snapshot, now: float, rng: Random) -> tuple[Any, Order, float | None]:
        """Order the running jobs as the other policy does with that knowledge."""
        told = replace(snapshot, studies=tuple(self._told(study) for study in snapshot.studies))
        return super().order(state, told, now, rng)

    def _told(self, study: RunningStudy) -> RunningStudy:
        later = (replace(rung, survivors=self._survivors.get((study.name, rung.name), ())) for rung in study.later)
        return replace(study, later=tuple(later))
