"""In which form a switch holds its rules: in the four tables of `controller.openflow.rules`, or in one of table 0 alone.

    full         as `rules` draws them
    host marks   forwarding by destination, all in table 0; hosts' codepoints are believed, and `set_queue` goes by them
                 PROBE, SHADOW    only where Ethernet addresses are matched, and put back by the last switch
                 ADDRESS, ARP, NEIGHBOUR

A form says what becomes of each rule of the four tables, so that whatever changes these changes both. Pure: which form a switch
is given follows from what it says of its tables and from what it has refused (`choose`).

Switches of both forms work side by side. Metadata never leaves a switch. What a switch of the lesser form leaves undone, full
ones make good where they can: they queue acknowledgements that still have their hosts' mark in class 0, and write no shadow
address for a host whose switch would not take it off. Codepoints of hosts that no edge has looked at stand everywhere: a full
switch cannot tell them from those that an edge has given.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import Protocol

from beamer.network.addresses import is_ipv6
from beamer.network.codepoints import LOCAL, Codepoints
from beamer.network.fabric import Fabric
from controller.openflow.capabilities import RuleKind, SwitchCapabilities, kinds_of
from controller.openflow.reports import FULL_FORM, HOST_MARKS
from controller.openflow.rule_counts import RuleCounts
from controller.openflow.rules import (
    IPV4,
    IPV6,
    Band,
    HostPair,
    JobRules,
    Rule,
    SetField,
    SetQueue,
    Table,
    connection_rule,
    entry_rules,
    match,
    pair_rules,
    routes,
)

RAISED = 10_000  # Rules of host marks come before any that are left of the four tables, and keep their order.
BY_CLASS = 100  # One that looks at a codepoint comes before the one beside it that does not.
MAX_REASONS = 3


class RuleForm(Protocol):
    """What becomes of the rules of the four tables on one switch."""

    @property
    def name(self) -> str:
        """What people call it: `full` or `host marks`."""

    @property
    def admits(self) -> bool:
        """Whether it gives registered connections their class, takes codepoints off all else, counts, and meters."""

    @property
    def queues(self) -> bool:
        """Whether it sets queues."""

    @property
    def ethernet(self) -> bool:
        """Whether it matches Ethernet addresses, and puts those of its hosts in the place of shadow addresses."""

    @property
    def copies(self) -> int:
        """The most rules that stand for one."""

    def rules(self, rule: Rule) -> tuple[Rule, ...]:
        """Return what stands for a rule of the four tables."""

    def beside(self, neighbours: "Neighbours") -> "RuleForm":
        """Return it as it is beside these neighbours."""

    def described(self) -> str:
        """Return its name with what it leaves out."""


@dataclass(frozen=True)
class Neighbours:
    """What a switch makes good for the others of its fabric.

    unrestored: hosts, as positions in `Fabric.hosts`, whose edge switch does not take a shadow address off. acknowledgement:
    the codepoint of acknowledgements where some arrive that no edge has given class 0, else None. families: of these.
    """

    unrestored: frozenset[int] = frozenset()
    acknowledgement: int | None = None
    families: tuple[int, ...] = (IPV4,)


@dataclass(frozen=True)
class FullForm:
    """All four tables."""

    queues: bool = True
    neighbours: Neighbours = Neighbours()
    name = FULL_FORM
    admits = True
    ethernet = True
    copies = 3

    def rules(self, rule: Rule) -> tuple[Rule, ...]:
        """Return a rule as it is, but for what lesser neighbours and a lack of `set_queue` change."""
        unrestored = self.neighbours.unrestored
        if unrestored and (pair := rule.pair) is not None and pair.dst in unrestored:
            rule = without_shadow(rule)
        found = (rule, *self._acknowledgements(rule))
        return found if self.queues else tuple(map(_without_queue, found))

    def beside(self, neighbours: Neighbours) -> RuleForm:
        """Return it as it is beside these neighbours."""
        return replace(self, neighbours=neighbours)

    def described(self) -> str:
        """Return its name, and that it sets no queue."""
        return self.name if self.queues else f"{self.name} without set_queue"

    def _acknowledgements(self, rule: Rule) -> Iterator[Rule]:
        """Yield how acknowledgements that arrive with their host's mark are queued in class 0: `rule` is of their port."""
        acknowledgement = self.neighbours.acknowledgement
        if acknowledgement is None or rule.band != Band.TRUNK.number:
            return
        for family in self.neighbours.families:
            marked = match(**dict(rule.match), eth_type=family, ip_dscp=acknowledgement)
            yield replace(rule, priority=Band.TRUNK_CLASS.priority, match=marked, actions=(SetQueue(1),))


