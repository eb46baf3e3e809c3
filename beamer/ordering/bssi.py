"""Bottleneck-select-scale-iterate: an order of items that share links, and the lower bound that comes with it.

The algorithm is Sincronia's for coflows [source]; taking stages or studies as items, each with a private virtual link for its
critical path, is ours [rebuilt].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_VIRTUAL = -1  # links are numbered from 0; the virtual link of item i is _VIRTUAL - i


@dataclass(frozen=True)
class Item:
    """What is ordered as one.

    weight: its share in the objective. load: seconds that its remaining work needs of each link alone.
    critical_s: the least time that its remaining work takes with the whole fabric to itself (T_s).
    """

    weight: float
    load: Mapping[int, float]
    critical_s: float


@dataclass(frozen=True)
class Sequenced:
    """An order of items as their positions, first served first, and its dual value.

    dual_s: lower bound on the sum of weight x completion time of *any* schedule in which all items are released at 0, seconds.
    """

    order: tuple[int, ...]
    dual_s: float


def sequence(items: Sequence[Item]) -> Sequenced:
    """Order items for the least sum of weight x completion time; equal items stay in the order given.

    O(n (n + |P|)) with sparse loads. Items without any load come first: they wait for nothing.
    """
    loads = [{p: s for p, s in {**item.load, _VIRTUAL - i: item.critical_s}.items() if s > 0} for i, item in enumerate(items)]
    users: dict[int, set[int]] = {}
    total: dict[int, float] = {}
    for i, load in enumerate(loads):
        for p, seconds in load.items():
            users.setdefault(p, set()).add(i)
            total[p] = total.get(p, 0.0) + seconds
    weight = [item.weight for item in items]
    backwards: list[int] = []
    dual = 0.0
    while total:
        bottleneck = max(total, key=lambda p: total[p])
        last = min(users[bottleneck], key=lambda i: (weight[i] / loads[i][bottleneck], -i))
        scale = weight[last] / loads[last][bottleneck]
        on_it = [loads[i][bottleneck] for i in users[bottleneck]]
        dual += scale * (sum(on_it) ** 2 + sum(s * s for s in on_it)) / 2
        for i in users[bottleneck] - {last}:
            weight[i] = max(weight[i] - scale * loads[i][bottleneck], 0.0)
        for p, seconds in loads[last].items():
            users[p].remove(last)
            total[p] -= seconds
            if not users[p]:
                del total[p]
        backwards.append(last)
    placed = set(backwards)
    idle = [i for i in range(len(items)) if i not in placed]
    return Sequenced((*idle, *reversed(backwards)), dual)


def weighted_completion(items: Sequence[Item], order: Sequence[int]) -> float:
    """Estimate the sum of weight x completion time when every link serves the items one after another in `order`, seconds.

    An item is complete when its slowest link has served it and everything before it, and not before its critical path.
    """
    served: dict[int, float] = {}
    objective = 0.0
    for i in order:
        item = items[i]
        end = item.critical_s
        for p, seconds in item.load.items():
            served[p] = served.get(p, 0.0) + seconds
            end = max(end, served[p])
        objective += item.weight * end
    return objective
