"""The nodes of a Ray cluster, and the resources of trials that are bound to them."""

from collections.abc import Iterable, Mapping
from typing import Any

import ray
from ray.tune import PlacementGroupFactory

from beamer.engines.ray_tune.hosts import RayNode
from beamer.errors import InputError
from beamer.gpu.devices import Devices

GPU, CPU = "GPU", "CPU"  # Ray's names of these resources
NODE_LABEL = "ray.io/node-id"  # Ray gives every node this label.


class ExactResources(PlacementGroupFactory):  # type: ignore[misc]
    """Resources of a trial whose process computes on these GPUs and no others: no other trial's are equal.

    devices: of all of its nodes. A trial finds them as `self.trial_resources.devices`.
    """

    def __init__(self, bundles: list[dict[str, Any]], devices: Devices, **options: Any) -> None:
        self.devices = devices
        super().__init__(bundles, **options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExactResources) and set(self.devices) == set(other.devices) and bool(super().__eq__(other))

    def __hash__(self) -> int:
        return hash(frozenset(self.devices))


def granted_resource(asked: Iterable[PlacementGroupFactory]) -> str:
    """Return what a policy grants to trials that ask for these resources: GPUs, or CPUs in their place.

    It is CPUs where no trial asks for a GPU and no node that is up declares one: each CPU of a node then counts as a GPU.
    """
    if any(one.required_resources.get(GPU) for one in asked):
        return GPU
    return GPU if any(node["Resources"].get(GPU) for node in ray.nodes() if node["Alive"]) else CPU


def alive(resource: str = GPU) -> tuple[RayNode, ...]:
    """Return the nodes that are up and declare what is granted, in order of their addresses. Half a GPU is none."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    found = [
        RayNode(
            node["NodeID"],
            node["NodeManagerAddress"],
            (node["NodeName"], node["NodeManagerHostname"]),
            int(node["Resources"].get(resource, 0)),
            node["Resources"].get(CPU, 0.0),
        )
        for node in sorted(nodes, key=lambda node: (node["NodeManagerAddress"], node["NodeID"]))
    ]
    return tuple(node for node in found if node.gpus)


def gpus_asked(asked: PlacementGroupFactory, resource: str = GPU) -> int:
    """Return how many GPUs a trial's resources hold, or CPUs where those are granted.

    Raises `InputError` unless they are at least one, and whole.
    """
    count = asked.required_resources.get(resource, 0.0)
    if count < 1 or count != int(count):
        expected = f'whole {resource}s, as of tune.with_resources(..., {{"{resource.lower()}": 1}})'
        raise InputError("resources per trial", asked.required_resources, expected)
    return int(count)


def check_placeable(asked: PlacementGroupFactory) -> None:
    """Check that a trial leaves it to the policy on which nodes its GPUs are.

    Raises `InputError` for several bundles, as of a Trainer's `ScalingConfig`, a strategy of placement and labels of nodes.
    """
    labels = asked._kwargs.get("bundle_label_selector") or []
    if labels and all(set(label) == {NODE_LABEL} for label in labels):
        return  # The trial belongs to a restored experiment, with labels that `pinned` made.
    bundles = [{}, *asked.bundles] if asked.head_bundle_is_empty else asked.bundles
    if len(bundles) > 1:
        expected = "one bundle for the whole trial: it is given one on each node where it is granted GPUs"
        raise InputError("resources per trial: bundles, as of a ScalingConfig", bundles, expected)
    if asked.strategy != "PACK":
        expected = "'PACK', the default: the policy decides which nodes a trial is on"
        raise InputError("resources per trial: strategy, as of a ScalingConfig", asked.strategy, expected)
    if options := (*asked._args, *asked._kwargs.items()):
        raise InputError("resources per trial: options", options, "none: the policy decides which nodes a trial is on")


def pinned(
    gpus: Mapping[str, int], asked: PlacementGroupFactory, devices: Devices = (), resource: str = GPU
) -> PlacementGroupFactory:
    """Return the resources of a trial that has so many GPUs on each node: a bundle per node, bound to that node.

    gpus: by the node's id. devices: the GPUs that it is to compute on; none: Ray picks them. resource: that is granted. Each
    GPU has its share of what else the trial `asked` for, CPUs above all. The trial itself runs in the first bundle, on the node
    with most of its GPUs.
    """
    share = {name: amount / gpus_asked(asked, resource) for name, amount in asked.required_resources.items()}
    by_size = sorted(gpus.items(), key=lambda item: -item[1])
    bundles: list[dict[str, Any]] = [{name: amount * count for name, amount in share.items()} for _, count in by_size]
    bound = [{NODE_LABEL: node} for node, _ in by_size]
    if devices:
        return ExactResources(bundles, devices, bundle_label_selector=bound)
    return PlacementGroupFactory(bundles, bundle_label_selector=bound)
