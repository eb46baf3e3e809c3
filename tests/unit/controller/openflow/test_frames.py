"""Which bytes reach os-ken's parsers: what contradicts itself does not, and what does reach them is read without a surprise."""

import random
import struct
from typing import Any

import pytest
from os_ken.ofproto import ofproto_protocol
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from beamer.network.observed_fabric import PortState
from controller.openflow import wire
from controller.openflow.capabilities import tables_part
from controller.openflow.frame_elements import FrameError
from controller.openflow.frames import (
    FrameHeader,
    PacketIn,
    RuleChanges,
    content_of,
    hello_versions,
    packet_in,
    part_kind,
    readable,
    rule_changes,
)
from controller.openflow.rules import Rule
from tests.support import openflow_samples as samples
from tests.support.openflow_samples import (
    DSCP,
    ENTRY,
    IPV4,
    apply_actions,
    band,
    element,
    field,
    flow_entry,
    flow_removed,
    frame,
    goto,
    hello,
    match,
    meter,
    multipart,
    rewrite,
)

DATAPATH = ofproto_protocol.ProtocolDesc(version=ofp.OFP_VERSION)


def read(data: bytes) -> Any:
    """Return what is read of a frame that may be."""
    checked = readable(data)
    assert checked is not None
    head = FrameHeader.of(checked)
    if head.kind == ofp.OFPT_PACKET_IN:
        return packet_in(checked)
    if part_kind(checked) == ofp.OFPMP_FLOW:
        return wire.RuleReader().read(head.xid, checked)
    if part_kind(checked) == ofp.OFPMP_EXPERIMENTER:
        return rule_changes(checked)
    if part_kind(checked) == ofp.OFPMP_TABLE_FEATURES:
        return tables_part(head.xid, checked)
    return parser.msg_parser(DATAPATH, head.version, head.kind, head.length, head.xid, checked)


def rules_of(data: bytes) -> tuple[tuple[Rule | wire.ForeignRule, int, int], ...]:
    """Return what is read of an answer with flow entries."""
    checked = readable(data)
    assert checked is not None
    return wire.RuleReader().read(1, checked).body


def written(message: Any) -> None:
    message.set_xid(1)
    message.serialize()


def with_length(part: bytes, length: int, at: int = 2) -> bytes:
    """Return a part whose length says otherwise."""
    return part[:at] + struct.pack("!H", length) + part[at + 2 :]


def entries(*parts: bytes) -> bytes:
    return multipart(ofp.OFPMP_FLOW, *parts)


def changes(*parts: bytes) -> bytes:
    return frame(ofp.OFPT_MULTIPART_REPLY, samples.rule_changes(*parts))


def meters(*parts: bytes) -> bytes:
    return multipart(ofp.OFPMP_METER_CONFIG, *parts)


