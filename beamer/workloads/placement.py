"""Where a job's processes run: one process per host, hosts with the fewest processes first where there is a choice."""

from collections.abc import Callable, Mapping
from random import Random

from beamer.errors import InputError
from beamer.network.fabric import Fabric

HostChoice = Callable[[Fabric, int, Mapping[str, int], Random], tuple[str, ...]]


def packed(fabric: Fabric, processes: int, load: Mapping[str, int], rng: Random) -> tuple[str, ...]:
    """Return hosts on the fewest edge switches, those of one switch side by side.

    load: processes that hosts have already, absent for none; among the sets of fewest switches it decides, then `rng`. Raises
    `InputError` for more processes than hosts.
    """
    _check(fabric, processes)
    leaves: dict[str, list[str]] = {}
    for host, leaf in fabric.edge_of.items():
        leaves.setdefault(leaf, []).append(host)
    shuffled = rng.sample(sorted(leaves), len(leaves))
    idlest = {leaf: sorted(rng.sample(leaves[leaf], len(leaves[leaf])), key=lambda h: load.get(h, 0)) for leaf in shuffled}
    by_size = sorted(shuffled, key=lambda leaf: -len(idlest[leaf]))
    chosen: list[str] = []
    while len(chosen) < processes:
        missing = processes - len(chosen)
        fewest = _fewest([len(idlest[leaf]) for leaf in by_size], missing)
        # A leaf may come next if the largest others still hold the rest without needing one leaf more.
        feasible = [
            leaf
            for leaf in by_size
            if len(idlest[leaf]) + sum(len(idlest[other]) for other in _largest(by_size, leaf, fewest - 1)) >= missing
        ]
        leaf = min(feasible, key=lambda leaf: _mean(idlest[leaf][:missing], load))
        chosen += idlest[leaf][:missing]
        by_size.remove(leaf)
    return tuple(chosen)


def scattered(fabric: Fabric, processes: int, load: Mapping[str, int], rng: Random) -> tuple[str, ...]:
    """Return hosts drawn by `rng` wherever they are, whatever their load. Raises `InputError` for more processes than hosts."""
    _check(fabric, processes)
    return tuple(rng.sample([host.name for host in fabric.hosts], processes))


PLACEMENTS: dict[str, HostChoice] = {"packed": packed, "random": scattered}


def _check(fabric: Fabric, processes: int) -> None:
    if not 1 <= processes <= len(fabric.hosts):
        raise InputError("workers", processes, f"1 to {len(fabric.hosts)} processes of a job, servers included: one per host")


def _fewest(sizes: list[int], processes: int) -> int:
    """Return how many of the leaves, largest first, it takes."""
    held = 0
    for i, size in enumerate(sizes):
        held += size
        if held >= processes:
            return i + 1
    return len(sizes)


def _largest(by_size: list[str], without: str, how_many: int) -> list[str]:
    return [leaf for leaf in by_size[: how_many + 1] if leaf != without][:how_many]


def _mean(hosts: list[str], load: Mapping[str, int]) -> float:
    return sum(load.get(host, 0) for host in hosts) / len(hosts)
