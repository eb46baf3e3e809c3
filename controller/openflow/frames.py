"""What may reach os-ken's parsers: frames whose every length is consistent, of the types that Beamer reads.

os-ken believes the lengths in a message: its parsers advance by them, so that a length of 0 keeps one busy for ever, and look
kinds up without a default. Everything that it relies on is checked here first, on the bytes; what Beamer does not read is
dropped unparsed. A hello is read here alone, as os-ken does not step over an element's padding (OpenFlow 1.3.5, A.1).

    hello                (elements)                         the versions that the peer speaks
    features reply, error, echo request and reply, barrier reply, role reply
    flow removed         of a rule of Beamer's: match of fields
    port status
    packet in            by a rule of Beamer's: match of fields, read here alone, as a switch may match by what it likes
    multipart reply      flow entries: match of fields, instructions of actions, of which some hold a field; of another
                         program's nothing but table, priority and cookie is read
                         number of flow entries
                         meter configurations of bands
                         descriptions of ports
                         counts of queues
                         what has changed in the tables (EXT-187): which kind of change, and why a rule went, read here alone
                         features of tables, read by Beamer itself, as far as their lengths agree
"""

import struct
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass

from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto.ofproto_common import ONF_EXPERIMENTER_ID

from controller.openflow.frame_elements import (
    ALIGNED,
    BASIC_CLASS,
    LENGTH,
    OXM_HEADER,
    WORD,
    FrameError,
    check_least,
    check_size,
    element_end,
    elements,
    match_end,
    read_field,
)
from controller.openflow.rules import COOKIE_MASK, COOKIE_PREFIX

HEADER = ofp.OFP_HEADER_SIZE
UNKNOWN_VENDOR = 0  # os-ken parses no extension of this vendor: it keeps such an action as bytes.

_KIND_LENGTH = struct.Struct("!HH")
_TWO_WORDS = struct.Struct("!II")
_CHANGE_HEAD = struct.Struct("!HHH")  # length, kind of change, reason
_COOKIE = struct.Struct("!Q")
_PACKETS_BYTES = struct.Struct("!QQ")
_MULTIPART = ofp.OFP_MULTIPART_REPLY_SIZE
_FLOW_STATS = ofp.OFP_FLOW_STATS_0_SIZE
# Places in a flow entry (OpenFlow 1.3.5, 7.3.5.2).
_DURATION, _COUNTS = slice(4, 12), slice(32, 48)
_TABLE_AT, _PRIORITY_AT, _COOKIE_AT = 2, 12, 24
_FLOW_REMOVED = HEADER + 40  # So many bytes precede the match.
_PACKET_IN = HEADER + 16  # So many bytes precede the match.
_PACKET_IN_COOKIE = HEADER + 8
_AGGREGATE = ofp.OFP_AGGREGATE_STATS_REPLY_SIZE
_PORT = ofp.OFP_PORT_SIZE
_QUEUE_STATS = ofp.OFP_QUEUE_STATS_SIZE
_EXPERIMENTER = _MULTIPART + 8  # So many bytes precede what an experimenter's part holds.
_TIMED_OUT = (ofp.OFPRR_IDLE_TIMEOUT, ofp.OFPRR_HARD_TIMEOUT)
_IN_PORT = 0x80000004  # the header of the match field of the port by which a packet has entered

_INSTRUCTION_BYTES: Mapping[int, int] = {
    ofp.OFPIT_GOTO_TABLE: 8,
    ofp.OFPIT_WRITE_METADATA: 24,
    ofp.OFPIT_METER: 8,
}
_ACTION_LISTS = frozenset({ofp.OFPIT_WRITE_ACTIONS, ofp.OFPIT_APPLY_ACTIONS, ofp.OFPIT_CLEAR_ACTIONS})
_ACTION_BYTES: Mapping[int, int] = {
    ofp.OFPAT_OUTPUT: 16,
    ofp.OFPAT_COPY_TTL_OUT: 8,
    ofp.OFPAT_COPY_TTL_IN: 8,
    ofp.OFPAT_SET_MPLS_TTL: 8,
    ofp.OFPAT_DEC_MPLS_TTL: 8,
    ofp.OFPAT_PUSH_VLAN: 8,
    ofp.OFPAT_POP_VLAN: 8,
    ofp.OFPAT_PUSH_MPLS: 8,
    ofp.OFPAT_POP_MPLS: 8,
    ofp.OFPAT_SET_QUEUE: 8,
    ofp.OFPAT_GROUP: 8,
    ofp.OFPAT_SET_NW_TTL: 8,
    ofp.OFPAT_DEC_NW_TTL: 8,
    ofp.OFPAT_PUSH_PBB: 8,
    ofp.OFPAT_POP_PBB: 8,
}
_BAND_BYTES: Mapping[int, int] = {ofp.OFPMBT_DROP: 16, ofp.OFPMBT_DSCP_REMARK: 16, ofp.OFPMBT_EXPERIMENTER: 16}