MATCH = match(IPV4)
WRONG = {
    "shorter than its header": b"\x04\x02\x00\x04\x00\x00\x00\x00",
    "length beyond its end": with_length(frame(ofp.OFPT_ECHO_REPLY), 9),
    "another version": frame(ofp.OFPT_BARRIER_REPLY, version=1),
    "barrier with a body": frame(ofp.OFPT_BARRIER_REPLY, bytes(8)),
    "features too short": frame(ofp.OFPT_FEATURES_REPLY, bytes(23)),
    "error without a code": frame(ofp.OFPT_ERROR, bytes(2)),
    "experimenter's error without its number": frame(ofp.OFPT_ERROR, struct.pack("!HH", ofp.OFPET_EXPERIMENTER, 0)),
    "multipart without a type": frame(ofp.OFPT_MULTIPART_REPLY, bytes(2)),
    "flow entry of length 0": entries(with_length(ENTRY, 0, at=0)),
    "flow entry shorter than its fixed part": entries(with_length(ENTRY, 40, at=0)),
    "flow entry beyond the frame": entries(with_length(ENTRY, len(ENTRY) + 8, at=0)),
    "rest of a flow entry": entries(ENTRY, bytes(3)),
    "match of length 0": entries(flow_entry(with_length(MATCH, 0))),
    "match beyond its entry": entries(flow_entry(with_length(MATCH, 0x100))),
    "match of the old type": entries(flow_entry(b"\x00\x00" + MATCH[2:])),
    "match without its padding": flow_removed(MATCH[:-4]),
    "bytes behind the match": flow_removed(MATCH + bytes(8)),
    "field of length 0": entries(flow_entry(match(field(5, b"")))),
    "field of another length": entries(flow_entry(match(field(5, b"\x08\x00\x00")))),
    "field with half a mask": entries(flow_entry(match(field(5, b"\x08\x00", b"\xff")))),
    "field beyond its match": entries(flow_entry(match(IPV4[:3] + b"\x20" + IPV4[4:]))),
    "field that is not defined": entries(flow_entry(match(field(99, b"\x01")))),
    "field of a vendor": entries(flow_entry(match(field(0, bytes(4), oxm_class=1)))),
    "field twice": entries(flow_entry(match(IPV4, IPV4))),
    "rest of a field": entries(flow_entry(match(IPV4, b"\x80\x00"))),
    "instruction of length 0": entries(flow_entry(MATCH, with_length(goto(1), 0))),
    "instruction beyond its entry": entries(flow_entry(MATCH, with_length(goto(1), 16))),
    "instruction of another length": entries(flow_entry(MATCH, element(ofp.OFPIT_GOTO_TABLE, bytes(12)))),
    "instruction that is not defined": entries(flow_entry(MATCH, element(77, bytes(4)))),
    "instruction of an experimenter": entries(flow_entry(MATCH, element(ofp.OFPIT_EXPERIMENTER, bytes(4)))),
    "action of length 0": entries(flow_entry(MATCH, apply_actions(with_length(samples.QUEUE, 0)))),
    "action beyond its instruction": entries(flow_entry(MATCH, apply_actions(with_length(samples.QUEUE, 16)))),
    "action of another length": entries(flow_entry(MATCH, apply_actions(element(ofp.OFPAT_SET_QUEUE, bytes(12))))),
    "action not of a multiple of 8": entries(flow_entry(MATCH, apply_actions(element(77, bytes(6))))),
    "rewritten field beyond its action": entries(flow_entry(MATCH, apply_actions(rewrite(DSCP[:3] + b"\x40")))),
    "rewritten field of another length": entries(flow_entry(MATCH, apply_actions(rewrite(field(8, b"\x01\x01"))))),
    "action longer than its field": entries(flow_entry(MATCH, apply_actions(rewrite(DSCP + bytes(8))))),
    "packet in without a match": frame(ofp.OFPT_PACKET_IN, bytes(20)),
    "packet in with a match of length 0": samples.packet_in(with_length(match(samples.IN_PORT), 0), b""),
    "packet in with a match beyond it": samples.packet_in(with_length(match(samples.IN_PORT), 80), b""),
    "packet in whose padding is missing": frame(ofp.OFPT_PACKET_IN, samples.packet_in(MATCH, b"")[8:-1]),
    "packet in with a field beyond its match": samples.packet_in(match(IPV4[:3] + b"\x20" + IPV4[4:]), bytes(60)),
    "packet in with half a port": samples.packet_in(match(field(0, b"\0\3")), bytes(60)),
    "port status too short": frame(ofp.OFPT_PORT_STATUS, bytes(64)),
    "part without its experimenter": multipart(ofp.OFPMP_EXPERIMENTER, bytes(4)),
    "half a port": multipart(ofp.OFPMP_PORT_DESC, samples.port(1, "p1")[:32]),
    "meter of length 0": meters(with_length(meter(1, band()), 0, at=0)),
    "meter beyond the frame": meters(with_length(meter(1, band()), 64, at=0)),
    "band of length 0": meters(meter(1, with_length(band(), 0))),
    "band of another length": meters(meter(1, element(ofp.OFPMBT_DROP, bytes(16)))),
    "band that is not defined": meters(meter(1, band(77))),
    "half a number of flow entries": multipart(ofp.OFPMP_AGGREGATE, bytes(12)),
    "two numbers of flow entries": multipart(ofp.OFPMP_AGGREGATE, bytes(48)),
    "another program's flow entry of length 0": entries(with_length(flow_entry(MATCH, cookie=1), 0, at=0)),
    "another program's flow entry beyond the frame": entries(with_length(flow_entry(MATCH, cookie=1), 80, at=0)),
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG.keys())
def test_what_contradicts_itself_is_refused_with_its_place(data: bytes) -> None:
    with pytest.raises(FrameError, match=r"byte|version"):
        readable(data)


@pytest.mark.parametrize("name", samples.READ)
def test_what_beamer_reads_is_handed_on_as_it_came(name: str) -> None:
    assert readable(samples.READ[name]) == samples.READ[name]
    read(samples.READ[name])


