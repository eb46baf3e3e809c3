"""Rules as OpenFlow 1.3 messages and back: the only place that makes os-ken's matches, instructions and actions."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from beamer.network.observed_fabric import PortState
from controller.openflow.frames import content_of, counts_of, entries_of, has_more, identity_of, is_foreign
from controller.openflow.meters import RateMeter
from controller.openflow.rules import COOKIE_MASK, COOKIE_PREFIX, Match, Output, Rule, RuleAction, SetField, SetQueue

COOKIE = COOKIE_PREFIX << 48
REWRITTEN = frozenset({"ip_dscp", "eth_dst"})
STALE = ofp.OFPET_ROLE_REQUEST_FAILED, ofp.OFPRRFC_STALE
TABLE_FULL = ofp.OFPET_FLOW_MOD_FAILED, ofp.OFPFMFC_TABLE_FULL
UNSUPPORTED = frozenset(
    {
        (ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_BAD_TABLE_ID),
        (ofp.OFPET_BAD_INSTRUCTION, ofp.OFPBIC_UNKNOWN_INST),
        (ofp.OFPET_BAD_INSTRUCTION, ofp.OFPBIC_UNSUP_INST),
        (ofp.OFPET_BAD_INSTRUCTION, ofp.OFPBIC_BAD_TABLE_ID),
        (ofp.OFPET_BAD_INSTRUCTION, ofp.OFPBIC_UNSUP_METADATA),
        (ofp.OFPET_BAD_INSTRUCTION, ofp.OFPBIC_UNSUP_METADATA_MASK),
        (ofp.OFPET_BAD_MATCH, ofp.OFPBMC_BAD_TYPE),
        (ofp.OFPET_BAD_MATCH, ofp.OFPBMC_BAD_WILDCARDS),
        (ofp.OFPET_BAD_MATCH, ofp.OFPBMC_BAD_FIELD),
        (ofp.OFPET_BAD_MATCH, ofp.OFPBMC_BAD_MASK),
        (ofp.OFPET_BAD_ACTION, ofp.OFPBAC_BAD_TYPE),
        (ofp.OFPET_BAD_ACTION, ofp.OFPBAC_BAD_ARGUMENT),
        (ofp.OFPET_BAD_ACTION, ofp.OFPBAC_TOO_MANY),
        (ofp.OFPET_BAD_ACTION, ofp.OFPBAC_UNSUPPORTED_ORDER),
        (ofp.OFPET_BAD_ACTION, ofp.OFPBAC_BAD_SET_TYPE),
        (ofp.OFPET_FLOW_MOD_FAILED, ofp.OFPFMFC_BAD_TABLE_ID),
    }
)
"""The errors that say that a switch cannot carry a rule out, whatever else it holds.

