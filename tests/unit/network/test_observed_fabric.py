"""What is said of a network that is not as its file says, from an observation alone."""

from dataclasses import replace

import pytest

from beamer.network.fabric import Fabric
from beamer.network.observed_fabric import Mismatch, Observation, PortState, cut_off, dead_cables, mismatches, remarks
from beamer.testing.fabrics import star, two_spines
from beamer.units import rate_text
from topologies import fat_tree

FABRIC = two_spines(1)


def as_it_should_be(fabric: Fabric) -> Observation:
    """Return what is seen of a network that is as its file says."""
    of_switches = [link for link in fabric.links if link.src in fabric.switch]
    back = {(link.src, link.dst): fabric.links[fabric.link_index[link.dst, link.src]] for link in of_switches}
    trunks = [link for link in of_switches if link.dst in fabric.switch]
    return Observation(
        ports={
            name: {link.port: PortState(link.interface, True, link.rate_bps) for link in of_switches if link.src == name}
            for name in fabric.switch
        },
        leads_to={(link.src, link.port): (link.dst, back[link.src, link.dst].port) for link in trunks},
        answers={
            (link.src, link.port): {fabric.host[link.dst].ip: fabric.host[link.dst].mac}
            for link in of_switches
            if link.dst in fabric.host
        },
    )


RIGHT = as_it_should_be(FABRIC)


def port(switch: str, number: int, state: PortState | None) -> Observation:
    """Return what is seen where one port is otherwise, or not there."""
    others = {n: one for n, one in RIGHT.ports[switch].items() if n != number}
    return replace(RIGHT, ports={**RIGHT.ports, switch: others if state is None else {**others, number: state}})


@pytest.mark.parametrize("fabric", [FABRIC, star(3), fat_tree.build(4)], ids=lambda fabric: fabric.name)
def test_nothing_is_said_of_a_network_that_is_right_or_that_nothing_is_known_of(fabric: Fabric) -> None:
    assert mismatches(fabric, as_it_should_be(fabric)) == ()
    assert mismatches(fabric, Observation()) == ()
    assert dead_cables(fabric, ()) == frozenset()
    assert cut_off(fabric, frozenset()) == ()


def test_a_port_that_is_missing_is_named_with_those_that_there_are() -> None:
    assert mismatches(FABRIC, port("l1", 2, None)) == (
        Mismatch("no port", "l1", 2, "l1 has no port 2, to which the file connects s2; it has 1, 3"),
    )
    assert mismatches(FABRIC, replace(RIGHT, ports={"l1": {}}))[0].text == (
        "l1 has no port 1, to which the file connects s1; it has none"
    )


def test_of_a_port_without_a_link_nothing_else_is_said() -> None:
    seen = replace(port("l1", 3, PortState("", False)), answers={}, mute=frozenset({("l1", 3)}))
    assert [one.text for one in mismatches(FABRIC, seen) if one.switch == "l1"] == [
        "l1 port 3 has no link; the file connects it to h1"
    ]


@pytest.mark.parametrize(
    ("bps", "kinds"), [(0, []), (FABRIC.links[0].rate_bps, []), (FABRIC.links[0].rate_bps - 1, ["slower"])]
)
def test_only_a_link_that_is_slower_than_its_queues_is_wrong(bps: int, kinds: list[str]) -> None:
    assert [one.kind for one in mismatches(FABRIC, port("l1", 1, PortState("l1-eth1", True, bps)))] == kinds


def test_an_interface_has_the_name_that_its_agent_looks_for() -> None:
    other = port("l1", 1, PortState("swp1", True))
    assert mismatches(FABRIC, other) == (), "where no agent is, a switch may call its ports as it likes"
    owned = replace(FABRIC, switches=tuple(replace(one, agent=one.name) for one in FABRIC.switches))
    assert [one.kind for one in mismatches(owned, other)] == ["wrong name"]


