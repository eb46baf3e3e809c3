"""Where the rules lead packets: every pair of hosts, on every plane, registered or not."""

from dataclasses import replace
from itertools import permutations

import pytest

from beamer.network.codepoints import LOCAL, PROFILES, Codepoints
from beamer.network.connection import Connection, FourTuple
from beamer.network.fabric import Fabric, Link
from beamer.testing.fabrics import star, two_spines
from controller.openflow.rules import (
    ARP,
    COOKIE_MASK,
    COOKIE_PREFIX,
    IPV4,
    TCP,
    Band,
    HostPair,
    JobRules,
    Table,
    shadow,
)
from tests.support.openflow_switch import Packet, desired_rules, trace_packet


def dumbbell() -> Fabric:
    """Return `two_spines` without its second spine: one path between the leaves."""
    whole = two_spines()
    links = tuple(link for link in whole.links if "s2" not in (link.src, link.dst))
    return Fabric("dumbbell", whole.hosts, tuple(s for s in whole.switches if s.name != "s2"), links)


FABRICS = [star(4), dumbbell(), two_spines()]


def tcp(connection: FourTuple, fabric: Fabric, **fields: int | str) -> Packet:
    src_ip, src_port, dst_ip, dst_port = connection
    mac = {host.ip: host.mac for host in fabric.hosts}
    return {
        "eth_type": IPV4,
        "eth_dst": mac[dst_ip],
        "ip_proto": TCP,
        "ip_dscp": 0,
        "ip_ecn": 2,
        "ipv4_src": src_ip,
        "ipv4_dst": dst_ip,
        "tcp_src": src_port,
        "tcp_dst": dst_port,
        **fields,
    }


def between(fabric: Fabric, src: str, dst: str, port: int = 5000) -> tuple[FourTuple, FourTuple]:
    connection = Connection("s/s/j", 0, fabric.host[src].ip, 40_000, fabric.host[dst].ip, port)
    return connection.sent, connection.received


def interfaces(fabric: Fabric, src: str, dst: str, plane: int) -> tuple[tuple[str, int], ...]:
    """Return the switches and ports of the fabric's own path."""
    hops: list[Link] = [fabric.links[i] for i in fabric.path(src, dst, plane)]
    return tuple((link.src, link.port) for link in hops[1:])


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda f: f.name)
def test_every_pair_connects_unregistered_and_resolves_addresses(fabric: Fabric) -> None:
    tables = desired_rules(fabric, ())
    for src, dst in permutations(fabric.hosts, 2):
        there, _ = between(fabric, src.name, dst.name)
        trace = trace_packet(fabric, tables, src.name, tcp(there, fabric))
        assert trace.arrived_at == dst.name
        assert trace.hops[-1].packet["eth_dst"] == dst.mac
        assert {hop.queue for hop in trace.hops} == {0}
        asks: Packet = {"eth_type": ARP, "eth_dst": "ff:ff:ff:ff:ff:ff", "arp_tpa": dst.ip}
        assert trace_packet(fabric, tables, src.name, asks).arrived_at == dst.name


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda f: f.name)
def test_a_registered_connection_takes_its_class_and_path_in_both_directions(fabric: Fabric) -> None:
    for src, dst in permutations([host.name for host in fabric.hosts], 2):
        for plane in range(fabric.planes):
            there, back = between(fabric, src, dst)
            tables = desired_rules(fabric, [JobRules("s/s/j", 7, plane, 3, frozenset({there, back}))])
            for connection, sender, receiver in ((there, src, dst), (back, dst, src)):
                trace = trace_packet(fabric, tables, sender, tcp(connection, fabric))
                assert trace.arrived_at == receiver
                assert trace.links == interfaces(fabric, sender, receiver, plane)
                assert {hop.packet["ip_dscp"] for hop in trace.hops} == {LOCAL.of(3)}
                assert {hop.queue for hop in trace.hops} == {4}
                arrived = trace.hops[-1].packet
                assert arrived["eth_dst"] == fabric.host[receiver].mac
                assert arrived["ip_ecn"] == 2
                counting = [rule for hop in trace.hops for rule in hop.rules if rule.counts]
                assert [HostPair.of(int(dict(rule.match)["metadata"])).job_seq for rule in counting] == [7]


