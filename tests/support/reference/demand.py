"""What a flow asks of the network, as every plain allocator takes it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class FlowDemand:
    """A flow that can use any rate.

    usage: per link that it loads, the bit/s there for each bit/s of its rate: 1 on its path, unless it stands for several flows
    at once. Empty for a flow that stays on one host. klass: 0 is served first. coflow: flows of one class and one coflow belong
    together. bits: what it has left to move.
    """

    usage: Mapping[int, float]
    klass: int = 0
    coflow: int = 0
    bits: float = 1.0


Rates = Callable[[Sequence[FlowDemand], Sequence[float]], list[float]]
"""(demands, capacity per link in bit/s) -> rate per demand in bit/s; infinite for a demand that uses no link."""
