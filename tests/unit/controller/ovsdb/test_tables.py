"""Rows of a database as records."""

from typing import Any

import pytest

from controller.ovsdb.messages import OvsdbError
from controller.ovsdb.tables import applied, bridge_view

DPID = 16
PORTS = ["set", [["uuid", "p1"], ["uuid", "p2"]]]


def rows(**changed: Any) -> dict[str, Any]:
    bridge = {"name": "l1", "datapath_id": f"{DPID:016x}", "datapath_type": "", "ports": PORTS}
    return {
        "Open_vSwitch": {"o": {"cur_cfg": 3, "next_cfg": 4}},
        "Bridge": {
            "b": bridge,
            "c": {"name": "l2", "datapath_id": ["set", []], "datapath_type": "netdev", "ports": ["uuid", "p3"]},
        },
        "Port": {
            "p1": {"name": "bond", "interfaces": ["set", [["uuid", "i1"], ["uuid", "i2"]]], "qos": ["uuid", "q"]},
            "p2": {"name": "eth3", "interfaces": ["uuid", "i3"], "qos": ["set", []]},
            "p3": {"name": "eth4", "interfaces": ["uuid", "i3"], "qos": ["uuid", "r"]},
        },
        "Interface": {
            "i1": {"name": "eth1", "ofport": 1},
            "i2": {"name": "eth2", "ofport": ["set", []]},
            "i3": {"name": "eth3", "ofport": -1},
        },
        "QoS": {
            "q": {
                "type": "linux-htb",
                "other_config": ["map", [["max-rate", "9"]]],
                "queues": ["map", [[1, ["uuid", "u"]]]],
                "external_ids": ["map", [["beamer", "here"], ["other", "x"]]],
            }
        },
        "Queue": {"u": {"dscp": 7, "other_config": ["map", []], "external_ids": ["map", [["other", "x"]]]}},
        **changed,
    }


def test_a_bridge_is_found_by_its_datapath_id_with_what_it_refers_to() -> None:
    view = bridge_view(rows(), DPID)
    assert {port.name: (port.numbers, port.qos) for port in view.ports.values()} == {
        "bond": ({"eth1": 1, "eth2": None}, "q"),
        "eth3": ({"eth3": None}, None),
    }, "an interface that could not be added has no number"
    assert (view.qos["q"].settings, view.qos["q"].queues, view.qos["q"].tag) == ({"max-rate": "9"}, {1: "u"}, "here")
    assert (view.queues["u"].has_dscp, view.queues["u"].tag) == (True, None)
    assert view.qos_in_use == {"q", "r"}, "of other bridges, too"
    assert applied(rows()) == 3


def test_a_bridge_that_is_not_there_is_named_beside_those_that_are() -> None:
    with pytest.raises(OvsdbError, match=r"no bridge of the datapath id 0{14}11; its bridges: l1 \(0{14}10\), l2 \(\)"):
        bridge_view(rows(), 17)
    with pytest.raises(OvsdbError, match="its bridges: none"):
        bridge_view(rows(Bridge={}), DPID)


@pytest.mark.parametrize(
    "changed",
    [
        {"Port": {}},
        {"Interface": {"i1": {"name": "x"}, "i2": {}, "i3": {}}},
        {"Queue": {"u": {"dscp": 7, "other_config": 7, "external_ids": []}}},
        {"QoS": {"q": {"type": "x", "other_config": ["map", [1]], "queues": ["map", []], "external_ids": ["map", []]}}},
    ],
    ids=str,
)
def test_rows_that_cannot_be_understood_are_an_error(changed: dict[str, Any]) -> None:
    with pytest.raises(OvsdbError, match="its rows cannot be understood"):
        bridge_view(rows(**changed), DPID)
