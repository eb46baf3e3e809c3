"""Classes as DSCP codepoints: what hosts mark, what edge switches write and every port's queues go by."""

from beamer.errors import InputError
from beamer.network.plan import QUEUES


def codepoint(klass: int) -> int:
    """Return the DSCP of class `klass`: xxx011, within the pool that RFC 2474 leaves to local use."""
    if not 0 <= klass < QUEUES:
        raise InputError("class", klass, f"0 to {QUEUES - 1}")
    return 8 * klass + 3


CODEPOINTS = tuple(codepoint(k) for k in range(QUEUES))

ACKNOWLEDGEMENT = 7
"""The DSCP of pure acknowledgements between a host and its edge switch, which gives them class 0; of the same pool."""