Not those of rights, of bad messages, of a queue that is missing so far, or of unknown cause: such rules are tried again.
"""
METER_FLAGS = ofp.OFPMF_KBPS | ofp.OFPMF_BURST
MONITOR = 0xBEA3  # the number of the request to be told of changes
MAX_ENCODED = 4096  # So many matches and instructions stay encoded: some 10 MB.
_MIN_KNOWN = 1024  # A reader remembers so many rules in any case.
_MAX_CONTENT = 512  # A reader remembers entries of at most so many bytes: Beamer's have less than 200.


def addition(datapath: Any, rule: Rule) -> Any:
    """Return the message that adds `rule`, or overwrites the one of equal key."""
    return _flow_mod(datapath, rule, ofp.OFPFC_ADD)


def renewal(datapath: Any, rule: Rule) -> Any:
    """Return the message that restarts the hard time-out of `rule` and keeps its counts; no effect if it is gone."""
    return _flow_mod(datapath, rule, ofp.OFPFC_MODIFY_STRICT)


def is_ours(rule: Rule) -> bool:
    """Return whether a rule under our cookie has actions that Beamer writes: any other cannot be written again."""
    return all(not isinstance(action, SetField) or action.field in REWRITTEN for action in rule.actions)


def removal(datapath: Any, rule: Rule) -> Any:
    """Return the message that deletes exactly `rule`."""
    return _flow_mod(datapath, rule, ofp.OFPFC_DELETE_STRICT)


def barrier(datapath: Any) -> Any:
    """Return the message that is answered when all before it have been processed."""
    return parser.OFPBarrierRequest(datapath)


def leading(datapath: Any, term: int) -> Any:
    """Return the request to take this controller's changes alone, unless one of a later term has asked so.

    OpenFlow 1.3.5, 6.3.6: the switch makes every other controller a follower, and refuses requests of earlier terms as stale.
    """
    return parser.OFPRoleRequest(datapath, ofp.OFPCR_ROLE_MASTER, term)


def role_query(datapath: Any) -> Any:
    """Return the request for the latest term that the switch knows of, which is `generation_id` of the answer."""
    return parser.OFPRoleRequest(datapath, ofp.OFPCR_ROLE_NOCHANGE, 0)


def meter_change(datapath: Any, meter: RateMeter, command: int) -> Any:
    """Return the message that adds, modifies or deletes `meter`, with the last every rule that refers to it.

    command: `OFPMC_ADD`, `OFPMC_MODIFY` or `OFPMC_DELETE`.
    """
    bands = [] if command == ofp.OFPMC_DELETE else [parser.OFPMeterBandDrop(meter.rate_kbps, meter.burst_kbit)]
    return parser.OFPMeterMod(datapath, command, METER_FLAGS, meter.id, bands)


def meters_request(datapath: Any) -> Any:
    """Return the request for the configuration of all meters."""
    return parser.OFPMeterConfigStatsRequest(datapath, 0, ofp.OFPM_ALL)


def observed_meters(configs: Iterable[Any]) -> dict[int, RateMeter]:
    """Return our meters in an answer to `meters_request` by id; what is not as Beamer writes it has no rate."""
    found = {}
    for config in configs:
        ours = config.flags == METER_FLAGS and [type(band) for band in config.bands] == [parser.OFPMeterBandDrop]
        rate, burst = (config.bands[0].rate, config.bands[0].burst_size) if ours else (0, 0)
        found[config.meter_id] = RateMeter(config.meter_id, rate, burst)
    return {number: meter for number, meter in found.items() if meter.is_own}


def stats_request(datapath: Any, table: int = ofp.OFPTT_ALL, *, foreign: bool = False) -> Any:
    """Return the request for our rules with their counters. foreign: and for those of other programs."""
    cookie, mask = (0, 0) if foreign else (COOKIE, COOKIE_MASK)
    any_port, any_group = ofp.OFPP_ANY, ofp.OFPG_ANY
    return parser.OFPFlowStatsRequest(datapath, 0, table, any_port, any_group, cookie, mask, parser.OFPMatch())


def count_request(datapath: Any, *, foreign: bool = False) -> Any:
    """Return the request for the number of our rules. foreign: of these and those of other programs."""
    cookie, mask = (0, 0) if foreign else (COOKIE, COOKIE_MASK)
    any_port, any_group = ofp.OFPP_ANY, ofp.OFPG_ANY
    return parser.OFPAggregateStatsRequest(datapath, 0, ofp.OFPTT_ALL, any_port, any_group, cookie, mask, parser.OFPMatch())


def announcing(datapath: Any) -> Any:
    """Return the request to be told from now on what changes in the switch's tables (ONF EXT-187, as Open vSwitch has it)."""
    return parser.ONFFlowMonitorStatsRequest(datapath, 0, [_EveryChange()])


def rule_count(answer: Sequence[Any]) -> int:
    """Return the number of rules in an answer to `count_request`, which comes behind their packets and bytes."""
    return int(answer[2])


@dataclass(frozen=True, order=True)
class ForeignRule:
    """A rule of another program: what is read of it without its match and its instructions, which may be of any kind."""

    table: int
    priority: int
    cookie: int

    def __str__(self) -> str:
        return f"table {self.table} priority {self.priority} cookie {self.cookie:#x}"


