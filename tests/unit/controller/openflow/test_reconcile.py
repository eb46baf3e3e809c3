"""Differences: nothing for nothing, and never a moment in which a pair has no rule."""

from dataclasses import replace

import pytest

from beamer.testing.fabrics import star
from controller.openflow.reconcile import REBASE, Difference, difference
from controller.openflow.rules import Band, JobRules, Rule
from tests.support.openflow_switch import desired_rules

FABRIC = star(2)
THERE = FABRIC.hosts[0].ip, 1, FABRIC.hosts[1].ip, 2
NOTHING = Difference((), frozenset())


def wanted(klass: int | None) -> frozenset[Rule]:
    jobs = () if klass is None else (JobRules("a", 1, 0, klass, frozenset({THERE})),)
    return desired_rules(FABRIC, jobs)["s1"]


def pair(rules: frozenset[Rule] | tuple[Rule, ...]) -> Rule:
    return next(rule for rule in rules if rule.climbs)


def marked(rules: frozenset[Rule] | tuple[Rule, ...]) -> Rule:
    return next(rule for rule in rules if rule.priority == Band.MARKED.priority)


def test_an_empty_switch_gets_everything_and_a_complete_one_nothing() -> None:
    assert set(difference((), wanted(3)).add) == wanted(3)
    assert difference(wanted(3), wanted(3)) == NOTHING


def test_what_a_packet_meets_later_is_added_first() -> None:
    tables = [rule.table for rule in difference((), wanted(3)).add]
    assert tables == sorted(tables, reverse=True)


def test_a_new_class_is_a_new_rule_above_the_old_one() -> None:
    change = difference(wanted(3), wanted(5))
    assert [rule.klass for rule in change.add] == [5, 5]
    assert pair(change.add).priority == pair(wanted(3)).priority + 1
    assert change.retire == {pair(wanted(3)).key, marked(wanted(3)).key}


def test_packets_marked_with_either_class_are_distinguished_while_it_changes() -> None:
    before, after = marked(wanted(3)), marked(difference(wanted(3), wanted(5)).add)
    assert before.match != after.match
    assert before.priority == after.priority > pair(difference(wanted(3), wanted(5)).add).priority


def test_going_back_to_a_class_is_a_third_rule_while_the_first_is_still_there() -> None:
    second = pair(difference(wanted(3), wanted(5)).add)
    change = difference({*wanted(3), second}, wanted(3))
    assert [(rule.klass, rule.priority) for rule in change.add] == [(3, second.priority + 1)]
    assert change.retire == {second.key, pair(wanted(3)).key}


@pytest.mark.parametrize("climbed", [1, 7, REBASE - Band.PAIR.priority - 1])
def test_a_pair_is_kept_at_whatever_priority_it_has(climbed: int) -> None:
    lifted = replace(pair(wanted(3)), priority=Band.PAIR.priority + climbed)
    assert difference({lifted} | (wanted(3) - {pair(wanted(3))}), wanted(3)) == NOTHING


def test_a_pair_that_has_climbed_far_starts_anew_below_without_a_gap() -> None:
    high = replace(pair(wanted(3)), priority=REBASE)
    present = {high} | (wanted(3) - {pair(wanted(3))})
    change = difference(present, wanted(3))
    assert change.add == (pair(wanted(3)),)
    assert change.retire == {high.key}
    assert difference(present | set(change.add), wanted(3)).add == ()


def test_a_rule_of_other_content_is_overwritten_in_place() -> None:
    spoilt = {replace(rule, goto=None) if rule.table == 0 else rule for rule in wanted(None)}
    change = difference(spoilt, wanted(None))
    assert {rule.table for rule in change.add} == {0}
    assert not change.retire


def test_an_ended_job_leaves_nothing_wanted() -> None:
    change = difference(wanted(3), wanted(None))
    assert not change.add
    assert change.retire == {rule.key for rule in wanted(3) - wanted(None)}