@dataclass(frozen=True)
class FrameHeader:
    """The first bytes of a frame. length: of the whole, in bytes."""

    version: int
    kind: int
    length: int
    xid: int

    @classmethod
    def of(cls, head: bytes) -> "FrameHeader":
        """Return the header that a frame begins with. Raises `FrameError` if its length does not include itself."""
        found = cls(*struct.unpack_from("!BBHI", head))
        if found.length < HEADER:
            raise FrameError(f"a frame of {found.length} bytes, expected at least {HEADER}")
        return found


@dataclass(frozen=True)
class PacketIn:
    """A packet that a rule of Beamer's hands to the controller. port: by which it entered the switch."""

    xid: int
    port: int
    frame: bytes


def packet_in(frame: bytes) -> PacketIn | None:
    """Return what a checked frame of that type hands over, None if no port is named."""
    head = FrameHeader.of(frame)
    (length,) = LENGTH.unpack_from(frame, _PACKET_IN + 2)
    at, end = _PACKET_IN + 4, _PACKET_IN + length
    data = frame[end + -length % ALIGNED + 2 :]
    while at < end:
        (field,) = WORD.unpack_from(frame, at)
        if field == _IN_PORT:
            return PacketIn(head.xid, int(WORD.unpack_from(frame, at + OXM_HEADER)[0]), data)
        at += OXM_HEADER + (field & 0xFF)
    return None


@dataclass(frozen=True)
class RuleChanges:
    """What has changed in a switch's tables, in answer to a request to be told of it, and later.

    by_others: whether another connection has made, changed or removed a rule.
    """

    xid: int
    by_others: bool
    flags: int = 0
    body: tuple["RuleChanges", ...] = ()


def rule_changes(frame: bytes) -> RuleChanges:
    """Return what a checked part of that kind says; a change that cannot be read counts as one that another has made."""
    at, by_others = _EXPERIMENTER, False
    while at < len(frame) and not by_others:
        length, by_others = _change(frame, at)
        at += length
    return RuleChanges(FrameHeader.of(frame).xid, by_others)


def _change(frame: bytes, at: int) -> tuple[int, bool]:
    """Return a change's length, and whether it is neither one that this connection has made nor a rule's end in time."""
    if len(frame) - at < _CHANGE_HEAD.size:
        return 0, True
    length, kind, reason = _CHANGE_HEAD.unpack_from(frame, at)
    is_readable = _CHANGE_HEAD.size <= length <= len(frame) - at
    is_expected = kind == ofp.ONFFME_ABBREV or (kind == ofp.ONFFME_DELETED and reason in _TIMED_OUT)
    return length, not (is_readable and is_expected)


