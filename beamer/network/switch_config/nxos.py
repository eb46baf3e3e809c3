"""Cisco NX-OS on Nexus 9000: classes by DSCP into QoS groups, and a queuing policy of the system."""

from beamer.network.switch_config.queue_map import PortQueues, QueueMap
from beamer.network.switch_config.vendor import SwitchVendor, numbers

_NAME = "BEAMER"
_QUEUES = range(7, 0, -1)
_BOTH, _ONE, _NONE = (f"bandwidth remaining percent {share}" for share in (50, 100, 0))


def _commands(found: QueueMap, ports: str) -> list[str]:
    """Return the lines. A QoS group has the number of its queue; what no class has is in group 0, the default."""
    groups = [queue for queue in found.used if queue != found.other]
    lines = []
    for group in groups:
        lines += [f"class-map type qos match-any {_NAME}-{group}", f"  match dscp {numbers(found.dscps(group), ',')}"]
    lines += [f"policy-map type qos {_NAME}-IN"]
    for group in groups:
        lines += [f"  class {_NAME}-{group}", f"    set qos-group {group}"]
    lines += [f"policy-map type queuing {_NAME}-OUT"]
    for queue in _QUEUES:
        lines += [f"  class type queuing c-out-8q-q{queue}", f"    {_scheduler(found, queue)}"]
    lines += ["  class type queuing c-out-8q-q-default", f"    {_ONE if found.roce is None else _BOTH}"]
    lines += ["system qos", f"  service-policy type queuing output {_NAME}-OUT"]
    return [*lines, f"interface {ports}", f"  service-policy type qos input {_NAME}-IN"]


def _scheduler(found: QueueMap, queue: int) -> str:
    """Return how a queue is served: the first strict one at level 1, which comes before level 2."""
    if queue in found.strict:
        return f"priority level {1 + found.strict.index(queue)}"
    return _BOTH if queue == found.roce else _NONE


NXOS = SwitchVendor(
    title="Cisco Nexus 9000, NX-OS 10.5(x), eight queues",
    # Groups of strict priority are the largest numbers and next to each other (guidelines of the QoS guide).
    port=PortQueues(classes=(6, 5, 4, 3, 2, 1), beside_roce=(6, 5, 4)),
    commands=_commands,
    sources=(
        "Cisco Nexus 9000 Series NX-OS Quality of Service Configuration Guide, 10.5(x), Configure Queuing and Scheduling: "
        "Guidelines and Limitations, on several priority queues",
        "Cisco, terraform-provider-nxos, queuing_qos_policy_map_match_class_map_priority: levels 1 to 8",
        "Microsoft, AzureLocal-Supportability, Reference-TOR-QOS-Policy-Configuration.md: both policies, the names of queues",
    ),
    unconfirmed=("how many levels a model takes, and that level 1 comes first. By default queue 7 has level 1.",),
    roce="Half of what classes leave is its share: put your own share and ECN there. PFC and network-qos stay as they are.",
    ports="Ethernet1/1-32",
)