def test_what_was_silent_stays_dead_where_a_switch_is_not_connected_any_more() -> None:
    silent = replace(RIGHT, leads_to={}, silent=frozenset({("l1", 1), ("l1", 2)}))
    assert [(one.kind, one.port) for one in mismatches(FABRIC, silent)] == [("no path", 1), ("no path", 2)]
    without = replace(silent, ports={name: ports for name, ports in silent.ports.items() if name != "s1"})
    assert [(one.kind, one.port) for one in mismatches(FABRIC, without)] == [("no path", 1), ("no path", 2)]
    alone = replace(silent, ports={"s1": silent.ports["s1"]})
    assert mismatches(FABRIC, alone) == ()
    assert dead_cables(FABRIC, (), alone.silent) == {("l1", "s1"), ("l1", "s2")}


def test_a_cable_that_leads_elsewhere_is_dead_and_so_is_one_by_either_end() -> None:
    crossed = replace(RIGHT, leads_to={**RIGHT.leads_to, ("l1", 1): ("s2", 1)})
    found = mismatches(FABRIC, crossed)
    assert [one.text for one in found] == ["l1 port 1 leads to s2 port 1; the file says s1 port 1"]
    assert dead_cables(FABRIC, found) == {("l1", "s1")}
    assert dead_cables(FABRIC, mismatches(FABRIC, port("s2", 2, None))) == {("l2", "s2")}
    assert dead_cables(FABRIC, mismatches(FABRIC, port("l1", 3, None))) == frozenset(), "a host has no other path"


@pytest.mark.parametrize(
    ("answers", "leads_to", "text"),
    [
        ({("l1", 3): {"10.77.0.2": "02:00:00:00:00:02"}}, {}, "at l1 port 3 is h2; the file says h1"),
        ({("l2", 9): {"10.77.0.1": "02:00:00:00:00:01"}}, {}, "h1 is at l2 port 9; the file says at l1 port 3"),
        (
            {("l1", 3): {"10.77.0.1": "02:00:00:00:00:09"}},
            {},
            "h1 (10.77.0.1) has the Ethernet address 02:00:00:00:00:09; the file says 02:00:00:00:00:01",
        ),
        ({}, {("l1", 3): ("l2", 3)}, "l1 port 3 leads to l2 port 3; the file says h1"),
        ({}, {}, "h1 (10.77.0.1) does not answer at l1 port 3"),
    ],
)
def test_where_a_host_is(
    answers: dict[tuple[str, int], dict[str, str]], leads_to: dict[tuple[str, int], tuple[str, int]], text: str
) -> None:
    others = {end: known for end, known in RIGHT.answers.items() if end != ("l1", 3)}
    seen = replace(RIGHT, answers={**others, **answers}, leads_to={**RIGHT.leads_to, **leads_to}, mute=frozenset({("l1", 3)}))
    assert [one.text for one in mismatches(FABRIC, seen)] == [text]


def test_hosts_are_cut_off_from_the_largest_part() -> None:
    fabric = two_spines(2)
    assert cut_off(fabric, frozenset({("l1", "s1"), ("l1", "s2")})) in (("h1", "h2"), ("h3", "h4"))
    assert cut_off(fabric, frozenset({("l1", "s1"), ("l2", "s2")})) == ("h3", "h4")
    assert cut_off(fabric, frozenset({("l1", "s1")})) == ()
    tree = fat_tree.build(4)
    edge = tree.edge_of["h1"]
    cables = {(a.src, a.dst) for a, _ in tree.cables if edge in (a.src, a.dst) and {a.src, a.dst} <= tree.switch.keys()}
    assert cut_off(tree, frozenset(cables)) == tuple(host for host, at in tree.edge_of.items() if at == edge)


def test_a_port_without_queues_and_agent_is_named() -> None:
    seen = replace(RIGHT, unqueued=frozenset({("l1", 1)}))
    assert [(one.kind, one.switch, one.port) for one in mismatches(FABRIC, seen)] == [("no queues", "l1", 1)]
    assert dead_cables(FABRIC, mismatches(FABRIC, seen)) == frozenset(), "packets pass it"


