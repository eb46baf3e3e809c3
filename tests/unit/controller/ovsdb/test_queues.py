"""What of a database's rows has to change: from views alone."""

from dataclasses import replace

import pytest

from beamer.network.fabric import Fabric
from beamer.testing.fabrics import star
from controller.ovsdb.queues import QueueChange, change_of_queues, wanted_queues
from controller.ovsdb.tables import BridgeView, PortRow, QosRow, QueueRow

FABRIC = star(2)
DPID = FABRIC.switches[0].dpid
CLASSES = 2
WANTED = wanted_queues(FABRIC, "s1", CLASSES)
TAG = f"{DPID:016x}"
PORTS = {f"port{one.port}": PortRow(one.interface, {one.interface: one.port}, f"qos{one.port}") for one in WANTED}


def made() -> BridgeView:
    """Return a database that has the queues."""
    numbers = range(CLASSES + 1)
    qos = {
        f"qos{one.port}": QosRow(
            "linux-htb", one.settings, {number: f"queue{one.port}-{number}" for number in numbers}, f"{TAG}/{one.port}"
        )
        for one in WANTED
    }
    queues = {
        f"queue{one.port}-{number}": QueueRow(one.queues[number], False, f"{TAG}/{one.port}/{number}")
        for one in WANTED
        for number in numbers
    }
    return BridgeView("system", PORTS, qos, queues, frozenset(qos))


def change(view: BridgeView, fabric: Fabric = FABRIC) -> QueueChange:
    return change_of_queues(view, wanted_queues(fabric, "s1", CLASSES), DPID)


def what(found: QueueChange) -> list[tuple[str, str]]:
    return [(one["op"], one["table"]) for one in found.operations]


def without_qos(number: int) -> dict[str, PortRow]:
    return PORTS | {f"port{number}": replace(PORTS[f"port{number}"], qos=None)}


def test_queues_have_the_figures_of_every_maker_of_queues() -> None:
    first = WANTED[0]
    assert first.settings == {"max-rate": str(first.rate_bps)}
    assert [one["priority"] for one in first.queues] == ["7", "0", "1"], "unregistered traffic is served last"
    assert [int(one["min-rate"]) / first.rate_bps for one in first.queues] == pytest.approx([0.1, 0.001, 0.001])
    assert {one["max-rate"] for one in first.queues} == {str(first.rate_bps)}


def test_what_is_as_it_should_be_is_not_written_again() -> None:
    assert change(made()) == QueueChange((), (), (), {})


def test_a_port_without_queues_gets_them() -> None:
    empty = BridgeView("system", without_qos(1) | {"port2": replace(PORTS["port2"], qos=None)}, {}, {}, frozenset())
    found = change(empty)
    assert (found.made, found.mended, found.faults) == ((1, 2), (), {})
    of_port = [("wait", "Port"), *[("insert", "Queue")] * (CLASSES + 1), ("insert", "QoS"), ("update", "Port")]
    assert what(found) == 2 * of_port
    names = [one["uuid-name"] for one in found.operations if "uuid-name" in one]
    assert len(set(names)) == len(names)


def test_two_ports_of_the_file_in_one_of_the_database_are_named_and_the_others_served() -> None:
    bond = PortRow("bond", {"s1-eth1": 1, "s1-eth2": 2}, None)
    found = change(BridgeView("system", {"bond": bond}, {}, {}, frozenset()))
    assert found.made == (1,)
    assert found.faults[2].text == "gets no queues: its database has it in one port with port 1, as in a bond"


def test_a_port_that_the_file_does_not_have_any_more_loses_its_queues() -> None:
    more = BridgeView(
        "system",
        {**PORTS, "old": PortRow("old", {"old": 9}, "qos9")},
        made().qos
        | {
            "qos9": QosRow("linux-htb", {}, {}, f"{TAG}/9"),
            "qos10": QosRow("linux-htb", {}, {}, f"{DPID + 1:016x}/9"),
        },
        made().queues,
        frozenset((*made().qos, "qos9")),
    )
    assert what(change(more)) == [("wait", "Port"), ("update", "Port")]
    strange = replace(more, ports=more.ports | {"old": PortRow("old", {"old": 9}, "qos10")}, qos_in_use=frozenset(made().qos))
    assert what(change(strange)) == [("delete", "QoS")], "another switch's stay"


def other(**changes: object) -> BridgeView:
    return replace(made(), **changes)  # type: ignore[arg-type]


