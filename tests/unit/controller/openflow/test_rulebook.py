"""What is kept up to date change by change is what would be worked out anew."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest

from beamer.network.connection import FourTuple
from beamer.testing.fabrics import two_spines
from controller.event_loop.time_slices import at_once
from controller.openflow.held_rules import HeldRules
from controller.openflow.reconcile import difference
from controller.openflow.rulebook import RuleBook
from controller.openflow.rules import JobRules, Rule, Slot, static_rules
from tests.support.openflow_switch import desired_rules

FABRIC = two_spines()
HOSTS = FABRIC.hosts
OUTSIDE = "192.0.2.1"
STEPS = 60


def drawn(rng: Random, seq: int) -> JobRules:
    """Return a job with a few of few connections, so that others claim the same ones, and sometimes a cap."""
    connections = frozenset(connection(rng) for _ in range(rng.randrange(6)))
    caps = {rng.choice(HOSTS).name: rng.choice((10_000, 20_000)) for _ in range(rng.choice((0, 0, 1, 2)))}
    return JobRules(f"s/j{seq}", seq, rng.randrange(3), rng.randrange(8), connections, caps)


def connection(rng: Random) -> FourTuple:
    src, dst = rng.choice(HOSTS).ip, rng.choice((*HOSTS, None))
    return src, rng.choice((1, 2)), dst.ip if dst else OUTSIDE, rng.choice((1, 2))


def changed(rng: Random, jobs: Iterable[JobRules], latest: int) -> list[JobRules]:
    """Return jobs some of which have ended, changed or come."""
    kept = [job for job in jobs if rng.random() < 0.9]
    kept = [drawn(rng, job.seq) if rng.random() < 0.2 else job for job in kept]
    kept = [replace(job, klass=rng.randrange(8)) if rng.random() < 0.2 else job for job in kept]
    return kept + [drawn(rng, latest + i) for i in range(rng.randrange(3))]


@pytest.mark.parametrize("seed", range(8))
def test_rules_and_meters_are_those_of_a_new_book(seed: int) -> None:
    rng, book = Random(seed), RuleBook(FABRIC)
    rules: dict[str, dict[Slot, Rule]] = {name: {r.slot: r for r in of} for name, of in static_rules(FABRIC).items()}
    jobs: list[JobRules] = []
    claimed_twice = 0
    for step in range(STEPS):
        jobs = changed(rng, jobs, 1 + 3 * step)
        claims = [connection for job in jobs for connection in job.connections]
        claimed_twice += len(claims) - len(set(claims))
        for name, change in at_once(book.change(jobs)).items():
            for slot, rule in change.items():
                assert rules[name].get(slot) != rule, "only what changes is said to"
                if rule is None:
                    del rules[name][slot]
                else:
                    rules[name][slot] = rule
        anew = RuleBook(FABRIC)
        at_once(anew.change(jobs))
        assert book.meters() == anew.meters()
        assert {name: frozenset(of.values()) for name, of in rules.items()} == desired_rules(FABRIC, jobs)
    assert claimed_twice > STEPS / 4


@pytest.mark.parametrize("seed", range(8))
def test_what_is_to_be_done_is_what_a_comparison_of_everything_finds(seed: int) -> None:
    """A switch that loses rules now and then, and whose retired rules are removed now and then."""
    rng, book, held = Random(seed), RuleBook(FABRIC), HeldRules()
    wanted: dict[Slot, Rule] = {}
    jobs: list[JobRules] = []
    for step in range(STEPS):
        jobs = changed(rng, jobs, 1 + 3 * step)
        change = at_once(book.change(jobs))["l1"]
        wanted.update((slot, rule) for slot, rule in change.items() if rule is not None)
        for slot, rule in change.items():
            if rule is None:
                wanted.pop(slot, None)
        held.mark_dirty(change)
        for rule in held:
            if rng.random() < 0.1:
                held.lose(rule.key)
        expected = difference(held, wanted.values())
        found = at_once(held.compare(wanted.get, wanted, float(step)))
        assert set(found.add) == set(expected.add)
        assert [(-r.table, r.priority) for r in found.add] == [(-r.table, r.priority) for r in expected.add]
        for rule in found.add:
            held.put(rule)
        assert held.retired.keys() == expected.retire
        for key in [key for key in held.retired if rng.random() < 0.3]:
            held.pop(key)
        assert len(difference(held, wanted.values()).add) == 0


def test_what_is_read_anew_is_compared_as_a_whole() -> None:
    held = HeldRules()
    rules = {rule.slot: rule for rule in desired_rules(FABRIC, [drawn(Random(1), 1)])["l1"]}
    assert len(at_once(held.compare(rules.get, rules, 0.0)).add) == len(rules)
    for rule in rules.values():
        held.put(rule)
    assert len(at_once(held.compare(rules.get, rules, 1.0))) == 0
    lost, *others = rules.values()
    at_once(held.replace(others))
    assert at_once(held.compare(rules.get, rules, 2.0)).add == (lost,)


def read_anew(held: HeldRules, rules: Iterable[Rule]) -> None:
    held.begin_reading()
    at_once(held.replace(rules))


def test_a_rule_that_is_lost_while_a_reading_is_taken_in_is_not_taken_to_be_there() -> None:
    held, rules = HeldRules(), [rule for of_switch in static_rules(FABRIC).values() for rule in of_switch]
    first, second = rules[0], rules[-1]
    held.begin_reading()
    held.lose(first.key)
    work = held.replace(rules)
    next(work)
    held.lose(second.key)
    at_once(work)
    assert {rule.key for rule in rules} - {rule.key for rule in held} == {first.key, second.key}
    read_anew(held, rules)
    assert first.key in held, "it was added again"


def test_what_was_to_be_removed_is_forgotten_where_a_reading_has_it_no_more() -> None:
    held, rules = HeldRules(), next(iter(static_rules(FABRIC).values()))
    read_anew(held, rules)
    at_once(held.compare(lambda slot: None, (), 0.0))
    assert held.retired
    read_anew(held, ())
    assert not held.retired
