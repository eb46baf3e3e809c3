"""Which GPUs of a node a grant means: jobs stay where they are, others take what is free."""

from collections.abc import Collection, Iterable, Mapping

from beamer.errors import InputError
from beamer.gpu.model import Allocation, Cluster, Grant

Devices = tuple[tuple[str, int], ...]
"""GPUs as (node, index on it), in order: rank i of the job runs on the i-th.

Nodes come as the cluster lists them, which is rack by rack where they are listed so: a ring, whose ranks send to the next ones,
then crosses from each rack to another no more than once.
"""


def assign(
    cluster: Cluster, allocation: Allocation, before: Mapping[str, Devices], running: Collection[str] = ()
) -> dict[str, Devices]:
    """Return the GPUs of every job of `allocation`, no two jobs on one.

    before: the GPUs that jobs have or had last, on which their memory may lie. running: those that have them now; they keep
    what they are granted, before others get back what they had as far as it is free, then the lowest indices.
    """
    free = {node.name: dict.fromkeys(range(node.gpus)) for node in cluster.nodes}
    assigned: dict[str, Devices] = {}

    def take(devices: Iterable[tuple[str, int]]) -> None:
        for node, index in devices:
            del free[node][index]

    def is_free(devices: Devices) -> bool:
        return all(index in free.get(node, ()) for node, index in devices)

    pending: list[tuple[str, Grant]] = []
    for key, grant in sorted(allocation.items(), key=lambda item: item[0] not in running):
        had = before.get(key, ())
        if _counts(had) == dict(grant.gpus) and is_free(had):
            take(had)
            assigned[key] = had
        else:
            pending.append((key, grant))
    for key, grant in pending:
        again = {device: None for device in before.get(key, ()) if is_free((device,))}
        devices: list[tuple[str, int]] = []
        for node, count in cluster.in_order(grant.gpus):
            mine = [index for name, index in again if name == node][:count]
            mine += [index for index in free[node] if index not in mine][: count - len(mine)]
            devices += [(node, index) for index in sorted(mine)]
        take(devices)
        assigned[key] = tuple(devices)
    return assigned


def check_devices(cluster: Cluster, allocation: Allocation, devices: Mapping[str, Devices]) -> None:
    """Check that `devices` are as an allocation that can be carried out says, no two jobs on one. Raises `InputError`."""
    taken: set[tuple[str, int]] = set()
    for key in allocation.keys() | devices.keys():
        granted, own = dict(allocation[key].gpus) if key in allocation else {}, devices.get(key, ())
        if _counts(own) != granted:
            raise InputError(f"devices[{key}]", own, f"as many GPUs of each node as were granted: {granted}")
        for node, index in own:
            if (node, index) in taken or not 0 <= index < cluster.node[node].gpus:
                raise InputError(f"devices[{key}]", (node, index), "a GPU of the node that no other job is given")
            taken.add((node, index))


def _counts(devices: Devices) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node, _ in devices:
        counts[node] = counts.get(node, 0) + 1
    return counts
