"""What a switch in memory can do: which rules it refuses, and how it says so of its tables."""

import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

FIELDS = frozenset(
    {
        *("in_port", "metadata", "eth_dst", "eth_src", "eth_type", "ip_dscp", "ip_proto", "ipv4_src", "ipv4_dst"),
        *("tcp_src", "tcp_dst", "arp_op", "arp_tpa", "ipv6_src", "ipv6_dst", "icmpv6_type", "ipv6_nd_target"),
    }
)
NUMBERS = {one.name: one.num & 0x7F for one in ofp.oxm_types if isinstance(one.num, int) and one.num >> 7 == 0x8000}


@dataclass(frozen=True)
class SwitchLimits:
    """What its tables do. max_entries: of each, None for any number. metadata: bits of it."""

    tables: int = 4
    matches: frozenset[str] = FIELDS
    rewrites: frozenset[str] = frozenset({"ip_dscp", "eth_dst"})
    actions: frozenset[int] = frozenset({ofp.OFPAT_OUTPUT, ofp.OFPAT_SET_FIELD, ofp.OFPAT_SET_QUEUE})
    metadata: bool = True
    max_entries: int | None = None

    def error(self, mod: Any, others: Iterable[Any]) -> tuple[int, int] | None:
        """Return the error by which it refuses to add a rule. others: what the rule's table holds beside it."""
        if mod.table_id >= self.tables:
            return ofp.OFPET_FLOW_MOD_FAILED, ofp.OFPFMFC_BAD_TABLE_ID
        if not dict(mod.match.items()).keys() <= self.matches - (frozenset() if self.metadata else {"metadata"}):
            return ofp.OFPET_BAD_MATCH, ofp.OFPBMC_BAD_FIELD
        for instruction in mod.instructions:
            if isinstance(instruction, parser.OFPInstructionGotoTable) and instruction.table_id >= self.tables:
                return ofp.OFPET_BAD_INSTRUCTION, ofp.OFPBIC_BAD_TABLE_ID
            if isinstance(instruction, parser.OFPInstructionWriteMetadata) and not self.metadata:
                return ofp.OFPET_BAD_INSTRUCTION, ofp.OFPBIC_UNSUP_METADATA
            for action in getattr(instruction, "actions", ()):
                if action.type not in self.actions:
                    return ofp.OFPET_BAD_ACTION, ofp.OFPBAC_BAD_TYPE
                if isinstance(action, parser.OFPActionSetField) and action.key not in self.rewrites:
                    return ofp.OFPET_BAD_ACTION, ofp.OFPBAC_BAD_SET_TYPE
        if self.max_entries is not None and sum(1 for _ in others) >= self.max_entries:
            return ofp.OFPET_FLOW_MOD_FAILED, ofp.OFPFMFC_TABLE_FULL
        return None

    def features(self) -> bytes:
        """Return what it says of its tables, as on the wire."""
        return b"".join(map(self._table, range(self.tables)))

    def _table(self, number: int) -> bytes:
        after = range(number + 1, self.tables)
        kinds = [ofp.OFPIT_APPLY_ACTIONS, ofp.OFPIT_METER]
        kinds += [ofp.OFPIT_WRITE_METADATA] if self.metadata else []
        kinds += [ofp.OFPIT_GOTO_TABLE] if after else []
        properties = (
            _list(ofp.OFPTFPT_INSTRUCTIONS, b"".join(struct.pack("!HH", one, 4) for one in kinds)),
            _list(ofp.OFPTFPT_NEXT_TABLES, bytes(after)),
            _list(ofp.OFPTFPT_APPLY_ACTIONS, b"".join(struct.pack("!HH", one, 4) for one in sorted(self.actions))),
            _list(ofp.OFPTFPT_MATCH, _fields(self.matches - (frozenset() if self.metadata else {"metadata"}))),
            _list(ofp.OFPTFPT_APPLY_SETFIELD, _fields(self.rewrites)),
        )
        bits = (1 << 64) - 1 if self.metadata else 0
        body = b"".join(properties)
        entries = 1_000_000 if self.max_entries is None else self.max_entries
        return struct.pack("!HB5x32sQQII", 64 + len(body), number, b"table", bits, bits, 0, entries) + body


def _fields(names: Collection[str]) -> bytes:
    return b"".join(struct.pack("!HBB", 0x8000, NUMBERS[name] << 1, 4) for name in sorted(names))


def _list(kind: int, ids: bytes) -> bytes:
    length = 4 + len(ids)
    return struct.pack("!HH", kind, length) + ids + bytes(-length % 8)
