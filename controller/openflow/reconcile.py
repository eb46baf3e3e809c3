"""Which changes turn the rules that a switch holds into the wanted ones, without a packet that finds none.

Nothing is changed in place where that would mix counts. A host pair's new class is two new rules: one for packets marked with
it, beside that of the old class, and one above the old one for any other packet. So every packet meets one of them, and what
is no longer wanted stays until no packet has met it for a while and its counts are complete.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from controller.openflow.rules import Band, Match, Rule, RuleKey

REBASE = 30_000  # A pair that has climbed so far in the 65 535 priorities starts anew below.


@dataclass(frozen=True)
class Difference:
    """What to add now, and which present rules have lost their purpose."""

    add: tuple[Rule, ...]
    retire: frozenset[RuleKey]


def difference(present: Iterable[Rule], wanted: Iterable[Rule]) -> Difference:
    """Return the smallest change from `present` to `wanted`; a rule of equal key and other content is overwritten."""
    held = {rule.key: rule for rule in present}
    highest: dict[Match, Rule] = {}
    for rule in held.values():
        if rule.climbs and (rule.match not in highest or rule.priority > highest[rule.match].priority):
            highest[rule.match] = rule
    placed = {p.key: p for p in (_placed(r, highest.get(r.match)) if r.climbs else r for r in wanted)}
    add = tuple(sorted((r for key, r in placed.items() if held.get(key) != r), key=lambda r: (-r.table, r.priority, r.match)))
    return Difference(add, frozenset(held.keys() - placed.keys()))


def _placed(rule: Rule, top: Rule | None) -> Rule:
    """Return `rule` at the priority it has, or has to have to be met before `top`, which may be too high for that."""
    if top is None:
        return rule
    if replace(top, priority=rule.priority) == rule:
        return top if top.priority < REBASE else rule
    above = top.priority + 1
    return replace(rule, priority=above) if above < Band.MARKED.priority else rule
