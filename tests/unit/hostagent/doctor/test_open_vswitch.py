"""What Open vSwitch's tables say, as ovs-vsctl prints them in JSON."""

import json
from collections.abc import Mapping

import pytest

from hostagent.doctor.open_vswitch import BridgeController, BridgeFacts, SwitchDatabase, database_of, rows_of

EMPTY: list[object] = ["set", []]


def table(*rows: Mapping[str, object]) -> str:
    headings = list(rows[0]) if rows else []
    return json.dumps({"headings": headings, "data": [list(row.values()) for row in rows]})


def uuid(name: str) -> list[str]:
    return ["uuid", name]


BRIDGE = {
    "_uuid": uuid("b1"),
    "name": "l1",
    "datapath_id": "0000000000000010",
    "datapath_type": "netdev",
    "fail_mode": "secure",
    "protocols": "OpenFlow13",
    "other_config": ["map", [["datapath-id", "0000000000000010"]]],
    "controller": uuid("c1"),
    "ports": ["set", [uuid("p1"), uuid("p2"), uuid("p3")]],
}
CONTROLLER = {
    "_uuid": uuid("c1"),
    "target": "ssl:10.0.0.1:6653",
    "is_connected": False,
    "connection_mode": "out-of-band",
    "status": ["map", [["last_error", "Connection refused"], ["state", "BACKOFF"]]],
}
PORTS = [{"_uuid": uuid(f"p{n}"), "name": f"n{n}", "interfaces": uuid(f"i{n}")} for n in (1, 2, 3)]
INTERFACES: list[dict[str, object]] = [
    {"_uuid": uuid("i1"), "name": "l1", "type": "internal", "error": EMPTY},
    {"_uuid": uuid("i2"), "name": "l1-eth1", "type": "", "error": EMPTY},
    {"_uuid": uuid("i3"), "name": "l1-eth2", "type": "", "error": "could not open network device l1-eth2"},
]


def test_a_bridge_is_read_with_its_controller_and_the_ports_that_are_cards() -> None:
    tables = {
        "Bridge": table(BRIDGE),
        "Controller": table(CONTROLLER),
        "Port": table(*PORTS),
        "Interface": table(*INTERFACES),
        "SSL": table({"certificate": "/etc/beamer/switch-l1.pem", "ca_cert": "/etc/beamer/ca.pem"}),
    }
    expected = BridgeFacts(
        "l1",
        "0000000000000010",
        True,
        "netdev",
        "secure",
        frozenset({"OpenFlow13"}),
        (BridgeController("ssl:10.0.0.1:6653", False, "out-of-band", "Connection refused"),),
        ("l1-eth1", "l1-eth2"),
        (("l1-eth2", "could not open network device l1-eth2"),),
    )
    read = database_of({name: rows_of(text) for name, text in tables.items()})
    assert read == SwitchDatabase((expected,), "/etc/beamer/switch-l1.pem", "/etc/beamer/ca.pem")


def test_what_is_not_set_is_empty() -> None:
    bare = BRIDGE | dict.fromkeys(("datapath_type", "fail_mode", "protocols", "controller", "ports"), EMPTY)
    bare["other_config"] = ["map", []]
    tables = {"Bridge": rows_of(table(bare)), "Controller": [], "Port": [], "Interface": [], "SSL": []}
    assert database_of(tables) == SwitchDatabase((BridgeFacts("l1", "0000000000000010", False),))


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"headings": ["a"], "data": [[1, 2]]}', '{"headings": ["a"], "data": [[[1]]]}']
)
def test_other_output_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"prints no table|Expecting value|argument 2 is|too many values|not enough values"):
        rows_of(text)


def test_tables_without_a_column_are_refused() -> None:
    tables = {"Bridge": [{"name": "l1"}], "Controller": [], "Port": [], "Interface": [], "SSL": []}
    with pytest.raises(ValueError, match="no 'controller'"):
        database_of(tables)