RIGHT = made()
FOREIGN = QosRow("linux-hfsc", {}, {}, None)
QUEUE = RIGHT.queues["queue1-1"]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (other(ports=without_qos(1), qos_in_use=frozenset({"qos2"})), [("update", "Port")]),
        (other(qos=RIGHT.qos | {"qos1": replace(RIGHT.qos["qos1"], settings={"max-rate": "1"})}), [("update", "QoS")]),
        (other(qos=RIGHT.qos | {"qos1": replace(RIGHT.qos["qos1"], kind="linux-sfq")}), [("update", "QoS")]),
        (other(qos=RIGHT.qos | {"qos1": replace(RIGHT.qos["qos1"], queues={0: "queue1-0"})}), [("update", "QoS")]),
        (
            other(queues={row: one for row, one in RIGHT.queues.items() if row != "queue1-1"}),
            [("insert", "Queue"), ("update", "QoS")],
        ),
        (other(queues=RIGHT.queues | {"queue1-1": replace(QUEUE, settings={"max-rate": "1"})}), [("update", "Queue")]),
        (other(queues=RIGHT.queues | {"queue1-1": replace(QUEUE, has_dscp=True)}), [("update", "Queue")]),
        (
            other(queues=RIGHT.queues | {"queue1-1": replace(QUEUE, tag=None)}),
            [("insert", "Queue"), ("update", "QoS")],
        ),
    ],
    ids=["port", "rate", "type", "queue left out", "queue gone", "rate of a queue", "codepoint", "queue of another"],
)
def test_the_smallest_difference_is_mended_unless_somebody_is_faster(view: BridgeView, expected: list[tuple[str, str]]) -> None:
    found = change(view)
    assert what(found) == [("wait", "Port"), ("wait", "QoS"), *expected]
    assert (found.made, found.mended) == ((), (1,))


def test_queues_of_another_program_are_left_and_named_and_own_ones_that_are_not_used_removed() -> None:
    foreign = other(
        ports=PORTS | {"port1": replace(PORTS["port1"], qos="theirs")},
        qos=RIGHT.qos | {"theirs": FOREIGN},
        qos_in_use=frozenset({"theirs", "qos2"}),
    )
    found = change(foreign)
    assert found.faults[1].kind == "foreign queues"
    assert what(found) == [("delete", "QoS"), *[("delete", "Queue")] * (CLASSES + 1)]
    assert not any("theirs" in str(one) or "port1" in str(one) for one in found.operations)
    unknown = change(other(ports=PORTS | {"port1": replace(PORTS["port1"], qos="not shown")}))
    assert unknown.faults[1].kind == "foreign queues"


def test_what_others_refer_to_is_not_removed() -> None:
    stray = QueueRow({}, False, f"{TAG}/9/1")
    lent = other(queues=RIGHT.queues | {"stray": stray}, qos=RIGHT.qos | {"theirs": replace(FOREIGN, queues={1: "stray"})})
    assert change(lent).operations == ()
    assert what(change(other(queues=RIGHT.queues | {"stray": stray}))) == [("delete", "Queue")]
    assert change(other(queues=RIGHT.queues | {"stray": replace(stray, tag="00000000000000ff/9/1")})).operations == ()
    spare = other(qos=RIGHT.qos | {"spare": replace(RIGHT.qos["qos1"], tag=f"{TAG}/9")})
    assert what(change(spare)) == [("delete", "QoS")]
    assert change(replace(spare, qos_in_use=frozenset({"spare", "qos1", "qos2"}))).operations == ()


def test_a_port_is_known_by_its_number_and_by_its_name_where_it_has_none() -> None:
    renamed = other(ports=PORTS | {"port1": PortRow("other", {"other": 1}, "qos1")})
    assert change(renamed).faults == {}
    unnumbered = other(ports=PORTS | {"port1": PortRow("x", {WANTED[0].interface: None}, "qos1")})
    assert change(unnumbered).faults == {}
    elsewhere = change(other(ports=PORTS | {"port1": PortRow("x", {WANTED[0].interface: 7}, "qos1")}))
    assert elsewhere.faults[1].text == "gets no queues: its database has no port of that number, nor of the interface's name"


def test_a_rate_that_open_vswitch_gets_wrong_is_not_asked_for() -> None:
    fast = replace(FABRIC, links=tuple(replace(link, rate_bps=100 * 10**9) for link in FABRIC.links))
    found = change(made(), fast)
    most = "34.36 Gbit/s, as Open vSwitch 3.1 gives them a wrong rate above"
    assert {one.text for one in found.faults.values()} == {f"gets no queues: it has 100gbit, and they are made up to {most}"}
    assert what(found) == 2 * [("wait", "Port"), ("update", "Port")], "the rate of before would hold the port back"
