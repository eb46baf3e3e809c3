"""Whether the memory of a job that was moved to the host can be brought back onto other GPUs than it came from."""

from collections.abc import Mapping

from beamer.engines.local.eviction import DeviceMemory
from beamer.engines.local.record import Record
from beamer.engines.local.spec import LocalCluster
from beamer.gpu.engine import Placement


def stays_on_nodes(record: Record, placement: Placement) -> bool:
    """Return whether every rank of a job would be on the node where it is, with the same batch size, but on another GPU."""
    return placement != record.placement and _but_gpus(placement) == _but_gpus(record.placement)


def obstacle(record: Record, placement: Placement, cluster: LocalCluster, memory: Mapping[str, DeviceMemory]) -> str:
    """Return why a job's memory cannot be brought back onto other GPUs of its nodes, "": it can.

    memory: of this machine's GPUs, by what CUDA_VISIBLE_DEVICES calls them.
    """
    if "CUDA_VISIBLE_DEVICES" in dict(record.spec.env):
        return "their env sets CUDA_VISIBLE_DEVICES, so that they may have other GPUs than they were given"
    pairs: set[tuple[str, str, str]] = set()
    for (node, index), (_, other) in zip(record.placement.devices, placement.devices, strict=True):
        there = cluster.node[node]
        if index >= there.gpus:
            return f"GPU {index} of {node} is no longer declared"
        pairs.add((node, there.device(index), there.device(other)))
    if not len(pairs) == len({(node, old) for node, old, _ in pairs}) == len({(node, new) for node, _, new in pairs}):
        return "they have not as many GPUs there, as ranks share some"
    for node, old, new in sorted(pairs):
        known = memory if cluster.node[node].launcher.direct else {}
        before, after = (known[device].chip if device in known else "" for device in (old, new))
        if old != new and not (before and after):
            return f"GPUs {old} and {new} of {node} are not known to be of the same chip"
        if before != after:
            return f"of {node}, GPU {old} is an {before}, GPU {new} an {after}"
    return ""


def _but_gpus(placement: Placement) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    return tuple(node for node, _ in placement.devices), placement.servers, placement.batch_size
