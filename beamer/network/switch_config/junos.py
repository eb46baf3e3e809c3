"""Junos on QFX5200: forwarding classes, a classifier of DSCPs, and schedulers of strict-high priority."""

from beamer.network.switch_config.queue_map import PortQueues, QueueMap
from beamer.network.switch_config.vendor import SwitchVendor

_NAME = "beamer"
_SET = "set class-of-service"
_BY_ITSELF = _CONTROL, _OTHER, _ROCE = "network-control", "best-effort", "fcoe"  # the classes that these queues have anyway


def _commands(found: QueueMap, ports: str) -> list[str]:
    """Return the lines. The classifier names all DSCPs, so that none is left to a default."""
    classes = {queue: _forwarding_class(found, queue) for queue in found.used}
    lines = [
        f"{_SET} forwarding-classes class {classes[queue]} queue-num {queue}"
        for queue in found.used
        if classes[queue] not in _BY_ITSELF
    ]
    for queue in found.used:
        points = " ".join(f"{dscp:06b}" for dscp in found.dscps(queue))
        lines.append(
            f"{_SET} classifiers dscp {_NAME} forwarding-class {classes[queue]} loss-priority low code-points [ {points} ]"
        )
    lines += [f"{_SET} schedulers {_NAME}-strict priority strict-high", f"{_SET} schedulers {_NAME}-low priority low"]
    for queue in found.used:
        scheduler = f"{_NAME}-{'strict' if queue in found.strict else 'low'}"
        lines.append(f"{_SET} scheduler-maps {_NAME} forwarding-class {classes[queue]} scheduler {scheduler}")
    for port in ports.split(","):
        lines += [
            f"{_SET} interfaces {port} scheduler-map {_NAME}",
            f"{_SET} interfaces {port} unit * classifiers dscp {_NAME}",
        ]
    return lines


def _forwarding_class(found: QueueMap, queue: int) -> str:
    return {found.control: _CONTROL, found.other: _OTHER, found.roce: _ROCE}.get(queue, f"{_NAME}-{queue}")


JUNOS = SwitchVendor(
    title="Juniper QFX5200, Junos OS",
    # 3 (fcoe) and 4 (no-loss) are lossless by default.
    port=PortQueues(classes=(6, 5, 2, 1), beside_roce=(6, 5, 2, 1), lossless=frozenset({3, 4})),
    commands=_commands,
    sources=(
        "Juniper, QFX Traffic Management User Guide: Defining CoS Queue Scheduling Priority, platform-specific "
        "behavior (QFX5200: of several strict-high queues the higher number comes first)",
        "the same: Defining CoS BA Classifiers (DSCP, DSCP IPv6, IEEE 802.1p), Understanding CoS Forwarding Classes",
        "the same: Example: Configuring Queue Schedulers for Port Scheduling",
        "Junos CLI Reference, forwarding-classes (Class-of-Service), QFX Series",
    ),
    unconfirmed=(
        "what the queues get that a scheduler map leaves out, as those of multicast are here.",
        "from which release QFX5200 has several strict-high queues. An older edition of the page allows one.",
    ),
    roce="It is the class fcoe, lossless as before, of low priority in the new scheduler map: give it your own rate.",
    ports="et-*",
    comment=("# ", ""),
)
