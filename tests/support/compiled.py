"""Compile the kernels that tests use, once, before they run: `python -m tests.support.compiled`.

numba keeps what it compiled beside the sources, for all later processes of this checkout. Without this, each worker of a test
run compiles for itself, and the first test that needs a kernel waits for a minute.
"""

from beamer.errors import InputError
from beamer.network.allocation import ALLOCATORS, check_pair
from beamer.network.policies import network_policy
from beamer.sim import simulate
from beamer.workloads.scenario import load, shipped

POLICIES = ("fair", "sebf", "beamer")  # All others take the same kernels.


def main() -> None:
    """Run the shipped scenario under every allocator."""
    scenario = load(shipped())
    for name in ALLOCATORS:
        for policy in POLICIES:
            allocator = ALLOCATORS[name]()
            try:
                check_pair(network_policy(policy), allocator)
            except InputError:  # they do not go together
                continue
            simulate(scenario, policy, allocator=allocator)


if __name__ == "__main__":
    main()
