"""The dual bound: the value of the dual solution that bottleneck-select-scale-iterate builds along with its order.

The primal-dual argument is that of Sincronia (Agarwal et al. 2018, SIGCOMM) for coflows; items with private links are ours.
"""

import numpy as np

from beamer.bounds.instance import Instance
from beamer.errors import InputError
from beamer.network import bssi


def dual(instance: Instance) -> float:
    """Return the dual bound on the sum of weight x (completion - release), seconds.

    O(n (n + P)). Holds for every schedule: on link p, sum over A of load x completion is at least ((sum load)^2 + sum load^2)
    / 2 for any set A, and the dual weighs such inequalities so that no item gets more than its weight. Items' private links
    carry `Instance.floor_s`, so that heads and tails count there.

    Raises `InputError` unless all items are released at one time.
    """
    if instance.items and (spread_s := float(np.ptp(instance.release_s))) > 0:
        raise InputError("instance.release_s", spread_s, "one release time for all items, for the dual bound")
    load = instance.load
    items = bssi.Items(
        instance.weight,
        load.indptr.astype(np.int64),
        load.indices.astype(np.int64),
        load.data,
        instance.floor_s - instance.release_s,
        load.shape[1],
    )
    return max(bssi.sequence(items)[1], instance.floors_s())
