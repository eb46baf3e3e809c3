"""What a switch says that its tables can do (OpenFlow 1.3.5, 7.3.5.5), and what kinds of rules ask of them.

Pure: `controller.openflow.session` asks the switch. Of what a table does not say nothing is held against it, and a switch whose
answer is missing, is empty or contradicts itself is judged by its number of tables and the rules that it refuses. A table
that an answer leaves out is not there.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from os_ken.ofproto import ofproto_v1_3 as ofp

from controller.openflow.rules import Output, Rule, SetField, SetQueue, Table

ALL_METADATA = (1 << 64) - 1
TABLES = len(Table)  # The features of further tables are not read.

_MULTIPART = ofp.OFP_MULTIPART_REPLY_SIZE
_TABLE = struct.Struct("!HB5x32xQQII")
_PROPERTY = struct.Struct("!HH")
_FIELD = struct.Struct("!I")
_NAMES: Mapping[int, str] = {one.num: one.name for one in ofp.oxm_types if isinstance(one.num, int)}


@dataclass(frozen=True)
class TableCapabilities:
    """What one table can do; None: the switch does not say.

    max_entries: rules that it has room for. metadata_match, metadata_write: bits. matches, rewrites: fields by os-ken's names.
    instructions, actions: by OpenFlow's numbers. next_tables: to which a rule may go on.
    """

    max_entries: int | None = None
    metadata_match: int | None = None
    metadata_write: int | None = None
    matches: frozenset[str] | None = None
    rewrites: frozenset[str] | None = None
    instructions: frozenset[int] | None = None
    actions: frozenset[int] | None = None
    next_tables: frozenset[int] | None = None


@dataclass(frozen=True)
class SwitchCapabilities:
    """What a switch says of itself. n_tables: as of its features reply. tables: the first of them, None if it does not say."""

    n_tables: int
    tables: Mapping[int, TableCapabilities] | None = None

    def has(self, table: int) -> bool:
        """Return whether there is such a table."""
        return table < self.n_tables and (self.tables is None or table in self.tables)

    def of(self, table: int) -> TableCapabilities:
        """Return what a table can do as far as that is known."""
        return (self.tables or {}).get(table, _UNKNOWN)


@dataclass(frozen=True)
class RuleKind:
    """What a rule asks of a switch, whatever the values in it are. matches, rewrites: fields by os-ken's names."""

    table: int
    matches: frozenset[str]
    rewrites: frozenset[str] = frozenset()
    actions: frozenset[int] = frozenset()
    instructions: frozenset[int] = frozenset()
    goto: int | None = None

    @classmethod
    def of(cls, rule: Rule) -> "RuleKind":
        """Return the kind of a rule."""
        instructions = {
            ofp.OFPIT_APPLY_ACTIONS: bool(rule.actions),
            ofp.OFPIT_WRITE_METADATA: rule.metadata is not None,
            ofp.OFPIT_GOTO_TABLE: rule.goto is not None,
            ofp.OFPIT_METER: rule.meter is not None,
        }
        return cls(
            rule.table,
            frozenset(name for name, _ in rule.match),
            frozenset(action.field for action in rule.actions if isinstance(action, SetField)),
            frozenset(_ACTIONS[type(action)] for action in rule.actions),
            frozenset(number for number, there in instructions.items() if there),
            rule.goto,
        )

    def __str__(self) -> str:
        done = [f"match {name}" for name in sorted(self.matches)]
        done += [f"rewrite {name}" for name in sorted(self.rewrites)]
        done += [f"have {_ACTION_NAMES[one]}" for one in sorted(self.actions - {ofp.OFPAT_SET_FIELD})]
        done += [f"have {_INSTRUCTIONS[one]}" for one in sorted(self.instructions - {ofp.OFPIT_APPLY_ACTIONS})]
        return f"rules of table {self.table}" + (f" that {', '.join(done)}" if done else "")

    def lacks(self, capabilities: SwitchCapabilities) -> Iterator[str]:
        """Yield in words what a switch says that it cannot do of it, on a table that it has."""
        table, here = capabilities.of(self.table), f"table {self.table}"
        if table.matches is not None:
            yield from (f"{here} does not match {name}" for name in sorted(self.matches - table.matches))
        if "metadata" in self.matches and table.metadata_match not in (None, ALL_METADATA):
            yield f"{here} matches not all 64 bits of metadata"
        if ofp.OFPIT_WRITE_METADATA in self.instructions and table.metadata_write not in (None, ALL_METADATA):
            yield f"{here} writes not all 64 bits of metadata"
        if table.instructions is not None:
            without = sorted(self.instructions - table.instructions)
            yield from (f"{here} has no instruction {_INSTRUCTIONS[one]}" for one in without)
        if table.next_tables is not None and self.goto is not None and self.goto not in table.next_tables:
            yield f"{here} does not go on to table {self.goto}"
        if table.rewrites is not None:
            yield from (f"{here} does not rewrite {name}" for name in sorted(self.rewrites - table.rewrites))
        if table.actions is not None:
            yield from (f"{here} has no action {_ACTION_NAMES[one]}" for one in sorted(self.actions - table.actions))


