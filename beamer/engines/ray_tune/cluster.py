"""The nodes of a Ray cluster, and the resources of trials that are bound to them."""

from collections.abc import Mapping
from typing import Any

import ray
from ray.tune import PlacementGroupFactory

from beamer.errors import InputError
from beamer.gpu.model import Node

NODE_LABEL = "ray.io/node-id"  # Ray gives every node this label


def alive() -> tuple[Node, ...]:
    """Return the nodes that are up and declare GPUs, in order of their addresses. Half a GPU is none."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    found = [
        Node(node["NodeID"], int(node["Resources"].get("GPU", 0)), node["Resources"].get("CPU", 0.0))
        for node in sorted(nodes, key=lambda node: (node["NodeManagerAddress"], node["NodeID"]))
    ]
    return tuple(node for node in found if node.gpus)


def gpus_asked(asked: PlacementGroupFactory) -> int:
    """Return how many GPUs a trial's resources hold. Raises `InputError` unless they are at least one, and whole."""
    gpus = asked.required_resources.get("GPU", 0.0)
    if gpus < 1 or gpus != int(gpus):
        raise InputError(
            "resources per trial", asked.required_resources, 'whole GPUs, as of tune.with_resources(..., {"gpu": 1})'
        )
    return int(gpus)


def pinned(gpus: Mapping[str, int], asked: PlacementGroupFactory) -> PlacementGroupFactory:
    """Return the resources of a trial that has so many GPUs on each node: a bundle per node, bound to that node.

    Each GPU has its share of what else the trial `asked` for, CPUs above all. The trial itself runs in the first bundle, on the
    node with most of its GPUs.
    """
    share = {name: amount / gpus_asked(asked) for name, amount in asked.required_resources.items()}
    by_size = sorted(gpus.items(), key=lambda item: -item[1])
    bundles: list[dict[str, Any]] = [{name: amount * count for name, amount in share.items()} for _, count in by_size]
    return PlacementGroupFactory(bundles, bundle_label_selector=[{NODE_LABEL: node} for node, _ in by_size])
