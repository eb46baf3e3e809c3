"""The rules that a switch holds, as far as is known: which of them have lost their purpose, and where something may be to do.

A rule without purpose is removed only when no packet has met it for `SETTLE_S`, so that its removal message is complete.
Packets that a host has marked with a class wait for seconds in its queues: a rule of the class before stays for `LINGER_S`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from controller.event_loop.time_slices import CHEAP, Work, batched
from controller.openflow.reconcile import difference
from controller.openflow.rules import Rule, RuleKey, Slot

SETTLE_S = 1.2  # Two readings are further apart than the passes of Open vSwitch's revalidator.
LINGER_S = 15.0
COMPARED = 8  # slots compared at once
# A switch that never shows a rule as it was written has it written again so many times between two calls of `replace`.
MENDS = 3

Wanted = Callable[[Slot], Rule | None]
"""The rule that is wanted in a slot, at any priority."""

_NONE: Mapping[RuleKey, Rule] = {}


@dataclass(frozen=True)
class RetiredRule:
    """A rule that has lost its purpose.

    since, idle_since: when it did, when a packet met it last. patience_s: for how long none must have met it before it is
    removed. packets: that have met it.
    """

    since: float
    idle_since: float
    patience_s: float
    packets: int | None = None

    @property
    def due(self) -> float:
        """When to check whether it can be removed."""
        return min(self.idle_since + self.patience_s / 2, self.since + LINGER_S)


@dataclass(frozen=True)
class Comparison:
    """What a comparison has found. add: in the order in which to add it. retired: how many rules have lost their purpose."""

    add: tuple[Rule, ...] = ()
    retired: int = 0

    def __len__(self) -> int:
        return len(self.add) + self.retired


@dataclass(frozen=True)
class Deviation:
    """How many rules were read that are not as they were written.

    missing: that are not there, changed: that have another content, unknown: that nobody has written. unheard: that are not
    there and announce their removal: the announcement may still come. new: how many others were read for the first time.
    """

    missing: int = 0
    changed: int = 0
    unknown: int = 0
    unheard: int = 0
    new: int = field(default=0, compare=False)

    def __bool__(self) -> bool:
        return bool(self.missing or self.changed or self.unknown)


class HeldRules:
    """Know rules by key and by slot, and which of them have lost their purpose.

    Slots are compared with what is wanted when they have changed in ways that were not meant, or something else is wanted
    there: so a change costs what it changes. At first all of them are.
    """

    def __init__(self) -> None:
        self._by_key: dict[RuleKey, Rule] = {}
        self._by_slot: dict[Slot, dict[RuleKey, Rule]] = {}
        self._dirty: dict[Slot, None] | None = None  # None stands for all slots.
        self._lost: set[RuleKey] | None = None  # It is set between `begin_reading` and the end of `replace`.
        self._unheard: frozenset[RuleKey] = frozenset()  # The rules of `Deviation.unheard` at the last reading.
        self._mends: Counter[RuleKey] = Counter()  # of rules that were not read as they were written since
        self.retired: dict[RuleKey, RetiredRule] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def __getitem__(self, key: RuleKey) -> Rule:
        return self._by_key[key]

    def __iter__(self) -> Iterator[Rule]:
        return iter(tuple(self._by_key.values()))

    def at(self, slot: Slot) -> Collection[Rule]:
        """Return the rules in a slot."""
        return self._by_slot.get(slot, _NONE).values()

    def begin_reading(self) -> None:
        """Take in that the switch is asked for everything: what is lost from now on may still be in its answer."""
        self._lost = set()

    def replace(self, rules: Iterable[Rule]) -> Work[None]:
        """Take in everything that there is, as it was read since `begin_reading`."""
        by_key: dict[RuleKey, Rule] = {}
        by_slot: dict[Slot, dict[RuleKey, Rule]] = {}
        for some in batched(rules, COMPARED):
            for rule in some:
                by_key[rule.key] = by_slot.setdefault(rule.slot, {})[rule.key] = rule
            yield len(some)
        self._by_key, self._by_slot, self._dirty = by_key, by_slot, None
        self._unheard, self._mends = frozenset(), Counter()
        lost, self._lost = self._lost or (), None
        for key in lost:
            self.pop(key)
        self.retired = {key: retired for key, retired in self.retired.items() if key in by_key}

    def update(self, rules: Sequence[Rule]) -> Work[Deviation]:
        """Take in everything that there is, as `replace` does, and have those slots alone compared in which that differs."""
        found, new, differing = 0, 0, list[Rule]()
        for some in batched(rules, CHEAP):
            for rule in some:
                held = self._by_key.get(rule.key)
                found += held is not None
                if held is not rule:
                    if held != rule:
                        differing.append(rule)
                        continue
                    self.put(rule)  # What is read is the same object each time, which is compared faster.
                    new += 1
                if self._mends:
                    self._mends.pop(rule.key, None)
            yield 1
        missing = list[RuleKey]()
        if found != len(self._by_key):
            read = set[RuleKey]()
            for some in batched(rules, CHEAP):
                read.update(rule.key for rule in some)
                yield 1
            missing = [key for key in self._by_key if key not in read]
        lost, self._lost = self._lost or frozenset[RuleKey](), None
        unheard = {key for key in missing if self._by_key[key].announced and key not in self._unheard}
        unwritten = {rule.key for rule in differing if rule.key not in self._by_key and rule.key not in lost}
        changed = {rule.key for rule in differing if rule.key in self._by_key}
        for rule in differing:
            if rule.key not in lost:
                self._mend(rule.key, rule)
        for key in missing:
            if key not in unheard:
                self._mend(key, None)
        self._unheard = frozenset(unheard)
        return Deviation(len(missing) - len(unheard), len(changed), len(unwritten), len(unheard), new)

    def _mend(self, key: RuleKey, read: Rule | None) -> None:
        """Take in what was read in place of what was written, unless that was in vain too often."""
        self._mends[key] += 1
        if self._mends[key] > MENDS:
            return
        table, _, fields = key
        self.mark_dirty(((table, fields),))
        if read is None:
            self.pop(key)
        else:
            self.put(read)

    def put(self, rule: Rule) -> None:
        """Take in a rule that was added as is wanted, perhaps in place of another one."""
        self._by_key[rule.key] = rule
        self._by_slot.setdefault(rule.slot, {})[rule.key] = rule

    def pop(self, key: RuleKey) -> Rule | None:
        """Take in that a rule was removed as is wanted, and return it if it was there."""
        rule = self._by_key.pop(key, None)
        self.retired.pop(key, None)
        if rule is not None:
            of_slot = self._by_slot[rule.slot]
            del of_slot[key]
            if not of_slot:
                del self._by_slot[rule.slot]
        return rule

    def lose(self, key: RuleKey) -> bool:
        """Take in that a rule is not there, which may be wanted; return whether it was taken to be."""
        if self._lost is not None:
            self._lost.add(key)
        rule = self.pop(key)
        if rule is not None:
            self.mark_dirty((rule.slot,))
        return rule is not None

    def mark_dirty(self, slots: Iterable[Slot] | None) -> None:
        """Have slots compared the next time, None for all of them."""
        if slots is None:
            self._dirty = None
        elif self._dirty is not None:
            self._dirty.update(dict.fromkeys(slots))

    def compare(self, wanted: Wanted, everything: Iterable[Slot], now: float) -> Work[Comparison]:
        """Find what is to be added, and take in what has lost its purpose. everything: all slots in which a rule is wanted."""
        slots: Iterable[Slot]
        if self._dirty is not None:
            slots = tuple(self._dirty)
        else:
            held = tuple(self._by_slot)
            slots = chain(held, (slot for slot in tuple(everything) if slot not in self._by_slot))
        self._dirty = {}
        add: dict[tuple[int, int], list[Rule]] = {}
        retired = 0
        for some in batched(slots, COMPARED):
            present = [rule for slot in some for rule in self._by_slot.get(slot, _NONE).values()]
            change = difference(present, [rule for slot in some if (rule := wanted(slot)) is not None])
            for rule in change.add:
                add.setdefault((-rule.table, rule.priority), []).append(rule)
            for rule in present:
                if rule.key not in change.retire:
                    self.retired.pop(rule.key, None)
                elif rule.key not in self.retired:
                    self.retired[rule.key] = RetiredRule(now, now, _patience_s(rule, wanted))
                    retired += 1
            yield len(some)
        return Comparison(tuple(chain.from_iterable(add[order] for order in sorted(add))), retired)


def _patience_s(rule: Rule, wanted: Wanted) -> float:
    """Return how long no packet must have met a retired rule: longer where packets with its mark may be in flight."""
    pair = rule.pair
    in_use = pair is not None and not rule.climbs and wanted(pair.slot(rule.family)) is not None
    return LINGER_S if in_use else SETTLE_S
