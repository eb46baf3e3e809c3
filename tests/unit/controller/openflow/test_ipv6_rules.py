"""Rules for IPv6 and for several addresses of a host: where they lead, how many there are, and that none is without need."""

from dataclasses import replace
from ipaddress import IPv6Address
from itertools import permutations
from random import Random

import pytest
from os_ken.ofproto import ofproto_protocol
from os_ken.ofproto import ofproto_v1_3 as ofp

from beamer.network.addresses import canonical
from beamer.network.codepoints import LOCAL
from beamer.network.connection import FourTuple
from beamer.network.fabric import Fabric
from beamer.testing.fabrics import star, two_spines
from controller.openflow import wire
from controller.openflow.frame_elements import FrameError
from controller.openflow.frames import readable
from controller.openflow.held_rules import LINGER_S, SETTLE_S, _patience_s
from controller.openflow.rules import (
    ICMPV6,
    IPV4,
    IPV6,
    NEIGHBOUR_ADVERTISEMENT,
    NEIGHBOUR_SOLICITATION,
    TCP,
    Band,
    HostPair,
    JobRules,
    Rule,
    connection_rule,
    match,
    pair_rules,
)
from tests.support import openflow_samples as samples
from tests.support.openflow_switch import Packet, desired_rules, trace_packet


def dual(fabric: Fabric) -> Fabric:
    """Return a network whose hosts have an IPv6 and a second IPv4 address."""
    hosts = (replace(host, addresses=(f"fd00::{i:x}", f"10.50.1.{i}")) for i, host in enumerate(fabric.hosts, 1))
    return replace(fabric, hosts=tuple(hosts))


PLAIN = two_spines()
FABRIC = dual(PLAIN)
SECOND = replace(FABRIC, hosts=tuple(replace(host, addresses=host.addresses[1:]) for host in FABRIC.hosts))


def both_ways(fabric: Fabric, src: str, dst: str, place: int) -> tuple[FourTuple, FourTuple]:
    here, there = fabric.host[src].every_address[place], fabric.host[dst].every_address[place]
    return (here, 40_000, there, 5000), (there, 5000, here, 40_000)


def tcp(connection: FourTuple, fabric: Fabric, **fields: int | str) -> Packet:
    src_ip, src_port, dst_ip, dst_port = connection
    family, prefix = (IPV6, "ipv6") if ":" in src_ip else (IPV4, "ipv4")
    return {
        "eth_type": family,
        "eth_dst": fabric.hosts[fabric.position_at[dst_ip]].mac,
        "ip_proto": TCP,
        "ip_dscp": 0,
        f"{prefix}_src": src_ip,
        f"{prefix}_dst": dst_ip,
        "tcp_src": src_port,
        "tcp_dst": dst_port,
        **fields,
    }


def solicitation(target: str, eth_dst: str) -> Packet:
    group = "ff02::1:ff00:" + target.rpartition(":")[2]
    return {
        "eth_type": IPV6,
        "eth_dst": eth_dst,
        "ip_proto": ICMPV6,
        "icmpv6_type": NEIGHBOUR_SOLICITATION,
        "ipv6_dst": group,
        "ipv6_nd_target": target,
    }


def test_unregistered_packets_to_any_address_take_the_path_of_the_first_one() -> None:
    tables = desired_rules(FABRIC, ())
    for src, dst in permutations((host.name for host in FABRIC.hosts), 2):
        traces = [trace_packet(FABRIC, tables, src, tcp(both_ways(FABRIC, src, dst, i)[0], FABRIC)) for i in range(3)]
        assert {trace.arrived_at for trace in traces} == {dst}
        assert len({trace.links for trace in traces}) == 1
        assert {hop.queue for trace in traces for hop in trace.hops} == {0}


def test_neighbours_are_asked_for_over_one_path_and_answer_by_any_address() -> None:
    tables = desired_rules(FABRIC, ())
    for src, dst in permutations(FABRIC.hosts, 2):
        target = dst.addresses[0]
        by_address = trace_packet(FABRIC, tables, src.name, tcp(both_ways(FABRIC, src.name, dst.name, 0)[0], FABRIC))
        for eth_dst in ("33:33:ff:00:00:01", dst.mac):
            trace = trace_packet(FABRIC, tables, src.name, solicitation(target, eth_dst))
            assert trace.arrived_at == dst.name
            assert trace.links == by_address.links
        answer: Packet = {"eth_type": IPV6, "eth_dst": dst.mac, "ip_proto": ICMPV6, "icmpv6_type": 136, "ipv6_dst": "fe80::9"}
        assert trace_packet(FABRIC, tables, src.name, answer).arrived_at == dst.name