def test_only_the_exact_connection_is_classed() -> None:
    fabric = two_spines()
    there, back = between(fabric, "h1", "h3")
    tables = desired_rules(fabric, [JobRules("s/s/j", 1, 0, 2, frozenset({there, back}))])
    other_port, _ = between(fabric, "h1", "h3", 5001)
    for near_miss, sender in (
        (tcp(other_port, fabric), "h1"),
        (tcp(there, fabric, ip_proto=17), "h1"),
        (tcp(there, fabric), "h2"),  # another host that uses h1's address
    ):
        hops = trace_packet(fabric, tables, sender, near_miss).hops
        assert {(hop.packet["ip_dscp"], hop.queue) for hop in hops} == {(0, 0)}


def test_an_acknowledgement_takes_class_0_and_the_path_of_its_job() -> None:
    fabric = two_spines()
    there, back = between(fabric, "h1", "h3")
    for plane in range(fabric.planes):
        tables = desired_rules(fabric, [JobRules("s/s/j", 1, plane, 5, frozenset({there, back}))])
        trace = trace_packet(fabric, tables, "h3", tcp(back, fabric, ip_dscp=LOCAL.acknowledgement))
        assert trace.arrived_at == "h1"
        assert trace.links == interfaces(fabric, "h3", "h1", plane)
        assert {(hop.packet["ip_dscp"], hop.packet["ip_ecn"], hop.queue) for hop in trace.hops} == {(LOCAL.of(0), 2, 1)}
        assert [(rule.klass, rule.pair) for hop in trace.hops for rule in hop.rules if rule.counts] == [(0, HostPair(1, 2, 0))]


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_classes_and_what_is_cleared_go_by_the_profile(profile: Codepoints) -> None:
    fabric = two_spines()
    there, back = between(fabric, "h1", "h3")
    for klass, dscp in enumerate(profile.classes):
        tables = desired_rules(fabric, [JobRules("s/s/j", 1, 0, klass, frozenset({there, back}))], profile)
        for marked in (dscp, 0):
            trace = trace_packet(fabric, tables, "h1", tcp(there, fabric, ip_dscp=marked))
            assert {(hop.packet["ip_dscp"], hop.queue) for hop in trace.hops} == {(dscp, klass + 1)}
        acknowledged = trace_packet(fabric, tables, "h3", tcp(back, fabric, ip_dscp=profile.acknowledgement))
        assert {(hop.packet["ip_dscp"], hop.queue) for hop in acknowledged.hops} == {(profile.of(0), 1)}
    forged, _ = between(fabric, "h2", "h3")
    for dscp in profile.all:
        trace = trace_packet(fabric, desired_rules(fabric, (), profile), "h2", tcp(forged, fabric, ip_dscp=dscp))
        assert {(hop.packet["ip_dscp"], hop.queue) for hop in trace.hops} == {(0, 0)}


def test_a_host_without_an_agent_is_not_believed_what_an_acknowledgement_is() -> None:
    with_agents = two_spines()
    fabric = replace(with_agents, hosts=tuple(replace(host, agent=None) for host in with_agents.hosts))
    there, back = between(fabric, "h1", "h3")
    tables = desired_rules(fabric, [JobRules("s/s/j", 1, 0, 5, frozenset({there, back}))])
    trace = trace_packet(fabric, tables, "h1", tcp(there, fabric, ip_dscp=LOCAL.acknowledgement))
    assert {(hop.packet["ip_dscp"], hop.queue) for hop in trace.hops} == {(LOCAL.of(5), 6)}


@pytest.mark.parametrize("dscp", [*LOCAL.classes, LOCAL.acknowledgement])
def test_a_host_cannot_mark_itself_up(dscp: int) -> None:
    fabric = two_spines()
    there, _ = between(fabric, "h1", "h3")
    trace = trace_packet(fabric, desired_rules(fabric, ()), "h1", tcp(there, fabric, ip_dscp=dscp))
    assert trace.arrived_at == "h3"
    assert {(h.packet["ip_dscp"], h.packet["ip_ecn"], h.queue) for h in trace.hops} == {(0, 2, 0)}


def test_codepoints_that_are_not_ours_pass() -> None:
    fabric = two_spines()
    there, _ = between(fabric, "h1", "h3")
    trace = trace_packet(fabric, desired_rules(fabric, ()), "h1", tcp(there, fabric, ip_dscp=46))
    assert trace.hops[-1].packet["ip_dscp"] == 46


