"""Arista EOS: maps of DSCP to traffic classes, and a QoS profile for ports."""

from beamer.network.switch_config.queue_map import PortQueues, QueueMap
from beamer.network.switch_config.vendor import SwitchVendor, numbers

_NAME = "BEAMER"


def _commands(found: QueueMap, ports: str) -> list[str]:
    """Return the lines. Traffic class 7 has queue 7 in any case, and neither can be configured."""
    moved = [queue for queue in found.used if queue not in (found.control, found.roce)]
    lines = ["no qos rewrite dscp"]
    lines += [f"qos map dscp {numbers(found.dscps(queue))} to traffic-class {queue}" for queue in found.used]
    lines += [f"qos map traffic-class {queue} to tx-queue {queue}" for queue in moved]
    lines += ["!", f"qos profile {_NAME}"]
    for queue in found.of_classes:
        lines += ["   !", f"   tx-queue {queue}", "      priority strict"]
    return [*lines, "!", f"interface {ports}", "   qos trust dscp", f"   service-profile {_NAME}"]


EOS = SwitchVendor(
    title="Arista EOS",
    # Beside RoCE, whose queue 3 shares by weight, queues below 3 cannot be strict.
    port=PortQueues(classes=(6, 5, 4, 3, 2, 1), beside_roce=(6, 5, 4)),
    commands=_commands,
    sources=(
        "Arista AVD, eos_cli_config_gen, documentation/devices/qos.md: QOS, QOS Profiles, Ethernet Interfaces",
        "Arista TOI, EOS 4.33.0F: on Sand, queue 7 has traffic class 7, reserved for control, and was not configurable before",
    ),
    unconfirmed=(
        "that of two strict queues the larger comes first. IEEE 802.1Q, 8.6.8.1, has this order.",
        "on which switches a tx-queue is a uc-tx-queue. Write that where yours has those.",
        "the scheduler of queue 0. Nothing here sets it.",
    ),
    roce="Its scheduler, PFC and ECN stay as they are, on ports whose profile has them: put these lines into that profile.",
    ports="Ethernet1-32",
)