def test_what_no_file_names_goes_nowhere() -> None:
    tables = desired_rules(FABRIC, ())
    (own, _) = FABRIC.host["h1"].addresses
    nobody = solicitation("fd00::99", "33:33:ff:00:00:99")
    itself = solicitation(own, "33:33:ff:00:00:01")  # as where a host looks whether an address is taken
    router: Packet = {"eth_type": IPV6, "eth_dst": "33:33:00:00:00:02", "ip_proto": ICMPV6, "icmpv6_type": 133}
    for packet in (nobody, itself, router):
        assert trace_packet(FABRIC, tables, "h1", packet).arrived_at is None


@pytest.mark.parametrize("place", range(3))
def test_a_registered_connection_takes_its_class_and_plane_between_any_addresses(place: int) -> None:
    for src, dst in (("h1", "h3"), ("h2", "h1")):
        for plane in range(FABRIC.planes):
            there, back = both_ways(FABRIC, src, dst, place)
            tables = desired_rules(FABRIC, [JobRules("s/j", 7, plane, 3, frozenset({there, back}))])
            for connection, sender, receiver in ((there, src, dst), (back, dst, src)):
                for marked in (0, LOCAL.of(3), LOCAL.of(0)):
                    trace = trace_packet(FABRIC, tables, sender, tcp(connection, FABRIC, ip_dscp=marked))
                    assert trace.arrived_at == receiver
                    assert trace.hops[-1].packet["eth_dst"] == FABRIC.host[receiver].mac
                    links = [FABRIC.links[i] for i in FABRIC.path(sender, receiver, plane)]
                    assert trace.links == tuple((link.src, link.port) for link in links[1:])
                    assert {(hop.packet["ip_dscp"], hop.queue) for hop in trace.hops} == {(LOCAL.of(3), 4)}
                    (pair,) = {rule.pair for hop in trace.hops for rule in hop.rules if rule.counts}
                    assert pair is not None
                    assert (FABRIC.hosts[pair.src].name, FABRIC.hosts[pair.dst].name) == (sender, receiver)
                acknowledged = trace_packet(FABRIC, tables, sender, tcp(connection, FABRIC, ip_dscp=LOCAL.acknowledgement))
                assert {(hop.packet["ip_dscp"], hop.queue) for hop in acknowledged.hops} == {(LOCAL.of(0), 1)}


@pytest.mark.parametrize("dscp", LOCAL.all)
def test_codepoints_that_no_rule_gave_are_taken_off(dscp: int) -> None:
    there, _ = both_ways(FABRIC, "h1", "h3", 1)
    trace = trace_packet(FABRIC, desired_rules(FABRIC, ()), "h1", tcp(there, FABRIC, ip_dscp=dscp))
    assert {(hop.packet["ip_dscp"], hop.queue) for hop in trace.hops} == {(0, 0)}


def test_a_connection_between_two_addresses_of_a_host_has_no_rules() -> None:
    first, second = FABRIC.host["h1"].every_address[0], FABRIC.host["h1"].addresses[1]
    inside = frozenset({(first, 1, second, 2), (second, 2, first, 1)})
    assert desired_rules(FABRIC, [JobRules("s/j", 1, 0, 0, inside)]) == desired_rules(FABRIC, ())


@pytest.mark.parametrize("plain", [star(4), PLAIN], ids=lambda fabric: fabric.name)
def test_a_network_has_no_rule_of_ipv6_without_an_address_of_it(plain: Fabric) -> None:
    there, back = both_ways(plain, "h1", "h3", 0)
    jobs = [JobRules("s/j", 1, 0, 3, frozenset({there, back}))]
    before = desired_rules(plain, jobs)
    families = {rule.family for rules in before.values() for rule in rules}
    assert IPV6 not in families
    hosts = tuple(replace(host, addresses=("fd00::1",) if host.name == "h4" else ()) for host in plain.hosts)
    after = desired_rules(replace(plain, hosts=hosts), jobs)
    for name, rules in before.items():
        more = after[name] - rules
        trunks = sum(link.src == name and link.dst in plain.switch for link in plain.links)
        assert rules <= after[name], "what IPv4 has stays as it is"
        assert {rule.family for rule in more} == {IPV6}
        assert len(more) == len(LOCAL.all) + trunks * len(LOCAL.classes) + 2, "each codepoint once more, and two for the host"


def test_a_second_ipv4_address_costs_two_rules_a_switch() -> None:
    for name, rules in desired_rules(PLAIN, ()).items():
        assert len(desired_rules(SECOND, ())[name] - rules) == 2 * len(PLAIN.hosts)


