"""The rules that every switch of a fabric should hold, each switch's in the form that it can hold.

They are kept as of the four tables. What stands for them on a switch of another form is kept beside that, and follows every
change. A switch is taken to hold everything until it is asked. What it then refuses is known while it is connected: when it
connects again it may have become able.

Until a switch has said what its tables can do, or has taken its rules, it is not known whether it takes shadow addresses off.
Until then its neighbours keep what they hold about it (`UnknownNeighbours`): a controller may have started beside switches that
have long been in their forms.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from beamer.network.codepoints import LOCAL, Codepoints
from beamer.network.fabric import Fabric
from controller.event_loop.time_slices import Work, batched
from controller.openflow.capabilities import RuleKind, SwitchCapabilities
from controller.openflow.forms import (
    FULL,
    FormChoice,
    FormNeeds,
    Neighbours,
    RuleForm,
    ShownLimits,
    candidates,
    choose,
    limits,
    shortages,
)
from controller.openflow.reports import NO_FORM, SwitchForm
from controller.openflow.rule_counts import RuleCounts
from controller.openflow.rules import IPV4, IPV6, Band, Rule, Slot, Table, static_rules
from controller.openflow.switch_target import UnknownNeighbours

TRANSLATED = 4  # So many rules are translated into another form at once.
NO_NEIGHBOURS = Neighbours()
ANY_SWITCH = SwitchCapabilities(len(Table))
"""What is taken to be so of a switch that has said nothing."""


@dataclass(frozen=True)
class _Unknown:
    """Switches of which it is not known what they can hold. hosts: at their edges, as positions in `Fabric.hosts`."""

    switches: frozenset[str]
    hosts: frozenset[int]


@dataclass
class _OfSwitch:
    """What one switch should hold.

    four: in four tables. form: in force, beside its neighbours' forms; None where it can hold none. held: in that form, the
    same object as `four` where that is the same. first: the candidates before this one are out of question while it is
    connected. tries: whether its form is tried again and again, as it has refused that and nothing else is left.
    unknown: of which switches it is not known yet what they can hold, as far as its form is beside the others. kept: what it
    may hold for these beside its rules, None until somebody asks. counts: of `four`. candidates: the forms that it may have.
    grows: whether `four` has changed since it was last asked whether it has outgrown its form.
    since: the rules that have gone and come while `held` is made anew.
    """

    four: dict[Slot, Rule]
    held: dict[Slot, Rule] | None
    unknown: _Unknown
    counts: RuleCounts
    candidates: tuple[FormNeeds, ...] = ()
    form: RuleForm | None = FULL
    capabilities: SwitchCapabilities = ANY_SWITCH
    shown: ShownLimits = field(default_factory=ShownLimits)
    choice: FormChoice = field(default_factory=FormChoice)
    first: int = 0
    tries: bool = False
    kept: UnknownNeighbours | None = None
    grows: bool = False
    since: list[tuple[list[Rule], list[Rule]]] | None = None


class FabricRules:
    """Keep the rules of all switches, and the form of each."""

    def __init__(self, fabric: Fabric, codepoints: Codepoints = LOCAL) -> None:
        self._fabric = fabric
        self._codepoints = codepoints
        self._families = (IPV4, IPV6) if fabric.has_ipv6 else (IPV4,)
        self._of: dict[str, _OfSwitch] = {}
        self._trunks: dict[str, tuple[Rule, ...]] = {}
        self._lesser: dict[str, RuleForm] = {}
        self._unknown = self._of_unknown(frozenset(fabric.switch))
        for name, rules in static_rules(fabric, codepoints).items():
            four = {rule.slot: rule for rule in rules}
            self._of[name] = _OfSwitch(four, four, self._unknown, RuleCounts(four))
            self._trunks[name] = tuple(rule for rule in rules if rule.band == Band.TRUNK.number)

    @property
    def names(self) -> Collection[str]:
        """The switches."""
        return self._of.keys()

    def rules(self, switch: str) -> Mapping[Slot, Rule] | None:
        """Return what a switch should hold, which later changes alter; None where it can hold no form."""
        return self._of[switch].held

    def form(self, switch: str) -> RuleForm | None:
        """Return the form in force on a switch, None where it can hold none."""
        return self._of[switch].form

    def report(self, switch: str) -> SwitchForm:
        """Return what is to be said of the form of a switch."""
        choice = self._of[switch].choice
        if choice.form is None:
            tried = self._of[switch].form
            return SwitchForm(switch, NO_FORM, choice.reason, able=False, counts=tried is not None and tried.admits)
        found = limits(self._fabric, switch, choice.form)
        return SwitchForm(switch, choice.form.name, choice.reason, found, counts=choice.form.admits)

    def change(self, switch: str, rules: Mapping[Slot, Rule | None]) -> Collection[Slot]:
        """Change rules of the four tables; return the slots in which the switch may hold others than before."""
        of = self._of[switch]
        gone = [rule for slot in rules if (rule := of.four.get(slot)) is not None]
        added = [rule for rule in rules.values() if rule is not None]
        of.four.update((slot, rule) for slot, rule in rules.items() if rule is not None)
        for slot, rule in rules.items():
            if rule is None:
                of.four.pop(slot, None)
        of.counts.change(gone, added)
        if of.since is not None:
            of.since.append((gone, added))
        of.grows = of.grows or bool(rules)
        if of.held is None or of.form is None or of.held is of.four:
            return rules.keys()
        return _replace(of.held, of.form, gone, added)

    def answered(self, switch: str, capabilities: SwitchCapabilities) -> None:
        """Take in what a switch that has connected says of itself."""
        of = self._of[switch]
        is_known = capabilities.tables is not None and of.shown == ShownLimits()
        self._know(switch, is_known)
        of.capabilities, of.shown, of.first = capabilities, ShownLimits(), 0
        self._choose(of, switch)

    def refused(self, switch: str, rules: Iterable[Rule], full: Mapping[int, int]) -> bool:
        """Take in which rules a switch has refused for what they are; return whether there is a form that it can hold.

        full: by table that is full, how many rules it holds.
        """
        of = self._of[switch]
        of.shown = ShownLimits(of.shown.refused | {RuleKind.of(rule) for rule in rules}, {**of.shown.room, **full})
        self._choose(of, switch)
        of.tries = of.choice.form is None  # Some rules may be taken away there, and it may forward by those that it has.
        return not of.tries

    def took_all(self, switch: str) -> bool:
        """Take in that a switch holds all that it should; return whether that is news, as it had refused some for a while."""
        of = self._of[switch]
        if not of.tries:
            if is_news := switch in self._unknown.switches:
                self._know(switch, True)
            return is_news
        of.shown = ShownLimits()
        self._choose(of, switch)
        return True

    def unknown(self, switch: str) -> UnknownNeighbours:
        """Return what of a switch's rules depends on others of which it is not known what they can hold."""
        of = self._of[switch]
        if of.kept is None or of.kept.hosts is not of.unknown.hosts:
            kept = dict[Slot, Rule]()
            if of.unknown.switches and of.form is not None and of.form.admits:
                beside = FULL.beside(Neighbours(frozenset(), self._codepoints.acknowledgement, self._families))
                kept = {one.slot: one for rule in self._trunks[switch] for one in beside.rules(rule)[1:]}
            of.kept = UnknownNeighbours(of.unknown.hosts, kept)
        return of.kept

    def decided(self, switch: str) -> bool:
        """Take in which switches are known by now; return whether others than before. To be called after `adapted`."""
        of = self._of[switch]
        if self._unknown is of.unknown:
            return False
        if of.form is not None and of.form.beside(self._neighbours(switch)) != of.form:
            return False  # It would write what was found to be wrong.
        of.unknown = self._unknown
        return True

    def _know(self, switch: str, is_known: bool) -> None:
        if is_known is (switch in self._unknown.switches):
            self._unknown = self._of_unknown(self._unknown.switches ^ {switch})

    def _of_unknown(self, switches: frozenset[str]) -> _Unknown:
        edge_of = self._fabric.edge_of
        return _Unknown(switches, frozenset(i for i, host in enumerate(self._fabric.hosts) if edge_of[host.name] in switches))

    def outgrown(self, switch: str) -> bool:
        """Return whether a switch is given another form, as its rules have become too many for it, or few enough."""
        of, before = self._of[switch], self._of[switch].choice
        grows, of.grows = of.grows, False
        if not grows or of.tries:
            return False
        if before.form is None or any(shortages(before.form, of.counts, of.capabilities, of.shown)):
            self._choose(of, switch)
        return of.choice != before

    def adapted(self, switch: str) -> Work[bool]:
        """Have a switch's rules in the form that was chosen, beside its neighbours' as they are now.

        Return whether that is another than before. To be done to its end before it is begun again for this switch; `change` may
        be called meanwhile.
        """
        of = self._of[switch]
        form = of.form if of.tries else of.choice.form
        if form is not None:
            form = form.beside(self._neighbours(switch))
        if form == of.form:
            return False
        held: dict[Slot, Rule] | None = None if form is None else of.four
        if form is not None and form != FULL:
            held, of.since = {}, []
            try:
                for some in batched(tuple(of.four.values()), TRANSLATED):
                    held.update((one.slot, one) for rule in some for one in form.rules(rule))
                    yield 1
                for gone, added in of.since:
                    _replace(held, form, gone, added)
            finally:
                of.since = None
        of.form, of.held = form, held
        self._lesser.pop(switch, None)
        if form is not None and not form.admits:
            self._lesser[switch] = form
        return True

    def _choose(self, of: _OfSwitch, switch: str) -> None:
        of.candidates = of.candidates or tuple(candidates(self._fabric, switch, self._codepoints, of.counts))
        of.choice, of.tries = choose(of.candidates, of.capabilities, of.shown, of.first), False
        if of.choice.form is not None:
            of.first = of.choice.position

    def _neighbours(self, switch: str) -> Neighbours:
        """Return what a switch makes good for others, in the forms that they have now."""
        lesser = {name: form for name, form in self._lesser.items() if name != switch}
        if not lesser:
            return NO_NEIGHBOURS
        edges = {name for name, form in lesser.items() if not form.ethernet}
        unrestored = frozenset(i for i, host in enumerate(self._fabric.hosts) if self._fabric.edge_of[host.name] in edges)
        return Neighbours(unrestored, self._codepoints.acknowledgement, self._families)


def _replace(held: dict[Slot, Rule], form: RuleForm, gone: Iterable[Rule], added: Iterable[Rule]) -> Collection[Slot]:
    """Replace what stands for rules in a form; return the slots concerned."""
    without = dict.fromkeys(one.slot for rule in gone for one in form.rules(rule))
    for slot in without:
        held.pop(slot, None)
    new = {one.slot: one for rule in added for one in form.rules(rule)}
    held.update(new)
    return without.keys() | new.keys()
