"""Define a GPU policy as a package of one's own would, and run the public conformance suite on it. Extra: testing.

    python examples/gpu_policy.py

By this entry point of that package `beamer schedule --policy least-loss --set tries=3` finds it, as does every other command:

    [project.entry-points."beamer.gpu_policies"]
    least-loss = "gpu_policy:LeastLoss"
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from random import Random

from beamer.decision.policy import Stateless
from beamer.gpu.model import Allocation, Cluster, Job
from beamer.gpu.placement import pack
from beamer.gpu.policy import GpuPolicy, check_at_least


@dataclass(frozen=True)
class LeastLoss(GpuPolicy[Stateless]):
    """Let every job report a few times, then run those with the least loss. tries: how many times."""

    name = "least-loss"
    State = Stateless
    tries: int = 2

    def __post_init__(self) -> None:
        check_at_least(self, 1, "tries")

    def allocate(
        self, state: Stateless, cluster: Cluster, jobs: Sequence[Job], now: float, rng: Random
    ) -> tuple[Stateless, Allocation, float | None]:
        """Return what the jobs ask for, as far as it fits, in that order."""
        return state, pack(cluster, sorted(jobs, key=self._rank)), None

    def _rank(self, job: Job) -> float:
        if len(job.reports) < self.tries:
            return -inf
        loss = job.reports[-1].loss
        return loss if isfinite(loss) else inf


def main() -> None:
    """Run every check on the policy; one that fails raises."""
    from beamer.testing.gpu_policies import GPU_POLICY_CHECKS

    for check in GPU_POLICY_CHECKS:
        check(LeastLoss())
        print(f"{check.__name__}: passed")


if __name__ == "__main__":
    main()