@dataclass(frozen=True)
class RulesPart:
    """A part of an answer to `stats_request`. body: rules, each with its bytes and packets. flags: whether more follow."""

    xid: int
    flags: int
    body: tuple[tuple[Rule | ForeignRule, int, int], ...]


class RuleReader:
    """Reads the answers to `stats_request` of one switch, and parses only entries that the answers before did not hold.

    os-ken takes 0.2 ms for an entry, and a switch's rules are read after every change of some. known: rules by the contents of
    their entries, up to three times as many as the longest of its latest answers.
    """

    def __init__(self) -> None:
        self.known: dict[bytes, Rule] = {}
        self._seen: dict[bytes, Rule] = {}

    def read(self, xid: int, part: bytes) -> RulesPart:
        """Return what a part of an answer holds that `controller.openflow.frames` has checked."""
        body = tuple((self._rule(entry), *counts_of(entry)) for entry in entries_of(part))
        more = has_more(part)
        if not more:
            self._forget()
        return RulesPart(xid, ofp.OFPMPF_REPLY_MORE if more else 0, body)

    def _rule(self, entry: bytes) -> Rule | ForeignRule:
        content = content_of(entry)
        rule = self.known.get(content)
        if rule is None:
            if is_foreign(entry):
                return ForeignRule(*identity_of(entry))
            rule = _rule_of(parser.OFPFlowStats.parser(entry, 0))
            if len(content) > _MAX_CONTENT:
                return rule
            self.known[content] = rule
        self._seen[content] = rule
        return rule

    def _forget(self) -> None:
        """Keep what this answer held, once that is less than half: an answer may be of one table alone."""
        if len(self.known) > max(_MIN_KNOWN, 2 * len(self._seen)):
            self.known = self._seen
        self._seen = {}


def port_state(described: Any) -> PortState:
    """Return a port as its switch describes it."""
    down = described.config & ofp.OFPPC_PORT_DOWN or described.state & ofp.OFPPS_LINK_DOWN
    return PortState(
        described.name.decode("utf-8", "replace"), not down, 1000 * described.curr_speed, described.hw_addr.lower()
    )


def queues_request(datapath: Any) -> Any:
    """Return the request for the counts of all queues of all ports: a switch names those that it has."""
    return parser.OFPQueueStatsRequest(datapath, 0, ofp.OFPP_ANY, ofp.OFPQ_ALL)


def tables_request(datapath: Any) -> Any:
    """Return the request for what each table can do; without tables of its own it changes nothing."""
    return parser.OFPTableFeaturesStatsRequest(datapath, 0, [])


def removed(message: Any) -> Rule | None:
    """Return the rule of ours that a removal message names, without its actions."""
    if message.cookie & COOKIE_MASK != COOKIE:
        return None
    return Rule(message.cookie, message.table_id, message.priority, match_of(message.match))


def match_of(fields: Any) -> Match:
    """Return os-ken's match in canonical form."""
    return tuple(sorted(fields.items()))


def _flow_mod(datapath: Any, rule: Rule, command: int) -> Any:
    return parser.OFPFlowMod(
        datapath,
        cookie=rule.cookie,
        cookie_mask=0 if command == ofp.OFPFC_ADD else 0xFFFFFFFFFFFFFFFF,
        table_id=rule.table,
        command=command,
        idle_timeout=rule.idle_s,
        hard_timeout=rule.hard_s,
        priority=rule.priority,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        flags=ofp.OFPFF_SEND_FLOW_REM if rule.announced else 0,
        match=_match(rule.match),
        instructions=[]
        if command == ofp.OFPFC_DELETE_STRICT
        else [_instructions(rule.meter, rule.actions, rule.metadata, rule.goto)],
    )


