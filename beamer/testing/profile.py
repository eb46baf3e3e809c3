"""How the suites run hypothesis: no deadline, since machines differ, and the same examples every time."""

from hypothesis import HealthCheck, Phase, settings

PROFILE = settings(deadline=None, max_examples=30, derandomize=True, database=None)
POLICIES = settings(PROFILE, max_examples=15)  # These settings are for tests that run for each of many policies.
RUNS = settings(  # These are for whole runs of many pairs; failures stay as found, since to shrink them takes minutes.
    PROFILE, max_examples=6, phases=(Phase.explicit, Phase.generate), suppress_health_check=[HealthCheck.too_slow]
)
