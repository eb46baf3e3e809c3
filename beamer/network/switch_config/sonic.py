"""SONiC: a template of its own `sonic-cfggen`, which knows the switch's ports and makes JSON for `config load`."""

import json

from beamer.network.switch_config.queue_map import PortQueues, QueueMap
from beamer.network.switch_config.vendor import SwitchVendor

_NAME = "BEAMER"
_SCHEDULER = "beamer.strict"
# For each port, as `qos_config.j2` does.
_EACH_PORT = ("{% for port in PORT %}", "{% endfor %}")


def _commands(found: QueueMap, ports: str) -> list[str]:
    """Return the lines. The tables are those of the Configuration Database Manual; what they do not name stays as it is."""
    maps = {
        "DSCP_TO_TC_MAP": {_NAME: {str(dscp): str(queue) for dscp, queue in enumerate(found.queues)}},
        "TC_TO_QUEUE_MAP": {_NAME: {str(queue): str(queue) for queue in range(8)}},
        "SCHEDULER": {_SCHEDULER: {"type": "STRICT"}},
    }
    bound = json.dumps({"dscp_to_tc_map": _NAME, "tc_to_queue_map": _NAME})
    scheduled = json.dumps({"scheduler": _SCHEDULER})
    queues = [f'  "{{{{ port }}}}|{queue}": {scheduled}' for queue in found.strict]
    return [
        *f"{json.dumps(maps, indent=1)[:-2]},".splitlines(),
        ' "PORT_QOS_MAP": {',
        *_for_each_port([f'  "{{{{ port }}}}": {bound}']),
        " },",
        ' "QUEUE": {',
        *_for_each_port(queues),
        " }",
        "}",
    ]


def _for_each_port(entries: list[str]) -> list[str]:
    """Return entries of a mapping for each port, with commas between them and none behind the last."""
    first, last = _EACH_PORT
    inner = [f"{entry}," for entry in entries[:-1]] + [f'{entries[-1]}{{{{ "," if not loop.last }}}}']
    return [first, *inner, last]


SONIC = SwitchVendor(
    title="SONiC whose database has version_3_0_3 or a later one",
    # 3 and 4 are lossless by default: LOSSLESS_TC of qos_config.j2.
    port=PortQueues(classes=(6, 5, 2, 1), beside_roce=(6, 5, 2, 1), lossless=frozenset({3, 4})),
    commands=_commands,
    sources=(
        "sonic-buildimage, src/sonic-yang-models/doc/Configuration.md: Scheduler, Port QoS Map, Queue, TC to Queue map",
        "sonic-buildimage, files/build_templates/qos_config.j2",
        "SONiC, doc/qos/scheduler/SONiC_QoS_Scheduler_Shaper.md, Rev 0.1, section 1: of strict queues the higher first",
        "sonic-utilities, doc/Command-Reference.md: config load, config qos reload, show queue counters",
        "sonic-utilities, scripts/db_migrator.py: from version_3_0_3 on references are names, before it [SCHEDULER|NAME]",
    ),
    unconfirmed=("that each ASIC serves strict queues before those of DWRR.",),
    roce="Its scheduler, PFC and ECN stay as they are.",
    comment=("{# ", " #}"),
)
