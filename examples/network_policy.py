"""Define a network policy as a package of one's own would, and run the public conformance suite on it. Extra: testing.

    python examples/network_policy.py

By this entry point of that package `beamer simulate --policies fair,smallest-first` finds it, as does every other command:

    [project.entry-points."beamer.network_policies"]
    smallest-first = "network_policy:SmallestFirst"
"""

from random import Random

import numpy as np

from beamer.decision.policy import Stateless
from beamer.network.policy import NetworkPolicy, Order, Tier
from beamer.network.snapshot import Snapshot


class SmallestFirst(NetworkPolicy[Stateless]):
    """Serve jobs of small synchronisations first; those of sizes between the same two powers of four share."""

    name = "smallest-first"
    State = Stateless
    shares = True

    def order(self, state: Stateless, snapshot: Snapshot, now: float, rng: Random) -> tuple[Stateless, Order, float | None]:
        """Return a tier for each power of four, the slowest jobs of a tier first."""
        jobs = snapshot.jobs
        power = np.floor(np.log2(np.maximum(jobs.size_bits, 1.0)) / 2)
        slowest = np.argsort(-jobs.iteration_s, kind="stable")
        tiers = [slowest[power[slowest] == one] for one in np.unique(power)]
        return state, tuple(Tier(tuple(jobs.key[i] for i in places)) for places in tiers), None


def main() -> None:
    """Run every check on the policy; one that fails raises."""
    from beamer.testing.network_policies import NETWORK_POLICY_CHECKS

    for check in NETWORK_POLICY_CHECKS:
        check(SmallestFirst())
        print(f"{check.__name__}: passed")


if __name__ == "__main__":
    main()
