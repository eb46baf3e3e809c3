"""Frames as a switch sends them, put together by hand: tests and fuzzing need them with faults, which a library never makes.

Each function takes whatever is asked of it and counts the lengths, so that what it returns is well-formed until it is changed.
"""

import struct
from collections.abc import Mapping

from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto.ofproto_common import ONF_EXPERIMENTER_ID

from controller.openflow.rules import COOKIE_PREFIX, Band
from tests.support.switch_limits import SwitchLimits

BASIC_CLASS = 0x8000
COOKIE = COOKIE_PREFIX << 48 | Band.PAIR.number << 40 | 2 << 32 | 1  # of class 2, job 1


def frame(kind: int, body: bytes = b"", *, xid: int = 0, version: int = ofp.OFP_VERSION) -> bytes:
    """Return a whole frame."""
    return struct.pack("!BBHI", version, kind, ofp.OFP_HEADER_SIZE + len(body), xid) + body


def padded(part: bytes) -> bytes:
    """Return a part, filled up to a multiple of 8 bytes."""
    return part + bytes(-len(part) % 8)


def element(kind: int, body: bytes) -> bytes:
    """Return what begins with a type and a length: a hello element, an instruction, an action or a band."""
    return struct.pack("!HH", kind, 4 + len(body)) + body


def hello(*bitmaps: int) -> bytes:
    """Return a hello that lists versions by bitmaps, if there are any."""
    words = struct.pack(f"!{len(bitmaps)}I", *bitmaps)
    return frame(ofp.OFPT_HELLO, padded(element(ofp.OFPHET_VERSIONBITMAP, words)) if bitmaps else b"")


def features_reply(dpid: int, *, xid: int = 0) -> bytes:
    """Return the answer by which a switch says who it is."""
    return frame(ofp.OFPT_FEATURES_REPLY, struct.pack("!QIBBxxII", dpid, 0, 4, 0, 0, 0), xid=xid)


def field(number: int, value: bytes, mask: bytes = b"", oxm_class: int = BASIC_CLASS) -> bytes:
    """Return a match field."""
    return struct.pack("!HBB", oxm_class, number << 1 | bool(mask), len(value + mask)) + value + mask


IPV4 = field(5, b"\x08\x00")
METADATA = field(2, struct.pack("!Q", 1 << 32 | 1))  # job 1 from host 0 to host 1


def match(*fields: bytes) -> bytes:
    """Return a match with its padding."""
    return padded(element(ofp.OFPMT_OXM, b"".join(fields)))


def goto(table: int) -> bytes:
    """Return an instruction to continue in a table."""
    return element(ofp.OFPIT_GOTO_TABLE, struct.pack("!Bxxx", table))


def apply_actions(*actions: bytes) -> bytes:
    """Return an instruction to apply actions."""
    return element(ofp.OFPIT_APPLY_ACTIONS, bytes(4) + b"".join(actions))


def rewrite(part: bytes) -> bytes:
    """Return an action that sets a field."""
    return element(ofp.OFPAT_SET_FIELD, part + bytes(-(len(part) + 4) % 8))


OUTPUT = element(ofp.OFPAT_OUTPUT, struct.pack("!IH6x", 1, 0))
QUEUE = element(ofp.OFPAT_SET_QUEUE, struct.pack("!I", 3))
DSCP = field(8, b"\x13")


def flow_entry(matched: bytes, *instructions: bytes, cookie: int = COOKIE, table: int = 1, priority: int = 1000) -> bytes:
    """Return an entry of a multipart reply about flows."""
    rest = matched + b"".join(instructions)
    fixed = (48 + len(rest), table, 1, 0, priority, 60, 300, ofp.OFPFF_SEND_FLOW_REM, cookie, 7, 700)
    return struct.pack("!HBxIIHHHHxxxxQQQ", *fixed) + rest


def flow_removed(matched: bytes, *, cookie: int = COOKIE, table: int = 1, priority: int = 1000) -> bytes:
    """Return the message about a flow's end."""
    fixed = struct.pack("!QHBBIIHHQQ", cookie, priority, ofp.OFPRR_IDLE_TIMEOUT, table, 1, 0, 60, 300, 7, 700)
    return frame(ofp.OFPT_FLOW_REMOVED, fixed + matched)


def band(kind: int = ofp.OFPMBT_DROP) -> bytes:
    """Return a band of a meter."""
    return element(kind, struct.pack("!III", 1000, 300, 0))


def meter(number: int, *bands: bytes) -> bytes:
    """Return an entry of a multipart reply about meters."""
    rest = b"".join(bands)
    return struct.pack("!HHI", 8 + len(rest), ofp.OFPMF_KBPS | ofp.OFPMF_BURST, number) + rest


def multipart(kind: int, *entries: bytes, xid: int = 0, flags: int = 0) -> bytes:
    """Return a multipart reply."""
    return frame(ofp.OFPT_MULTIPART_REPLY, struct.pack("!HHxxxx", kind, flags) + b"".join(entries), xid=xid)


def port(number: int, name: str, state: int = 0, config: int = 0, kbps: int = 0) -> bytes:
    """Return the description of a port."""
    mac = bytes.fromhex("020000000001")
    return struct.pack("!I4x6s2x16sIIIIIIII", number, mac, name.encode(), config, state, 0, 0, 0, 0, kbps, 0)


def port_status(described: bytes, reason: int = ofp.OFPPR_MODIFY) -> bytes:
    """Return the message about a port's change."""
    return frame(ofp.OFPT_PORT_STATUS, struct.pack("!B7x", reason) + described)