def test_a_pair_whose_rule_has_timed_out_is_unregistered() -> None:
    fabric = two_spines()
    there, back = between(fabric, "h1", "h3")
    tables = desired_rules(fabric, [JobRules("s/s/j", 1, 1, 2, frozenset({there, back}))])
    expired = {name: {rule for rule in rules if not rule.counts} for name, rules in tables.items()}
    trace = trace_packet(fabric, expired, "h1", tcp(there, fabric, ip_dscp=LOCAL.of(0)))
    assert trace.arrived_at == "h3"
    assert {(hop.packet["ip_dscp"], hop.queue) for hop in trace.hops} == {(0, 0)}


def test_two_jobs_on_the_same_hosts_are_distinguished() -> None:
    fabric = two_spines()
    first, second = between(fabric, "h1", "h3", 5000), between(fabric, "h1", "h3", 6000)
    jobs = [JobRules("a", 1, 0, 0, frozenset(first)), JobRules("b", 2, 1, 5, frozenset(second))]
    tables = desired_rules(fabric, jobs)
    ways = [trace_packet(fabric, tables, "h1", tcp(connection, fabric)) for connection in (first[0], second[0])]
    assert [way.hops[0].packet["ip_dscp"] for way in ways] == [LOCAL.of(0), LOCAL.of(5)]
    assert ways[0].hops[1].switch != ways[1].hops[1].switch


def test_a_connection_that_two_jobs_claim_is_the_later_ones() -> None:
    fabric = two_spines()
    there, back = between(fabric, "h1", "h3")
    both = frozenset({there, back})
    earlier, later = JobRules("a", 1, 0, 0, both), JobRules("b", 2, 0, 6, both)
    assert desired_rules(fabric, [later, earlier]) == desired_rules(fabric, [earlier, later])
    trace = trace_packet(fabric, desired_rules(fabric, [later, earlier]), "h1", tcp(there, fabric))
    assert trace.hops[0].packet["ip_dscp"] == LOCAL.of(6)


def test_a_connection_with_an_end_outside_has_no_rules() -> None:
    fabric = star(2)
    outside = frozenset({("192.0.2.1", 1, "10.77.0.1", 2), ("10.77.0.1", 2, "192.0.2.1", 1)})
    assert desired_rules(fabric, [JobRules("a", 1, 0, 0, outside)]) == desired_rules(fabric, ())


def test_what_has_no_owner_is_dropped_and_nothing_returns_whence_it_came() -> None:
    fabric = two_spines()
    tables = desired_rules(fabric, ())
    assert trace_packet(fabric, tables, "h1", {"eth_type": IPV4, "ipv4_dst": "192.0.2.9"}).arrived_at is None
    announces_itself: Packet = {"eth_type": ARP, "arp_tpa": fabric.host["h1"].ip}
    assert trace_packet(fabric, tables, "h1", announces_itself).arrived_at is None


def test_every_rule_is_marked_as_ours_and_keyed_once_and_only_pairs_time_out() -> None:
    fabric = two_spines()
    jobs = [JobRules("a", 9, 0, 7, frozenset(between(fabric, "h1", "h4")))]
    for rules in desired_rules(fabric, jobs).values():
        assert len({rule.key for rule in rules}) == len(rules)
        assert {rule.cookie & COOKIE_MASK for rule in rules} == {COOKIE_PREFIX << 48}
        assert all(bool(rule.idle_s and rule.hard_s and rule.announced) == rule.counts for rule in rules)
        pairs = [rule for rule in rules if rule.counts]
        assert all((rule.cookie & 0xFFFFFFFF, rule.table) == (9, Table.CLASS) for rule in pairs)
        assert {rule.klass for rule in pairs if rule.priority != Band.ACKNOWLEDGE.priority} <= {7}


def test_bands_of_a_table_do_not_overlap_and_are_numbered_once() -> None:
    assert len({band.number for band in Band}) == len(Band)
    assert len({(band.table, band.priority) for band in Band}) == len(Band)


def test_a_pair_survives_the_way_through_metadata() -> None:
    pair = HostPair(2**32 - 1, 65_535, 258)
    assert HostPair.of(pair.metadata) == pair
    assert shadow(255, 258) == "02:be:ff:00:01:02"