def hello_versions(frame: bytes) -> frozenset[int]:
    """Return the versions of OpenFlow that a hello lists, none if it lists none. Raises `FrameError`."""
    versions: set[int] = set()
    offset = HEADER
    while offset < len(frame):
        end = element_end(frame, offset, len(frame), 4, "a hello element")
        if _KIND_LENGTH.unpack_from(frame, offset)[0] == ofp.OFPHET_VERSIONBITMAP:
            for word in range((end - offset - 4) // 4):
                (bits,) = WORD.unpack_from(frame, offset + 4 + 4 * word)
                versions.update(32 * word + bit for bit in range(32) if bits >> bit & 1)
        offset = end + -(end - offset) % ALIGNED
    return frozenset(versions)


def part_kind(frame: bytes) -> int | None:
    """Return of which kind a checked frame is a part of an answer, None if it is no such part."""
    return None if FrameHeader.of(frame).kind != ofp.OFPT_MULTIPART_REPLY else int(LENGTH.unpack_from(frame, HEADER)[0])


def has_more(part: bytes) -> bool:
    """Return whether more parts of an answer follow."""
    return bool(LENGTH.unpack_from(part, HEADER + 2)[0] & ofp.OFPMPF_REPLY_MORE)


def entries_of(part: bytes) -> Iterator[bytes]:
    """Yield the flow entries of a checked part of an answer."""
    at = _MULTIPART
    while at < len(part):
        end = at + int(LENGTH.unpack_from(part, at)[0])
        yield part[at:end]
        at = end


def counts_of(entry: bytes) -> tuple[int, int]:
    """Return the bytes and the packets that a flow entry has counted."""
    packets, count = _PACKETS_BYTES.unpack_from(entry, _COUNTS.start)
    return count, packets


def is_foreign(entry: bytes | bytearray) -> bool:
    """Return whether a flow entry is another program's: Beamer's parsers do not read any more of it."""
    return bool(_COOKIE.unpack_from(entry, _COOKIE_AT)[0] & COOKIE_MASK != COOKIE_PREFIX << 48)


def identity_of(entry: bytes) -> tuple[int, int, int]:
    """Return the table, the priority and the cookie of a flow entry."""
    (priority,), (cookie,) = LENGTH.unpack_from(entry, _PRIORITY_AT), _COOKIE.unpack_from(entry, _COOKIE_AT)
    return entry[_TABLE_AT], int(priority), int(cookie)


def content_of(entry: bytes | bytearray) -> bytes:
    """Return what of a flow entry stays the same from one answer to the next: all but its duration and its counts."""
    return bytes(entry[: _DURATION.start] + entry[_DURATION.stop : _COUNTS.start] + entry[_COUNTS.stop :])


def readable(frame: bytes, checked_before: Container[bytes] = ()) -> bytes | None:
    """Return a frame as os-ken may parse it, or None if it is of a type that Beamer does not read.

    An action that is not of the standard is handed on as one of an unknown vendor: what Beamer has to know of it is that it is
    not Beamer's. checked_before: the contents of flow entries that were in a frame returned before. Raises `FrameError`.
    """
    head = FrameHeader.of(frame)
    if head.length != len(frame):
        raise FrameError(f"a frame of {len(frame)} bytes whose header says {head.length}")
    if head.version != ofp.OFP_VERSION:
        raise FrameError(f"a frame of OpenFlow version {head.version:#04x}, expected {ofp.OFP_VERSION:#04x}")
    check = _CHECKS.get(head.kind)
    if check is None:
        return None
    checked = bytearray(frame)
    return bytes(checked) if check(checked, checked_before) else None


def _exactly(size: int, what: str) -> Callable[[bytearray, Container[bytes]], bool]:
    """Return what checks a message of a fixed size."""

    def check(frame: bytearray, _: Container[bytes]) -> bool:
        if len(frame) != size:
            raise FrameError(f"{what} of {len(frame)} bytes, expected {size}")
        return True

    return check


def _error(frame: bytearray, _: Container[bytes]) -> bool:
    check_least(frame, HEADER + 4, "an error")
    if LENGTH.unpack_from(frame, HEADER)[0] == ofp.OFPET_EXPERIMENTER:
        check_least(frame, HEADER + 8, "an experimenter's error")
    return True


def _flow_removed(frame: bytearray, _: Container[bytes]) -> bool:
    check_least(frame, _FLOW_REMOVED + 8, "a flow removed")
    if _COOKIE.unpack_from(frame, HEADER)[0] & COOKIE_MASK != COOKIE_PREFIX << 48:
        return False  # A rule that is not Beamer's may match by anything.
    if (end := match_end(frame, _FLOW_REMOVED, len(frame))) != len(frame):
        raise FrameError(f"a flow removed with {len(frame) - end} bytes behind its match, at byte {end}")
    return True


def _packet_in(frame: bytearray, _: Container[bytes]) -> bool:
    check_least(frame, _PACKET_IN + 8, "a packet in")
    if _COOKIE.unpack_from(frame, _PACKET_IN_COOKIE)[0] & COOKIE_MASK != COOKIE_PREFIX << 48:
        return False
    end = element_end(frame, _PACKET_IN, len(frame), 4, "a match")
    at = _PACKET_IN + 4
    while at < end:
        if end - at < OXM_HEADER or (field := WORD.unpack_from(frame, at)[0]) & 0xFF > end - at - OXM_HEADER:
            raise FrameError(f"a match field at byte {at} that ends behind its match, at byte {end}")
        if field >> 8 == _IN_PORT >> 8 and field != _IN_PORT:
            raise FrameError(f"a match field at byte {at}: length {field & 0xFF}, expected 4")
        at += OXM_HEADER + (field & 0xFF)
    if (padded := end + -(end - _PACKET_IN) % ALIGNED + 2) > len(frame):
        raise FrameError(f"a packet in whose padding ends at byte {padded}, behind byte {len(frame)}")
    return True


def _multipart_reply(frame: bytearray, checked_before: Container[bytes]) -> bool:
    check_least(frame, _MULTIPART, "a multipart reply")
    check = _PARTS.get(LENGTH.unpack_from(frame, HEADER)[0])
    if check is None:
        return False
    return check(frame, checked_before) is not False


def _flow_entries(frame: bytearray, checked_before: Container[bytes]) -> None:
    for offset, end in elements(frame, _MULTIPART, len(frame), _FLOW_STATS + 8, "a flow entry", length_at=0):
        entry = frame[offset:end]
        if content_of(entry) in checked_before or is_foreign(entry):
            continue
        at = match_end(frame, offset + _FLOW_STATS, end)
        for instruction, instruction_end in elements(frame, at, end, 8, "an instruction"):
            _instruction(frame, instruction, instruction_end)


def _instruction(frame: bytearray, offset: int, end: int) -> None:
    (kind,) = LENGTH.unpack_from(frame, offset)
    if kind not in _ACTION_LISTS:
        check_size(kind, _INSTRUCTION_BYTES, offset, end, "an instruction")
        return
    for action, action_end in elements(frame, offset + 8, end, 8, "an action", aligned=True):
        (kind,) = LENGTH.unpack_from(frame, action)
        if kind in _ACTION_BYTES:
            check_size(kind, _ACTION_BYTES, action, action_end, "an action")
        elif kind != ofp.OFPAT_SET_FIELD or not _plain_field(frame, action + 4, action_end):
            struct.pack_into("!HHI", frame, action, ofp.OFPAT_EXPERIMENTER, action_end - action, UNKNOWN_VENDOR)


def _plain_field(frame: bytearray, offset: int, end: int) -> bool:
    """Return whether a rewriting action's field is one of the standard, without a mask. Raises `FrameError`."""
    header, field_end = read_field(frame, offset, end)
    if field_end + -(field_end - offset + 4) % ALIGNED != end:
        raise FrameError(f"a field of {field_end - offset} bytes at byte {offset} in an action that ends at byte {end}")
    return header >> 16 == BASIC_CLASS and not header & 0x100


def _rule_count(frame: bytearray, _: Container[bytes]) -> None:
    if len(frame) != _MULTIPART + _AGGREGATE:
        raise FrameError(
            f"a number of flow entries in {len(frame) - _MULTIPART} bytes at byte {_MULTIPART}, expected {_AGGREGATE}"
        )


def _meter_configs(frame: bytearray, _: Container[bytes]) -> None:
    for offset, end in elements(frame, _MULTIPART, len(frame), 8, "a meter", length_at=0):
        for band, band_end in elements(frame, offset + 8, end, 12, "a meter band"):
            check_size(LENGTH.unpack_from(frame, band)[0], _BAND_BYTES, band, band_end, "a meter band")


def _ports(frame: bytearray, _: Container[bytes]) -> None:
    if (len(frame) - _MULTIPART) % _PORT:
        raise FrameError(f"descriptions of ports of {len(frame) - _MULTIPART} bytes, expected a multiple of {_PORT}")


def _queues(frame: bytearray, _: Container[bytes]) -> None:
    if (len(frame) - _MULTIPART) % _QUEUE_STATS:
        raise FrameError(f"counts of queues of {len(frame) - _MULTIPART} bytes, expected a multiple of {_QUEUE_STATS}")


def _changes(frame: bytearray, _: Container[bytes]) -> bool:
    check_least(frame, _EXPERIMENTER, "an experimenter's part")
    return bool(_TWO_WORDS.unpack_from(frame, _MULTIPART) == (ONF_EXPERIMENTER_ID, ofp.ONFMP_FLOW_MONITOR))


_PARTS: Mapping[int, Callable[[bytearray, Container[bytes]], bool | None]] = {
    ofp.OFPMP_FLOW: _flow_entries,
    ofp.OFPMP_AGGREGATE: _rule_count,
    ofp.OFPMP_METER_CONFIG: _meter_configs,
    ofp.OFPMP_PORT_DESC: _ports,
    ofp.OFPMP_QUEUE: _queues,
    ofp.OFPMP_EXPERIMENTER: _changes,
    ofp.OFPMP_TABLE_FEATURES: lambda frame, _: None,
}
_CHECKS: Mapping[int, Callable[[bytearray, Container[bytes]], bool]] = {
    ofp.OFPT_ERROR: _error,
    ofp.OFPT_ECHO_REQUEST: lambda frame, _: True,
    ofp.OFPT_ECHO_REPLY: lambda frame, _: True,
    ofp.OFPT_FEATURES_REPLY: _exactly(HEADER + 24, "a features reply"),
    ofp.OFPT_BARRIER_REPLY: _exactly(HEADER, "a barrier reply"),
    ofp.OFPT_ROLE_REPLY: _exactly(HEADER + 16, "a role reply"),
    ofp.OFPT_MULTIPART_REPLY: _multipart_reply,
    ofp.OFPT_FLOW_REMOVED: _flow_removed,
    ofp.OFPT_PACKET_IN: _packet_in,
    ofp.OFPT_PORT_STATUS: _exactly(HEADER + 8 + _PORT, "a port status"),
}
"""Each returns whether Beamer reads the message; a multipart reply may be of a kind that it does not."""
