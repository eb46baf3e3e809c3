"""The nodes that the engines of several searches share: all of them declare the same ones, of the network's hosts."""

from collections.abc import Collection, Iterable, Mapping

from beamer.errors import ConflictError, InputError, nearest
from beamer.gpu.model import Node, check_nodes
from beamer.network.fabric import Fabric

MAX_NAMED = 5  # nodes in a message


def check_declared(nodes: tuple[Node, ...], others: Mapping[str, tuple[Node, ...]], fabric: Fabric, most_gpus: int) -> None:
    """Check that an engine may have `nodes`. others: those that are in use, by who uses them.

    Raises `InputError` for what cannot be the nodes of any engine, `ConflictError` for others than those in use: a trial can be
    given whatever GPUs there are, so that each engine has to reach all of them.
    """
    check_nodes(nodes)
    for i, node in enumerate(nodes):
        if node.name not in fabric.host:
            raise InputError(f"nodes[{i}].name", node.name, f"a host of the network: {nearest(node.name, fabric.host)}")
    gpus = sum(node.gpus for node in nodes)
    if not 1 <= gpus <= most_gpus:
        raise InputError("nodes.gpus", gpus, f"1 to {most_gpus} in all")
    for who, used in others.items():
        of_engine = who.startswith("the engine")
        differ = {*nodes} ^ {*used} if of_engine else {*used} - {*nodes}
        if differ:
            names = {node.name for node in differ}
            expected = f"the nodes of {who}, which are shared: {_named(node for node in used if node.name in names)}"
            raise ConflictError("nodes", _named(node for node in nodes if node.name in names), expected)


def up(declared: Iterable[Node], seen: Collection[tuple[Node, ...]], besides: Collection[str]) -> tuple[Node, ...]:
    """Return the declared nodes that every engine finds up, and those `besides`, in order. seen: by engine."""
    found = [{node.name for node in nodes} for nodes in seen]
    return tuple(node for node in declared if node.name in besides or all(node.name in names for names in found))


def _named(nodes: Iterable[Node]) -> str:
    named = [f"{node.name} ({node.gpus} GPUs, {node.cpus:g} cores)" for node in nodes]
    more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
    return (", ".join(named[:MAX_NAMED]) or "none of them") + more