@pytest.mark.parametrize(
    "name",
    [
        "COPY_TTL_OUT", "COPY_TTL_IN", "SET_MPLS_TTL", "DEC_MPLS_TTL", "PUSH_VLAN", "POP_VLAN", "PUSH_MPLS", "POP_MPLS",
        "SET_QUEUE", "GROUP", "SET_NW_TTL", "DEC_NW_TTL", "PUSH_PBB", "POP_PBB",
    ],
)  # fmt: skip
def test_every_action_of_the_standard_is_handed_on_at_its_length(name: str) -> None:
    """All are of 8 bytes, but for the output (OpenFlow 1.3.5, 7.2.5): somebody else's rule must not end the connection."""
    action = element(getattr(ofp, f"OFPAT_{name}"), bytes(4))
    data = entries(flow_entry(MATCH, apply_actions(action), goto(3)))
    assert readable(data) == data


def test_of_another_programs_rule_only_where_it_is_and_whose_is_read_whatever_it_matches() -> None:
    odd = element(ofp.OFPMT_OXM, field(0, bytes(4), oxm_class=1) + b"\xff")
    data = entries(ENTRY, flow_entry(odd, element(77, b"\0"), cookie=5, table=2, priority=9))
    assert [rule for rule, _, _ in read(data).body][1] == wire.ForeignRule(2, 9, 5)


def test_a_packet_in_says_where_it_entered_and_holds_the_packet() -> None:
    assert read(samples.READ["packet in"]) == PacketIn(0, 3, b"data of any length")
    assert read(samples.READ["packet in without a port"]) is None
    assert read(samples.packet_in(match(samples.IN_PORT), b"")) == PacketIn(0, 3, b"")


@pytest.mark.parametrize(
    ("said", "by_others"),
    [
        ([], False),
        ([samples.OWN_CHANGE] * 3, False),
        ([samples.rule_change(ofp.ONFFME_DELETED, ofp.OFPRR_IDLE_TIMEOUT)], False),
        ([samples.rule_change(ofp.ONFFME_DELETED, ofp.OFPRR_HARD_TIMEOUT, bytes(8))], False),
        ([samples.rule_change(ofp.ONFFME_DELETED, ofp.OFPRR_DELETE)], True),
        ([samples.rule_change(ofp.ONFFME_ADDED)], True),
        ([samples.OWN_CHANGE, samples.rule_change(ofp.ONFFME_MODIFIED, more=bytes(24)), samples.OWN_CHANGE], True),
        ([with_length(samples.OWN_CHANGE, 0, at=0)], True),
        ([with_length(samples.OWN_CHANGE, 16, at=0)], True),
        ([samples.OWN_CHANGE, samples.OWN_CHANGE[:4]], True),
    ],
)
def test_what_others_change_is_told_from_own_changes_and_from_what_has_timed_out(said: list[bytes], by_others: bool) -> None:
    assert read(changes(*said)) == RuleChanges(0, by_others)


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        (samples.port(1, "l1-eth1", kbps=10_000_000), PortState("l1-eth1", True, 10_000_000_000, mac="02:00:00:00:00:01")),
        (samples.port(1, "a" * 16), PortState("a" * 16, True, mac="02:00:00:00:00:01")),
        (samples.port(1, "p", state=ofp.OFPPS_LINK_DOWN), PortState("p", False, mac="02:00:00:00:00:01")),
        (samples.port(1, "p", config=ofp.OFPPC_PORT_DOWN), PortState("p", False, mac="02:00:00:00:00:01")),
        (samples.port(1, "p", state=ofp.OFPPS_LIVE), PortState("p", True, mac="02:00:00:00:00:01")),
    ],
)
def test_what_a_port_is_like(described: bytes, expected: PortState) -> None:
    assert wire.port_state(read(multipart(ofp.OFPMP_PORT_DESC, described)).body[0]) == expected
    assert wire.port_state(read(samples.port_status(described)).desc) == expected


@pytest.mark.parametrize("name", samples.NOT_READ)
def test_what_beamer_does_not_read_never_reaches_the_parsers(name: str) -> None:
    assert readable(samples.NOT_READ[name]) is None


@pytest.mark.parametrize(
    "action",
    [
        element(77, bytes(12)),
        element(ofp.OFPAT_EXPERIMENTER, struct.pack("!IHH4x", 0x2320, 16, 0)),  # Nicira's "learn", whose parser loops
        rewrite(field(0, bytes(4), oxm_class=1)),
        rewrite(field(11, bytes(4), bytes(4))),
    ],
    ids=["undefined", "vendor's", "vendor's field", "masked field"],
)
def test_a_rule_with_an_action_of_no_rule_of_beamers_is_read_as_such(action: bytes) -> None:
    ((rule, _, _),) = rules_of(entries(flow_entry(MATCH, apply_actions(samples.QUEUE, action), goto(3))))
    assert not wire.is_ours(rule)
    assert rule.goto == 3, "what comes after it is still in step"


