"""The seam of GPU policies: from what is known now to what every job is given.

Simulator and engines call the same policies. A policy is one frozen dataclass, whose fields are its parameters, with one method
in one file, and one line in the registry of `beamer.gpu.policies`.
"""

from abc import abstractmethod
from collections.abc import Sequence
from math import inf
from random import Random
from typing import Any, ClassVar, TypeVar

from beamer.decision.policy import Policy
from beamer.errors import InputError
from beamer.gpu.model import Allocation, Cluster, Job
from beamer.studies.model import MAX_SECONDS

S = TypeVar("S")

MIN_INTERVAL_S = 1e-3
"""The shortest time between two decisions. Today's Unix times are exact to a quarter of a microsecond in floating point: after
a shorter one than that it would be time at once, without end."""


class GpuPolicy(Policy[S]):
    """A GPU policy.

    fair: whether every job that fits the cluster makes progress as long as it waits.
    resizes: whether it gives jobs other numbers of GPUs than they ask for.
    """

    fair: ClassVar[bool] = False
    resizes: ClassVar[bool] = False

    @abstractmethod
    def allocate(
        self, state: S, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[S, Allocation, float | None]:
        """Decide what every job is given.

        jobs: those that have not ended, in order of submission. now: seconds, on the clock of the jobs' times.
        Returns the new state, the whole allocation, and when to be asked again if nothing happens (None: not at all). It is
        asked whenever a job is submitted, reports or ends, a stage ends, a node comes or goes, and at that time. Equal
        arguments give equal results.
        """


def check_positive(policy: GpuPolicy[Any], *names: str, endless: bool = False) -> None:
    """Check that parameters of a policy are numbers above 0. Raises `InputError` naming the first that is not.

    endless: whether they may be infinite.
    """
    for name in names:
        value = getattr(policy, name)
        if not value > 0 or (value == inf and not endless):
            raise InputError(name, value, "a number above 0, infinity for ever" if endless else "a finite number above 0")


def check_interval(policy: GpuPolicy[Any], *names: str) -> None:
    """Check that parameters of a policy are times between its decisions. Raises `InputError` naming the first that is not."""
    for name in names:
        value = getattr(policy, name)
        if not MIN_INTERVAL_S <= value <= MAX_SECONDS:
            expected = f"a finite number above 0, from {MIN_INTERVAL_S} to {MAX_SECONDS} seconds"
            raise InputError(name, value, expected)


def check_at_least(policy: GpuPolicy[Any], least: float, *names: str, endless: bool = False) -> None:
    """Check that parameters of a policy are numbers of at least `least`. Raises `InputError` naming the first that is not.

    endless: whether they may be infinite.
    """
    for name in names:
        value = getattr(policy, name)
        if not least <= value <= inf or (value == inf and not endless):
            raise InputError(name, value, f"at least {least}" + ("" if endless else ", finite"))


def check_share(policy: GpuPolicy[Any], *names: str) -> None:
    """Check that parameters of a policy are shares. Raises `InputError` naming the first that is not."""
    for name in names:
        value = getattr(policy, name)
        if not 0 <= value <= 1:
            raise InputError(name, value, "0 to 1")
