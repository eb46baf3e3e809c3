"""The nodes that the engines of several searches share: all of them declare the same ones, of the network's hosts."""

from collections.abc import Iterable, Mapping

from beamer.errors import ConflictError, InputError, nearest
from beamer.gpu.model import Node, check_nodes
from beamer.network.fabric import Fabric


def check_declared(nodes: tuple[Node, ...], others: Mapping[str, tuple[Node, ...]], fabric: Fabric, most_gpus: int) -> None:
    """Check that an engine may have `nodes`. others: those of the engines that are connected, by study.

    Raises `InputError` for what cannot be the nodes of any engine, `ConflictError` for others than the engines have that are
    connected: a trial can be given whatever GPUs there are, so that each engine has to reach all of them.
    """
    check_nodes(nodes)
    for i, node in enumerate(nodes):
        if node.name not in fabric.host:
            raise InputError(f"nodes[{i}].name", node.name, f"a host of the network: {nearest(node.name, fabric.host)}")
    gpus = sum(node.gpus for node in nodes)
    if not 1 <= gpus <= most_gpus:
        raise InputError("nodes.gpus", gpus, f"1 to {most_gpus} in all")
    for study, declared in others.items():
        if set(declared) != set(nodes):
            raise ConflictError(
                "nodes", _named(nodes), f"those of the engine of {study}, which shares them: {_named(declared)}"
            )


def up(declared: Iterable[Node], seen: Iterable[Iterable[Node]]) -> tuple[Node, ...]:
    """Return the declared nodes that an engine at least finds up, in order."""
    found = {node.name for nodes in seen for node in nodes}
    return tuple(node for node in declared if node.name in found)


def _named(nodes: Iterable[Node]) -> str:
    return ", ".join(f"{node.name} ({node.gpus} GPUs)" for node in nodes)