@dataclass(frozen=True)
class HostMarksForm:
    """Table 0 alone: forwarding by destination.

    queues: whether rules exist once more for each codepoint, to set its queue. ethernet: as of `RuleForm`; without it there are
    no planes and no probes.
    """

    queues: bool
    ethernet: bool
    codepoints: Codepoints = LOCAL
    families: tuple[int, ...] = (IPV4,)
    name = HOST_MARKS
    admits = False

    @property
    def copies(self) -> int:
        """The most rules that stand for one: with queues, one more for each codepoint and family."""
        return 1 + self.queues * len(self.codepoints.all) * len(self.families)

    def rules(self, rule: Rule) -> tuple[Rule, ...]:
        """Return the rules of table 0 that stand for a rule of the four tables, none for what hosts are believed in."""
        band = rule.band
        if band not in _KEPT or (band in _ETHERNET and not self.ethernet):
            return ()
        moved = replace(rule, table=int(Table.ADMISSION), priority=rule.priority + RAISED)
        if not self.queues or band not in _CARRIES_DATA:
            return (moved,)
        return (moved, *self._by_class(moved))

    def beside(self, neighbours: Neighbours) -> RuleForm:
        """Return it as it is."""
        return self

    def described(self) -> str:
        """Return its name, and what it does not do."""
        lacking = [what for has, what in ((self.queues, "set_queue"), (self.ethernet, "Ethernet addresses")) if not has]
        return f"{self.name} without {' and '.join(lacking)}" if lacking else self.name

    def _by_class(self, moved: Rule) -> Iterator[Rule]:
        of_class = [*enumerate(self.codepoints.classes), (0, self.codepoints.acknowledgement)]
        fields = dict(moved.match)
        for family in self.families if "eth_type" not in fields else (int(fields["eth_type"]),):
            for klass, dscp in of_class:
                marked = match(**{**fields, "eth_type": family, "ip_dscp": dscp})
                actions = (SetQueue(klass + 1), *moved.actions)
                yield replace(moved, match=marked, priority=moved.priority + BY_CLASS, actions=actions)


FULL = FullForm()

_ETHERNET = frozenset(band.number for band in (Band.PROBE, Band.SHADOW))
_CARRIES_DATA = frozenset(band.number for band in (Band.SHADOW, Band.ADDRESS))
_KEPT = _ETHERNET | _CARRIES_DATA | {Band.ARP.number, Band.NEIGHBOUR.number}


def without_shadow(rule: Rule) -> Rule:
    """Return a rule without the rewriting of the Ethernet destination."""
    return replace(rule, actions=tuple(one for one in rule.actions if not writes_shadow(one)))


def writes_shadow(action: object) -> bool:
    """Return whether an action rewrites the Ethernet destination."""
    return isinstance(action, SetField) and action.field == "eth_dst"


def _without_queue(rule: Rule) -> Rule:
    return replace(rule, actions=tuple(one for one in rule.actions if not isinstance(one, SetQueue)))


@dataclass(frozen=True)
class FormNeeds:
    """A form, and what it asks of a switch. rules: of the four tables, that it has to find room for."""

    form: RuleForm
    kinds: frozenset[RuleKind]
    rules: RuleCounts


@dataclass(frozen=True)
class ShownLimits:
    """What a switch has shown. refused: kinds of rules that it does not take. room: rules that a table took, and no more."""

    refused: frozenset[RuleKind] = frozenset()
    room: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class FormChoice:
    """The form of a switch, None where it can have none.

    reason: why no fuller one, in words; empty for the fullest. position: among the candidates.
    """

    form: RuleForm | None = FULL
    reason: str = ""
    position: int = 0


def choose(
    candidates: Iterable[FormNeeds], capabilities: SwitchCapabilities, shown: ShownLimits = ShownLimits(), first: int = 0
) -> FormChoice:
    """Return the first form that a switch can hold. candidates: the fullest first. first: those before are out of question."""
    reasons, said = list[str](), set[str]()
    for position, needs in enumerate(candidates):
        against = list(dict.fromkeys(objections(needs, capabilities, shown)))
        if not against and position >= first:
            return FormChoice(needs.form, "; ".join(reasons), position)
        if new := [one for one in against if one not in said]:
            more = f" and {len(new) - MAX_REASONS} more" if len(new) > MAX_REASONS else ""
            reasons.append(f"not {needs.form.described()}: {', '.join(new[:MAX_REASONS])}{more}")
            said.update(new)
    return FormChoice(None, "; ".join(reasons))


