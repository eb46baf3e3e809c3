"""CoflowSim's fair share."""

import math
from collections import Counter
from collections.abc import Sequence

from tests.support.reference.demand import FlowDemand


def equal_split(demands: Sequence[FlowDemand], capacity: Sequence[float]) -> list[float]:
    """Return for each flow the least, over its links, of capacity / flows there, bit/s, as CoflowSim does."""
    flows = Counter(link for demand in demands for link in demand.usage)
    return [
        min((capacity[link] / (flows[link] * use) for link, use in demand.usage.items()), default=math.inf)
        for demand in demands
    ]