def test_a_pair_has_rules_of_the_families_of_its_connections() -> None:
    jobs = [JobRules("s/j", 1, 0, 3, frozenset(both_ways(FABRIC, "h1", "h3", place))) for place in (0, 1)]
    of_pair = [{rule for rules in desired_rules(FABRIC, [job]).values() for rule in rules if rule.counts} for job in jobs]
    assert [{rule.family for rule in rules} for rules in of_pair] == [{IPV4}, {IPV6}]
    assert len(of_pair[0]) == len(of_pair[1]) == 6
    together = replace(jobs[0], connections=jobs[0].connections | jobs[1].connections)
    assert {r for rules in desired_rules(FABRIC, [together]).values() for r in rules if r.counts} == of_pair[0] | of_pair[1]


def test_a_rule_that_has_lost_its_purpose_waits_for_marked_packets_of_its_own_family() -> None:
    pair, job = HostPair(1, 0, 2), JobRules("s/j", 1, 0, 3, frozenset())
    rules = {family: tuple(pair_rules(FABRIC, pair, job, None, family=family)) for family in (IPV4, IPV6)}
    wanted = {rule.slot: rule for rule in rules[IPV6]}
    assert {_patience_s(rule, wanted.get) for rule in rules[IPV6] if not rule.climbs} == {LINGER_S}
    assert {_patience_s(rule, wanted.get) for rule in rules[IPV4]} == {SETTLE_S}


def test_rules_come_back_from_a_switch_as_they_were_written() -> None:
    datapath, rng = ofproto_protocol.ProtocolDesc(version=ofp.OFP_VERSION), Random(1)
    found: set[Rule] = {rule for rules in desired_rules(FABRIC, ()).values() for rule in rules if rule.family == IPV6}
    for _ in range(50):  # with runs of zeros at any place
        here, there = (canonical(":".join(["fd00", *(f"{rng.choice((0, 0, 1, 0xFFFF)):x}" for _ in range(7))])) for _ in "ab")
        found.add(connection_rule(FABRIC, (here, 1, there, 2), HostPair(1, 0, 1))[1])
    for rule in found:
        message = wire.addition(datapath, rule)
        message.serialize()
        read = message.parser(datapath, *message_head(message), message.buf)
        assert match(**dict(wire.match_of(read.match))) == rule.match


def solicitation_match(target: bytes) -> bytes:
    fields = (samples.field(5, b"\x86\xdd"), samples.field(10, b"\x3a"), samples.field(29, b"\x87"), samples.field(31, target))
    return samples.multipart(ofp.OFPMP_FLOW, samples.flow_entry(samples.match(*fields)))


def test_a_switchs_entry_with_ipv6_fields_is_checked_and_read() -> None:
    data = solicitation_match(IPv6Address("fd00::a").packed)
    assert readable(data) == data
    ((rule, _, _),) = wire.RuleReader().read(1, data).body
    expected = match(eth_type=IPV6, ip_proto=ICMPV6, icmpv6_type=NEIGHBOUR_SOLICITATION, ipv6_nd_target="fd00::a")
    assert rule.match == expected
    with pytest.raises(FrameError, match="length 12, expected 16"):
        readable(solicitation_match(bytes(12)))


def message_head(message: object) -> tuple[int, int, int, int]:
    return ofp.OFP_VERSION, message.msg_type, message.msg_len, message.xid or 0  # type: ignore[attr-defined]


def test_solicitations_are_a_band_of_their_own_below_addresses() -> None:
    assert Band.ARP.priority < Band.NEIGHBOUR.priority < Band.ADDRESS.priority


def test_a_host_without_ipv4_is_reached_by_ipv6_alone_and_its_answers_reach_the_controller() -> None:
    alone = replace(PLAIN, hosts=(replace(PLAIN.hosts[0], ip="fd00::1"), *PLAIN.hosts[1:]))
    answers = ("icmpv6_type", NEIGHBOUR_ADVERTISEMENT)
    for name, rules in desired_rules(alone, []).items():
        assert sum(answers in rule.match for rule in rules) == 1, name
        assert sum(rule.band == Band.NEIGHBOUR.number for rule in rules) == 1
        assert sum(rule.band == Band.ARP.number for rule in rules) == len(PLAIN.hosts) - 1
        assert sum(rule.band == Band.ADDRESS.number for rule in rules) == len(PLAIN.hosts)
        assert not any(answers in rule.match for rule in desired_rules(FABRIC, [])[name]), "it is asked over IPv4"