@pytest.mark.parametrize(
    ("data", "versions"),
    [
        (hello(), set()),
        (hello(1 << 4 | 1 << 1), {1, 4}),
        (hello(1 << 4, 1 << 31), {4, 63}),  # an element of 12 bytes and its padding of 4
        (frame(ofp.OFPT_HELLO, element(9, bytes(4)) + hello(1 << 4)[8:]), {4}),
    ],
)
def test_versions_of_a_hello(data: bytes, versions: set[int]) -> None:
    assert hello_versions(data) == versions


@pytest.mark.parametrize("rest", [b"\x00\x01\x00\x00", b"\x00\x01\x00\x03", b"\x00\x01\x00\x08", b"\x00"])
def test_a_hello_whose_element_has_a_wrong_length_is_refused(rest: bytes) -> None:
    with pytest.raises(FrameError, match="hello element at byte 8"):
        hello_versions(frame(ofp.OFPT_HELLO, rest))


def test_an_entry_that_was_checked_is_not_checked_again_but_for_its_length() -> None:
    odd = with_length(ENTRY, 0, at=len(ENTRY) - 6)  # of its last instruction
    with pytest.raises(FrameError, match="instruction"):
        readable(entries(odd))
    assert readable(entries(odd), {content_of(odd)}) == entries(odd), "by its content alone"
    counted = odd[:32] + struct.pack("!QQ", 7, 9000) + odd[48:]
    assert readable(entries(ENTRY, counted), {content_of(odd)}) is not None
    with pytest.raises(FrameError, match="flow entry"):
        readable(entries(with_length(odd, 8, at=0)), {content_of(with_length(odd, 8, at=0))})


def test_rules_that_were_read_are_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = wire.RuleReader()
    first = reader.read(1, entries(ENTRY, flow_entry(MATCH, goto(3)))).body
    monkeypatch.setattr(parser.OFPFlowStats, "parser", None)
    assert reader.read(2, entries(flow_entry(MATCH, goto(3)), ENTRY)).body == first[::-1]


def test_what_a_reader_remembers_is_bounded() -> None:
    reader = wire.RuleReader()
    for number in range(20):
        reader.read(1, entries(*(flow_entry(MATCH, goto(3), cookie=wire.COOKIE + 1000 * number + n) for n in range(500))))
    assert 500 <= len(reader.known) <= 3 * 500
    longest = flow_entry(MATCH, apply_actions(*(100 * [samples.QUEUE])))
    ((rule, _, _),) = reader.read(1, entries(longest)).body
    assert len(rule.actions) == 100
    assert content_of(longest) not in reader.known


def test_whatever_of_a_changed_frame_passes_is_parsed_without_a_surprise() -> None:
    rng = random.Random(7)
    warm = wire.RuleReader()  # has read everything before
    nested = [samples.READ[name] for name in ("flow entries", "flow removed", "masked match", "meters")]
    originals = [*samples.READ.values(), *samples.NOT_READ.values(), *3 * nested]
    outcomes = {"refused": 0, "dropped": 0, "parsed": 0}
    for _ in range(6000):
        data = bytearray(rng.choice(originals))
        for _ in range(rng.choice((1, 1, 2, 4))):
            data[rng.randrange(4, len(data))] = rng.choice((0, 1, 2, 4, 8, 16, 0x80, 0xFF, rng.randrange(256)))
        try:
            passed = readable(bytes(data))
        except FrameError:
            outcomes["refused"] += 1
            continue
        outcomes["dropped" if passed is None else "parsed"] += 1
        if passed is not None:
            message = read(bytes(data))
            if isinstance(message, wire.RulesPart):
                again = readable(bytes(data), warm.known)
                assert again is not None
                assert warm.read(1, again).body == rules_of(bytes(data))
                for rule, _, _ in rules_of(bytes(data)):
                    if isinstance(rule, wire.ForeignRule):
                        continue
                    assert (rule.pair is not None) == rule.counts
                    written(wire.removal(DATAPATH, rule))
                    if wire.is_ours(rule):
                        written(wire.renewal(DATAPATH, rule))
            elif isinstance(message, parser.OFPMeterConfigStatsReply):
                wire.observed_meters(message.body)
            elif isinstance(message, parser.OFPFlowRemoved):
                wire.removed(message)
    assert min(outcomes.values()) > 500, outcomes