def rule_changes(*changes: bytes) -> bytes:
    """Return the body of the message that says what has changed in a switch's tables."""
    return struct.pack("!HHxxxxII", ofp.OFPMP_EXPERIMENTER, 0, ONF_EXPERIMENTER_ID, ofp.ONFMP_FLOW_MONITOR) + b"".join(changes)


def rule_change(kind: int, reason: int = 0, more: bytes = b"", cookie: int = COOKIE) -> bytes:
    """Return a change that another connection has made, or that has come in time. more: its match and its instructions."""
    return struct.pack("!HHHHHHHBxQ", 24 + len(more), kind, reason, 5, 0, 0, 0, 3, cookie) + more


OWN_CHANGE = struct.pack("!HHI", 8, ofp.ONFFME_ABBREV, 77)


def packet_in(matched: bytes, data: bytes, cookie: int = COOKIE) -> bytes:
    """Return the message that hands a packet to the controller."""
    return frame(ofp.OFPT_PACKET_IN, struct.pack("!IHBBQ", 0xFFFFFFFF, len(data), 1, 0, cookie) + matched + bytes(2) + data)


IN_PORT = field(0, struct.pack("!I", 3))
ENTRY = flow_entry(match(IPV4, METADATA), apply_actions(rewrite(DSCP), QUEUE, OUTPUT), goto(3))

READ: Mapping[str, bytes] = {
    "error": frame(ofp.OFPT_ERROR, struct.pack("!HH", ofp.OFPET_FLOW_MOD_FAILED, ofp.OFPFMFC_TABLE_FULL) + bytes(64)),
    "experimenter's error": frame(ofp.OFPT_ERROR, struct.pack("!HHI", ofp.OFPET_EXPERIMENTER, 1, 0x4F4E4600)),
    "echo request": frame(ofp.OFPT_ECHO_REQUEST, b"beamer"),
    "echo reply": frame(ofp.OFPT_ECHO_REPLY),
    "features reply": features_reply(1),
    "barrier reply": frame(ofp.OFPT_BARRIER_REPLY),
    "role reply": frame(ofp.OFPT_ROLE_REPLY, struct.pack("!IxxxxQ", ofp.OFPCR_ROLE_MASTER, 7)),
    "flow removed": flow_removed(match(IPV4, METADATA)),
    "flow entries": multipart(ofp.OFPMP_FLOW, ENTRY, flow_entry(match(), cookie=0), ENTRY),
    "no flow entries": multipart(ofp.OFPMP_FLOW),
    "more flow entries": multipart(ofp.OFPMP_FLOW, ENTRY, flags=ofp.OFPMPF_REPLY_MORE),
    "masked match": multipart(ofp.OFPMP_FLOW, flow_entry(match(IPV4, field(11, b"\x0a\x00\x00\x00", b"\xff\x00\x00\x00")))),
    "another program's flow entry": multipart(
        ofp.OFPMP_FLOW, flow_entry(match(field(105, bytes(4), oxm_class=1)), element(77, bytes(4)), cookie=1)
    ),
    "number of flow entries": multipart(ofp.OFPMP_AGGREGATE, struct.pack("!QQIxxxx", 7, 700, 3)),
    "packet in": packet_in(match(field(105, bytes(4), oxm_class=1), IN_PORT), b"data of any length"),
    "packet in without a port": packet_in(match(IPV4), b""),
    "port status": port_status(port(3, "l1-eth3")),
    "ports": multipart(ofp.OFPMP_PORT_DESC, port(1, "l1-eth1"), port(0xFFFFFFFE, "l1")),
    "queues": multipart(ofp.OFPMP_QUEUE, struct.pack("!IIQQQII", 3, 1, 0, 0, 0, 0, 0), bytes(40)),
    "no changes": frame(ofp.OFPT_MULTIPART_REPLY, rule_changes()),
    "changes": frame(ofp.OFPT_MULTIPART_REPLY, rule_changes(OWN_CHANGE, rule_change(ofp.ONFFME_MODIFIED, more=bytes(16)))),
    "table features": multipart(ofp.OFPMP_TABLE_FEATURES, SwitchLimits().features()),
    "meters": multipart(ofp.OFPMP_METER_CONFIG, meter(0xB001, band()), meter(7), meter(9, band(ofp.OFPMBT_DSCP_REMARK))),
}
"""A frame of each type that Beamer reads."""

NOT_READ: Mapping[str, bytes] = {
    "hello": hello(1 << ofp.OFP_VERSION),
    "experimenter": frame(ofp.OFPT_EXPERIMENTER, struct.pack("!II", 0x2320, 30) + bytes(8)),
    "packet in by another's rule": packet_in(match(IPV4), bytes(60), cookie=0),
    "configuration": frame(ofp.OFPT_GET_CONFIG_REPLY, bytes(4)),
    "queues": frame(ofp.OFPT_QUEUE_GET_CONFIG_REPLY, struct.pack("!I4x", 1)),
    "flow removed of another": flow_removed(match(field(105, bytes(4), oxm_class=1)), cookie=1),
    "port counters": multipart(ofp.OFPMP_PORT_STATS, bytes(112)),
    "another experimenter's part": multipart(ofp.OFPMP_EXPERIMENTER, struct.pack("!II", 0x2320, 2) + bytes(8)),
}
"""A frame of each type that a switch may send and Beamer does not read."""
