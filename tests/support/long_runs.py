"""How hypothesis runs whole simulations of many pairs."""

from hypothesis import HealthCheck, Phase, settings

from beamer.testing.profile import PROFILE

RUNS = settings(  # Failures stay as found, since to shrink them takes minutes.
    PROFILE, max_examples=6, phases=(Phase.explicit, Phase.generate), suppress_health_check=[HealthCheck.too_slow]
)
