"""HPE Aruba Networking AOS-CX: a map of DSCP to local priorities, and profiles of queues for all ports."""

from beamer.network.switch_config.queue_map import PortQueues, QueueMap
from beamer.network.switch_config.vendor import SwitchVendor

_NAME = "BEAMER"


def _commands(found: QueueMap, ports: str) -> list[str]:
    """Return the lines. A local priority has the queue of its number; all eight have to have one."""
    return [
        *(f"qos dscp-map {dscp} local-priority {queue}" for dscp, queue in enumerate(found.queues)),
        f"qos queue-profile {_NAME}",
        *(f"    map queue {queue} local-priority {queue}" for queue in range(8)),
        "qos trust dscp",
        f"apply qos queue-profile {_NAME} schedule-profile strict",
    ]


AOS_CX = SwitchVendor(
    title="HPE Aruba Networking AOS-CX 10.04 to 10.06, switches of eight queues",
    port=PortQueues(classes=(6, 5, 4, 3, 2, 1), beside_roce=(6, 5, 4, 2, 1)),
    commands=_commands,
    sources=(
        "ArubaOS-CX 10.04 Quality of Service Guide: schedule-profile (strict, the larger first), map queue, qos trust",
        "AOS-CX 10.06 Quality of Service Guide: qos dscp-map",
        "Aruba, aos-cx-python, workflows/configure_qos.py: apply qos queue-profile NAME schedule-profile NAME",
    ),
    unconfirmed=("which models refuse the schedule profile strict beside PFC.",),
    roce="Its PFC and ECN stay as they are. The profile strict holds for its queue, too: below those of larger numbers.",
)