TableFeatures = tuple[int, TableCapabilities]
"""A table's number and what it can do."""


@dataclass(frozen=True)
class TablesPart:
    """A part of an answer with the features of tables. flags: whether more follow.

    body: of those that Beamer may use; None stands where a length contradicts another one.
    """

    xid: int
    flags: int
    body: tuple[TableFeatures | None, ...] = field(default=())


def tables_part(xid: int, part: bytes) -> TablesPart:
    """Return what a part of an answer holds, up to the first length in it that contradicts another one.

    No switch is turned away for that: makers' switches have been served without this answer.
    """
    (flags,) = struct.unpack_from("!H", part, ofp.OFP_HEADER_SIZE + 2)
    found, at = list[TableFeatures | None](), _MULTIPART
    while at + _TABLE.size <= len(part):
        length, number, match_bits, write_bits, _, entries = _TABLE.unpack_from(part, at)
        if not _TABLE.size <= length <= len(part) - at:
            break
        properties = _properties(part, at + _TABLE.size, at + length)
        if properties is None:
            break
        if number < TABLES:
            found.append((number, _table(properties, match_bits, write_bits, entries)))
        at += length
    return TablesPart(xid, flags, tuple(found) if at == len(part) else (*found, None))


def tables_said(answer: Iterable[TableFeatures | None]) -> Mapping[int, TableCapabilities] | None:
    """Return what an answer says of the tables that Beamer may use.

    None, as if there were none: where it contradicts itself, or has no first table, which no switch is without.
    """
    said = dict[int, TableCapabilities]()
    for one in answer:
        if one is None:
            return None
        number, table = one
        said[number] = table
    return said if 0 in said else None


def _table(properties: Mapping[int, bytes], match_bits: int, write_bits: int, entries: int) -> TableCapabilities:
    """Return what a table can do.

    A list that is missing says nothing, and so does what no table can be: without room, matches, instructions or actions.
    """
    next_tables = properties.get(ofp.OFPTFPT_NEXT_TABLES)
    rewrites = properties.get(ofp.OFPTFPT_APPLY_SETFIELD)
    return TableCapabilities(
        max_entries=entries or None,
        metadata_match=match_bits,
        metadata_write=write_bits,
        matches=_fields(properties.get(ofp.OFPTFPT_MATCH, b"")) or None,
        rewrites=None if rewrites is None else _fields(rewrites),
        instructions=_kinds(properties.get(ofp.OFPTFPT_INSTRUCTIONS, b"")) or None,
        actions=_kinds(properties.get(ofp.OFPTFPT_APPLY_ACTIONS, b"")) or None,
        next_tables=None if next_tables is None else frozenset(next_tables),
    )


def _properties(part: bytes, at: int, end: int) -> Mapping[int, bytes] | None:
    """Return the contents of properties by their kinds, None where lengths contradict each other."""
    found = dict[int, bytes]()
    while at + _PROPERTY.size <= end:
        kind, length = _PROPERTY.unpack_from(part, at)
        if not _PROPERTY.size <= length <= end - at:
            return None
        found[kind] = part[at + _PROPERTY.size : at + length]
        at += length + -length % 8
    return found if at >= end else None


def _fields(ids: bytes) -> frozenset[str]:
    """Return the fields of the standard in a list of match fields without values, and of os-ken's other ones those it names.

    An experimenter's field has four bytes more, which name none that Beamer uses.
    """
    found, at = set(), 0
    while at + _FIELD.size <= len(ids):
        (header,) = _FIELD.unpack_from(ids, at)
        at += _FIELD.size + (_FIELD.size if header >> 16 == 0xFFFF else 0)
        if name := _NAMES.get(header >> 9):
            found.add(name)
    return frozenset(found)


def _kinds(ids: bytes) -> frozenset[int]:
    """Return the numbers in a list of instructions or actions without values, an experimenter's with its four bytes more."""
    found, at = set(), 0
    while at + _PROPERTY.size <= len(ids):
        kind, length = _PROPERTY.unpack_from(ids, at)
        found.add(kind)
        at += max(length, _PROPERTY.size)
    return frozenset(found)


def kinds_of(rules: Iterable[Rule]) -> frozenset[RuleKind]:
    """Return the kinds of some rules."""
    return frozenset(map(RuleKind.of, rules))


_UNKNOWN = TableCapabilities()
_ACTIONS: Mapping[type, int] = {
    SetField: ofp.OFPAT_SET_FIELD,
    SetQueue: ofp.OFPAT_SET_QUEUE,
    Output: ofp.OFPAT_OUTPUT,
}
_ACTION_NAMES = {ofp.OFPAT_SET_FIELD: "set_field", ofp.OFPAT_SET_QUEUE: "set_queue", ofp.OFPAT_OUTPUT: "output"}
_INSTRUCTIONS = {
    ofp.OFPIT_GOTO_TABLE: "goto_table",
    ofp.OFPIT_WRITE_METADATA: "write_metadata",
    ofp.OFPIT_APPLY_ACTIONS: "apply_actions",
    ofp.OFPIT_METER: "meter",
}
