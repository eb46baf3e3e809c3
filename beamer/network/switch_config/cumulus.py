"""Cumulus Linux: commands of NVUE, for all ports."""

from beamer.network.switch_config.queue_map import PortQueues, QueueMap
from beamer.network.switch_config.vendor import SwitchVendor, numbers

# NVUE has one mapping of egress queues, and a profile of each other kind, that hold for all ports.
_PROFILE = "default-global"


def _commands(found: QueueMap, ports: str) -> list[str]:
    """Return the lines. A switch priority has the number of its egress queue, which NVUE calls its traffic class."""
    untouched = {found.roce}
    return [
        f"nv set qos mapping {_PROFILE} trust l3",
        *(
            f"nv set qos mapping {_PROFILE} dscp {numbers(found.dscps(queue), ',')} switch-priority {queue}"
            for queue in found.used
            if queue not in untouched
        ),
        *(
            f"nv set qos egress-queue-mapping {_PROFILE} switch-priority {queue} traffic-class {queue}"
            for queue in found.used
            if queue not in untouched
        ),
        f"nv set qos egress-scheduler {_PROFILE} traffic-class {numbers(found.strict, ',')} mode strict",
        "nv config apply",
    ]


CUMULUS = SwitchVendor(
    title="Cumulus Linux 5.9 (NVUE)",
    # No queue is lossless by default; 3 is with `nv set qos roce`.
    port=PortQueues(classes=(6, 5, 4, 3, 2, 1), beside_roce=(6, 5, 4, 2, 1)),
    commands=_commands,
    sources=(
        "Cumulus Linux 5.9 User Guide, Quality of Service: Trust DSCP, Egress Queues, Egress Scheduler",
        "the same, RDMA over Converged Ethernet - RoCE: Default RoCE Mode Configuration",
    ),
    unconfirmed=(
        "that of two strict queues the larger comes first. The guide names no order; IEEE 802.1Q, 8.6.8.1, has this one.",
        "that queue 0 shares by DWRR, as it does by default. Nothing here sets it.",
    ),
    roce="DSCP 24 to 31 keep switch priority 3, whose queue, scheduler, PFC and ECN stay as they are.",
    comment=("# ", ""),
)