def objections(needs: FormNeeds, capabilities: SwitchCapabilities, shown: ShownLimits) -> Iterator[str]:
    """Yield in words what keeps a switch from holding a form."""
    tables = {kind.table for kind in needs.kinds}
    if missing := {table for table in tables if not capabilities.has(table)}:
        has = capabilities.n_tables if capabilities.tables is None else len(tables - missing)
        yield f"it has {has} of the {len(tables)} tables that are needed"
        return
    for kind in sorted(needs.kinds, key=str):
        yield from kind.lacks(capabilities)
    yield from (f"it refuses {kind}" for kind in sorted(needs.kinds & shown.refused, key=str))
    yield from shortages(needs.form, needs.rules, capabilities, shown)


def shortages(form: RuleForm, rules: RuleCounts, capabilities: SwitchCapabilities, shown: ShownLimits) -> Iterator[str]:
    """Yield in words which tables have too little room for some rules of the four tables in a form."""
    said = {table: capabilities.of(table).max_entries for table in map(int, Table)}
    known = [(table, most) for table, most in (*said.items(), *shown.room.items()) if most is not None]
    if all(2 * form.copies * len(rules) <= most for _, most in known):
        return
    room = {table: min(most for of, most in known if of == table) for table, _ in known}
    needed = rules.needed(form)
    for table in sorted(needed.keys() & room.keys()):
        if needed[table] > room[table]:
            yield f"table {table} needs {needed[table]} rules and has room for {room[table]}"


def candidates(fabric: Fabric, switch: str, codepoints: Codepoints, rules: RuleCounts) -> Iterator[FormNeeds]:
    """Yield the forms that a switch may have, the fullest first. rules: what it should hold in four tables."""
    families = (IPV4, IPV6) if fabric.has_ipv6 else (IPV4,)
    # Queues that an agent makes go by codepoints, and so need no rule.
    by_rule = fabric.switch[switch].agent is None
    forms: list[RuleForm] = [FULL, FullForm(queues=False)]
    for queues in (True, False) if by_rule else (False,):
        forms += [HostMarksForm(queues, ethernet, codepoints, families) for ethernet in (True, False)]
    if fabric.has_ipv6:  # Its packets go by Ethernet addresses in any form.
        forms = [form for form in forms if form.ethernet]
    samples = tuple(sample_rules(fabric, switch, codepoints))
    for form in forms:
        yield FormNeeds(form, kinds_of(chain.from_iterable(map(form.rules, samples))), rules)


def sample_rules(fabric: Fabric, switch: str, codepoints: Codepoints) -> Iterator[Rule]:
    """Yield rules of each kind that a switch may be given: those that admit packets, and those about a host of each sort."""
    yield from entry_rules(fabric, switch, codepoints)
    of_sort: dict[tuple[bool, bool, frozenset[int]], int] = {}
    for position, host in enumerate(fabric.hosts):
        has = frozenset(IPV6 if is_ipv6(address) else IPV4 for address in host.every_address)
        of_sort.setdefault((fabric.edge_of[host.name] == switch, bool(host.addresses), has), position)
    for (is_here, _, has), position in of_sort.items():
        yield from routes(fabric, switch, position, fabric.next_hops)
        if not is_here:
            continue
        other = (position + 1) % len(fabric.hosts)
        pair = HostPair(1, position, other)
        job = JobRules("", 1, 0, 0, frozenset())
        for family, src, dst in ((IPV4, "10.0.0.1", "10.0.0.2"), (IPV6, "2001:db8::1", "2001:db8::2")):
            if family in has:
                yield connection_rule(fabric, (src, 1, dst, 1), pair)[1]
                yield from pair_rules(fabric, pair, job, None, codepoints, family)


def limits(fabric: Fabric, switch: str, form: RuleForm) -> tuple[str, ...]:
    """Return a sentence for each thing that does not hold at a switch of this form."""
    found = []
    if not form.queues and fabric.switch[switch].agent is None:
        found.append(f"the queues of {switch} go by its own ranking of codepoints, which Beamer does not see")
    if form.admits:
        return tuple(found)
    at_edge = [host for host in fabric.hosts if fabric.edge_of[host.name] == switch]
    if at_edge:
        named = ", ".join(host.name for host in at_edge)
        found.append(f"bytes by class that {named} send are not counted at {switch}, and their codepoints are believed")
    if strangers := ", ".join(host.name for host in at_edge if host.agent is None):
        text = f"without an agent at {switch}: {strangers}: codepoints set there stand, jobs have no class, and no cap is held"
        found.append(text)
    if fabric.planes > 1:
        through = f"to or from hosts of {switch}, or through it," if not form.ethernet else f"from hosts of {switch}"
        if at_edge or not form.ethernet:
            found.append(f"jobs' packets {through} take the path of other traffic, whatever plane their job has")
    if not form.ethernet:
        found.append(f"cables are not probed at {switch}")
    return tuple(found)
