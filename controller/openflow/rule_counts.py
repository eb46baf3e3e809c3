"""How many rules a switch needs in a form, without looking at each one whenever a few change."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from controller.openflow.rules import Rule, Slot

Sort = tuple[int, int, int, bool]
"""What decides how many rules, and in which tables, stand for a rule: its table, band, family, and whether it counts."""


class _Form(Protocol):
    def rules(self, rule: Rule) -> tuple[Rule, ...]:
        """Return what stands for a rule of the four tables."""


class RuleCounts:
    """The rules of the four tables by sort.

    They are counted when somebody first asks: nobody does where there is room for any number of them. From then on a change
    costs what it changes. rules: by slot, which the owner changes and tells of.
    """

    def __init__(self, rules: Mapping[Slot, Rule]) -> None:
        self._rules = rules
        self._numbers: Counter[Sort] | None = None
        self._samples: dict[Sort, Rule] = {}

    def __len__(self) -> int:
        return len(self._rules)

    def change(self, gone: Iterable[Rule], added: Iterable[Rule]) -> None:
        """Take in that rules have gone and others have come."""
        if self._numbers is not None:
            self._numbers.subtract(map(_sort, gone))
            self._add(self._numbers, added)

    def needed(self, form: _Form) -> Counter[int]:
        """Return by table how many rules stand for these in a form.

        A host pair's count twice: while its class changes, a switch holds those of both classes.
        """
        if self._numbers is None:
            self._numbers = Counter()
            self._add(self._numbers, self._rules.values())
        needed: Counter[int] = Counter()
        for sort, number in self._numbers.items():
            for rule in form.rules(self._samples[sort]) if number else ():
                needed[rule.table] += number * (1 + rule.counts)
        return needed

    def _add(self, numbers: Counter[Sort], rules: Iterable[Rule]) -> None:
        for rule in rules:
            sort = _sort(rule)
            numbers[sort] += 1
            self._samples.setdefault(sort, rule)


def _sort(rule: Rule) -> Sort:
    return rule.table, rule.band, rule.family, rule.counts