class _EveryChange:
    """The request of every change in any table. os-ken's has no header of its match, without which Open vSwitch reads none."""

    def serialize(self) -> bytes:
        """Return it as it is sent."""
        match = bytearray()
        length = parser.OFPMatch().serialize(match, 0)
        kinds = ofp.ONFFMF_ADD | ofp.ONFFMF_DELETE | ofp.ONFFMF_MODIFY
        head = struct.pack(ofp.ONF_FLOW_MONITOR_REQUEST_PACK_STR, MONITOR, kinds, length, ofp.OFPP_ANY, ofp.OFPTT_ALL)
        return head + bytes(match)


class _EncodedMatch(parser.OFPMatch):  # type: ignore[misc]  # os-ken has no types.
    """A match that is encoded once: that takes os-ken most of the time of a message, and pairs' rules come and go."""

    encoded = b""

    def serialize(self, buf: bytearray, offset: int) -> int:
        """Write the match at the end of a message, and return its length."""
        if not self.encoded:
            own = bytearray()
            super().serialize(own, 0)
            self.encoded = bytes(own)
        buf[offset:] = self.encoded
        return len(self.encoded)


class _EncodedInstructions(parser.OFPInstruction):  # type: ignore[misc]
    """Instructions that are encoded once."""

    def __init__(self, instructions: Iterable[Any]) -> None:
        own = bytearray()
        for instruction in instructions:
            instruction.serialize(own, len(own))
        self.encoded = bytes(own)
        self.len = len(own)

    def serialize(self, buf: bytearray, offset: int) -> None:
        """Write the instructions at the end of a message."""
        buf[offset:] = self.encoded


@lru_cache(MAX_ENCODED)
def _match(fields: Match) -> _EncodedMatch:
    return _EncodedMatch(**dict(fields))


@lru_cache(MAX_ENCODED)
def _instructions(
    meter: int | None, actions: tuple[RuleAction, ...], metadata: int | None, goto: int | None
) -> _EncodedInstructions:
    instructions: list[Any] = []
    if meter is not None:
        instructions.append(parser.OFPInstructionMeter(meter))
    if actions:
        instructions.append(parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, [_action(action) for action in actions]))
    if metadata is not None:
        instructions.append(parser.OFPInstructionWriteMetadata(metadata, 0xFFFFFFFFFFFFFFFF))
    if goto is not None:
        instructions.append(parser.OFPInstructionGotoTable(goto))
    return _EncodedInstructions(instructions)


def _action(action: RuleAction) -> Any:
    match action:
        case SetField(field, value):
            return parser.OFPActionSetField(**{field: value})
        case SetQueue(queue):
            return parser.OFPActionSetQueue(queue)
        case Output(port):
            return parser.OFPActionOutput(port)


def _rule_of(entry: Any) -> Rule:
    actions: list[RuleAction] = []
    metadata = goto = meter = None
    for instruction in entry.instructions:
        if isinstance(instruction, parser.OFPInstructionWriteMetadata):
            metadata = instruction.metadata
        elif isinstance(instruction, parser.OFPInstructionGotoTable):
            goto = instruction.table_id
        elif isinstance(instruction, parser.OFPInstructionMeter):
            meter = instruction.meter_id
        elif isinstance(instruction, parser.OFPInstructionActions):
            actions += map(_known, instruction.actions)
    return Rule(
        cookie=entry.cookie,
        table=entry.table_id,
        priority=entry.priority,
        match=match_of(entry.match),
        actions=tuple(actions),
        metadata=metadata,
        goto=goto,
        idle_s=entry.idle_timeout,
        hard_s=entry.hard_timeout,
        announced=bool(entry.flags & ofp.OFPFF_SEND_FLOW_REM),
        meter=meter,
    )


def _known(action: Any) -> RuleAction:
    if isinstance(action, parser.OFPActionSetField):
        return SetField(action.key, action.value)
    if isinstance(action, parser.OFPActionSetQueue):
        return SetQueue(action.queue_id)
    if isinstance(action, parser.OFPActionOutput):
        return Output(action.port)
    # Beamer writes no other action: whatever it is, the rule must not pass for one of Beamer's.
    return SetField(type(action).__name__, 0)
