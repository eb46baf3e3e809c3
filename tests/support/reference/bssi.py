"""Bottleneck-select-scale-iterate over dicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """What is ordered as one.

    weight: its share in the objective. load: seconds that it needs of each link alone. critical_s: the least time that it takes
    with the whole fabric to itself.
    """

    weight: float
    load: Mapping[int, float]
    critical_s: float


def sequence(items: Sequence[Item], links: int) -> tuple[tuple[int, ...], float]:
    """Return positions, first served first, and the dual value in seconds; links are below `links`.

    Equal items stay in the order given, items without load come first; of equally busy links the lowest is the bottleneck.
    """
    virtual = [{**item.load, links + i: item.critical_s} for i, item in enumerate(items)]
    loads = [{p: seconds for p, seconds in load.items() if seconds > 0} for load in virtual]
    users: dict[int, list[int]] = {}
    total: dict[int, float] = {}
    for i, load in enumerate(loads):
        for p, seconds in load.items():
            users.setdefault(p, []).append(i)
            total[p] = total.get(p, 0.0) + seconds
    weight = [item.weight for item in items]
    backwards: list[int] = []
    dual = 0.0
    while total:
        bottleneck = max(total, key=lambda p: (total[p], -p))
        last = min(users[bottleneck], key=lambda i: (weight[i] / loads[i][bottleneck], -i))
        scale = weight[last] / loads[last][bottleneck]
        on_it = [loads[i][bottleneck] for i in users[bottleneck]]
        dual += scale * (sum(on_it) ** 2 + sum(s * s for s in on_it)) / 2
        for i in users[bottleneck]:
            if i != last:
                weight[i] = max(weight[i] - scale * loads[i][bottleneck], 0.0)
        for p, seconds in loads[last].items():
            users[p].remove(last)
            total[p] -= seconds
            if not users[p]:
                del total[p]
        backwards.append(last)
    idle = [i for i in range(len(items)) if i not in backwards]
    return (*idle, *reversed(backwards)), dual


def weighted_completion(items: Sequence[Item], order: Sequence[int]) -> float:
    """Return the sum of weight x completion time when every link serves the items one after another in `order`, seconds."""
    served: dict[int, float] = {}
    objective = 0.0
    for i in order:
        end = items[i].critical_s
        for p, seconds in items[i].load.items():
            served[p] = served.get(p, 0.0) + seconds
            end = max(end, served[p])
        objective += items[i].weight * end
    return objective


def pool(group: Sequence[int], groups: int, loads: Sequence[Mapping[int, float]]) -> list[dict[int, float]]:
    """Return the loads of rows added up by group."""
    pooled: list[dict[int, float]] = [{} for _ in range(groups)]
    for g, load in zip(group, loads, strict=True):
        for p, seconds in load.items():
            pooled[g][p] = pooled[g].get(p, 0.0) + seconds
    return pooled