def test_links_much_faster_than_their_file_says_are_remarked_on_and_no_mismatch() -> None:
    rate = FABRIC.links[0].rate_bps
    twice = port("l1", 1, PortState("l1-eth1", True, 2 * rate))
    assert remarks(FABRIC, twice) == (
        f"l1 port 1 could carry {rate_text(2 * rate)}, and carries the {rate_text(rate)} of the file",
    )
    assert mismatches(FABRIC, twice) == ()
    for other in (PortState("l1-eth1", True, 2 * rate - 1), PortState("l1-eth1", False, 9 * rate), PortState("l1-eth1", True)):
        assert remarks(FABRIC, port("l1", 1, other)) == ()
    every = replace(
        RIGHT, ports={name: {n: replace(one, bps=10 * rate) for n, one in of.items()} for name, of in RIGHT.ports.items()}
    )
    (text,) = remarks(FABRIC, every)
    assert text.count(" port ") == 3, text
    assert "more ports: each could carry" in text


def test_rules_of_other_programs_before_beamers_are_remarked_on_and_few_of_them_named() -> None:
    every = {"l1": ("table 0 priority 7 cookie 0x0",) * 2, "s1": tuple(f"table {number}" for number in range(9))}
    assert remarks(FABRIC, replace(RIGHT, foreign=every)) == (
        "l1 has rules of other programs that come before Beamer's, 2 in all: table 0 priority 7 cookie 0x0",
        "s1 has rules of other programs that come before Beamer's, 9 in all: table 0; table 1; table 2",
    )


def test_queues_that_the_controller_makes_are_named_with_why_they_do_not_work() -> None:
    owned = replace(FABRIC, switches=tuple(replace(one, ovsdb="tcp:127.0.0.1:6640") for one in FABRIC.switches))
    seen = replace(RIGHT, unqueued=frozenset({("l1", 1)}), disobeyed=frozenset({("l1", 1), ("l1", 2), ("s1", 1)}))
    seen = replace(seen, datapaths={"s1": "netdev", "l1": "system"})
    log = "although its database has them: see the log of ovs-vswitchd"
    told = "does not queue as told: its queues count none of the packets that rules choose a queue for"
    assert [(one.kind, one.text) for one in mismatches(owned, seen)] == [
        ("no queues", f"l1 port 1 has no queues, {log}: no class goes before another there"),
        ("not queued", f"l1 port 2 {told}"),
        (
            "not queued",
            f"s1 port 1 {told}; Open vSwitch's userspace datapath ignores set_queue, so let an agent make the queues",
        ),
    ]
    whole = replace(RIGHT, disobeyed=frozenset({("l1", 1), ("l1", 2)}))
    assert [(one.port, one.text) for one in mismatches(owned, whole)] == [(1, f"l1 port 1 {told}"), (2, f"l1 port 2 {told}")]
    dark = replace(whole, ports=port("l1", 3, PortState("l1-eth3", False)).ports)
    found = [one for one in mismatches(owned, dark) if one.kind == "not queued"]
    assert [(one.port, one.text) for one in found] == [(0, f"l1 {told}")], "none of the ports that have a link"


def test_where_a_database_has_a_fault_that_is_what_is_named_even_of_a_switch_that_is_not_connected() -> None:
    faults = Mismatch("no database", "l1", 0, "the database"), Mismatch("foreign queues", "s1", 1, "theirs")
    unqueued = frozenset({("l1", 1), ("l1", 2), ("s1", 1), ("s1", 2)})
    found = mismatches(FABRIC, replace(RIGHT, unqueued=unqueued, databases=faults))
    assert [(one.kind, one.switch, one.port) for one in found] == [
        ("no database", "l1", 0),
        ("foreign queues", "s1", 1),
        ("no queues", "s1", 2),
    ]
    assert mismatches(FABRIC, Observation(databases=faults)) == faults
    assert dead_cables(FABRIC, found) == frozenset()
