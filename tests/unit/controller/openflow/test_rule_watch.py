"""What other programs change in a switch's tables is noticed, said, and mended, or left and named."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from os_ken.ofproto import ofproto_v1_3 as ofp

from controller.event_loop.time_slices import at_once
from controller.openflow import rule_watch
from controller.openflow.held_rules import MENDS, Deviation, HeldRules
from controller.openflow.questions import ENDINGS
from controller.openflow.rule_watch import COUNT_S, COUNTING_S, MAX_COUNT_S, RULE_S, SHARE, UNHEARD_S, WatchRation
from controller.openflow.rules import IPV4, Rule, RuleKey, Table
from tests.support.openflow_samples import OWN_CHANGE, rule_change
from tests.support.openflow_switch import FakeSwitch, desired_rules, foreign_rule
from tests.unit.controller.openflow.test_driver import FABRIC, Bench, _in_a_hurry, bench, job

__all__ = ("_in_a_hurry",)

MENDED = "another program has changed Beamer's rules, which are mended"
NAMED = "rules of other programs come before Beamer's, and are left"
NEVER = 1e6  # Regular readings take so much of a rule's time that none is due.


@pytest.fixture(autouse=True)
def _counting_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_watch, "COUNT_S", COUNT_S / 100)
    monkeypatch.setattr(rule_watch, "UNHEARD_S", UNHEARD_S / 100)


def play(scenario: Callable[[Bench, FakeSwitch], Awaitable[None]], switch: FakeSwitch | None = None) -> None:
    """Run a scenario on a switch that has its rules."""

    async def whole() -> None:
        played = switch or FakeSwitch(dpid=1)
        async with bench() as b:
            b.driver.install(1, [job(2)])
            b.connect(played)
            await b.installed(1)
            # The first two regular readings are over by then.
            await b.until(lambda: played.counted > 6 or not played.counts)
            await scenario(b, played)

    asyncio.run(whole())


def static_key() -> RuleKey:
    return next(rule.key for rule in desired_rules(FABRIC, ())["s1"] if rule.table == Table.ROUTE)


def pair_key(switch: FakeSwitch) -> RuleKey:
    return next(key for key, entry in switch.entries.items() if entry.message.flags & ofp.OFPFF_SEND_FLOW_REM)


def counted_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_watch, "RULE_S", NEVER)


async def said(capfd: pytest.CaptureFixture[str], text: str) -> str:
    """Wait until something is logged, and return all that was."""
    out = ""
    async with asyncio.timeout(10):
        while text not in out:
            await asyncio.sleep(0.01)
            out += capfd.readouterr().out
    return out


def test_a_rule_that_is_removed_without_a_word_shows_in_the_numbers(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    counted_only(monkeypatch)

    async def scenario(b: Bench, switch: FakeSwitch) -> None:
        read = switch.read
        await b.until(lambda: switch.counted > 20)
        assert switch.read == read, "nothing is read while the numbers are right"
        del switch.entries[static_key()]
        await b.until(lambda: static_key() in switch.entries)
        assert switch.read == read + 1

    play(scenario)
    out = capfd.readouterr().out
    assert out.count(MENDED) == 1
    assert "missing=1" in out


def test_another_programs_rule_in_place_of_one_that_announces_its_removal_is_replaced(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    counted_only(monkeypatch)

    async def scenario(b: Bench, switch: FakeSwitch) -> None:
        key = pair_key(switch)
        wanted = switch.entries[key].message.cookie
        switch.entries[key] = foreign_rule(key[1], key[0])[1]
        await b.until(lambda: switch.entries[key].message.cookie == wanted)

    play(scenario)
    assert "missing=1" in capfd.readouterr().out


def test_a_removal_by_another_program_that_is_announced_is_mended_and_said(capfd: pytest.CaptureFixture[str]) -> None:
    async def scenario(b: Bench, switch: FakeSwitch) -> None:
        key = pair_key(switch)
        switch.expire(key)
        await b.until(lambda: key in switch.entries)
        counted = switch.counted
        await b.until(lambda: switch.counted > counted + 4)
        assert MENDED not in capfd.readouterr().out, "a rule's time was over"
        switch.expire(key, ofp.OFPRR_DELETE)
        await said(capfd, MENDED)
        await b.until(lambda: key in switch.entries)

    play(scenario)


def test_a_rule_that_is_changed_in_place_shows_in_the_next_reading(capfd: pytest.CaptureFixture[str]) -> None:
    async def scenario(b: Bench, switch: FakeSwitch) -> None:
        for key in (static_key(), pair_key(switch)):
            switch.entries[key].message.instructions = []
            await b.until(lambda: all(entry.message.instructions for entry in switch.entries.values()))

    play(scenario)
    assert "changed=1" in capfd.readouterr().out


def test_a_change_in_place_that_is_announced_is_mended_without_a_regular_reading(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rule_watch, "ANNOUNCED_S", 0.01)

    async def scenario(b: Bench, switch: FakeSwitch) -> None:
        assert switch.monitored == 1
        read, counted = switch.read, switch.counted
        switch.announce(OWN_CHANGE, rule_change(ofp.ONFFME_DELETED, ofp.OFPRR_IDLE_TIMEOUT))
        await b.until(lambda: switch.counted > counted + 6)
        assert switch.read == read, "neither its own changes nor what times out have anything read, nor does time"
        for key in (static_key(), pair_key(switch)):
            switch.entries[key].message.instructions = []
            switch.announce(rule_change(ofp.ONFFME_MODIFIED))
            await b.until(lambda: all(entry.message.instructions for entry in switch.entries.values()))

    play(scenario, FakeSwitch(dpid=1, announces=True))
    assert "changed=1" in capfd.readouterr().out


def test_a_switch_whose_connection_ends_with_the_question_is_not_asked_again(capfd: pytest.CaptureFixture[str]) -> None:
    def distort(frame: bytes) -> bytes:
        is_part = frame[1] == ofp.OFPT_MULTIPART_REPLY and frame[8:10] == b"\xff\xff"
        return b"\x01" + frame[1:] if is_part else frame

    async def whole() -> None:
        switch = FakeSwitch(dpid=1, announces=True, distort=distort)
        async with bench() as b:
            b.driver.install(1, [job(2)])
            for number in range(ENDINGS):
                b.connect(switch)
                await b.until(lambda number=number: switch.monitored > number)  # type: ignore[misc]
                await b.until(b.connections[number].done)
            b.connect(switch)
            await b.installed(1, times=ENDINGS + 1)
            counted = switch.counted
            await b.until(lambda: switch.counted > counted + 4)
            assert switch.monitored == ENDINGS

    asyncio.run(whole())
    assert "connections ended with the question for changes, which is not asked again" in capfd.readouterr().out


def test_announcements_without_end_have_all_rules_read_at_a_bounded_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_watch, "ANNOUNCED_S", 0.01)
    monkeypatch.setattr(rule_watch, "RULE_S", 0.01)  # a reading a minute

    async def scenario(b: Bench, switch: FakeSwitch) -> None:
        read, counted = switch.read, switch.counted
        while switch.counted < counted + 20:
            switch.announce(rule_change(ofp.ONFFME_ADDED))
            await asyncio.sleep(0.005)
        assert switch.read == read + 1

    play(scenario, FakeSwitch(dpid=1, announces=True))


def test_readings_of_all_switches_for_announcements_have_a_bound_together() -> None:
    ration = WatchRation()
    assert ration.may_read(10_000, 5.0)
    took_s = 10_000 * RULE_S
    assert not ration.may_read(1, 5.0 + 9 * took_s)
    assert ration.may_read(1, 5.0 + 11 * took_s)


def test_an_announcement_that_cannot_be_read_has_the_rules_read_and_ends_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_watch, "ANNOUNCED_S", 0.01)

    async def scenario(b: Bench, switch: FakeSwitch) -> None:
        read = switch.read
        switch.announce(b"\0\4")
        await b.until(lambda: switch.read > read)
        assert not b.connections[0].done()

    play(scenario, FakeSwitch(dpid=1, announces=True))


def test_a_switch_that_does_not_count_is_read(capfd: pytest.CaptureFixture[str]) -> None:
    async def scenario(b: Bench, switch: FakeSwitch) -> None:
        del switch.entries[static_key()]
        await b.until(lambda: static_key() in switch.entries)
        assert switch.counted == 2, "once for both numbers"

    play(scenario, FakeSwitch(dpid=1, counts=False))
    assert capfd.readouterr().out.count("switch does not count its rules") == 1


def test_rules_of_other_programs_are_left_and_those_before_beamers_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    odd = dict([foreign_rule(50_000), foreign_rule(10, table=9), foreign_rule(10, table=Table.ROUTE)])

    async def scenario(b: Bench, switch: FakeSwitch) -> None:
        switch.entries |= odd
        out = await said(capfd, NAMED)
        assert "['table 0 priority 50000 cookie 0x7']" in out
        assert "in_the_way=1 " in out
        counted = switch.counted
        await b.until(lambda: switch.counted > counted + 10)
        assert odd.items() <= switch.entries.items()
        for key in odd:
            del switch.entries[key]
        out = capfd.readouterr().out
        assert NAMED not in out, "once"
        assert MENDED not in out + await said(capfd, "now=0")

    play(scenario)


def test_very_many_rules_of_other_programs_are_counted_and_not_read(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rule_watch, "MAX_FOREIGN", 3)

    async def scenario(b: Bench, switch: FakeSwitch) -> None:
        switch.entries |= dict(foreign_rule(50_000, cookie=cookie) for cookie in range(4))
        assert NAMED not in await said(capfd, "now=4")

    play(scenario)


def test_a_ration_is_shared_by_all_switches() -> None:
    ration = WatchRation()
    rules = round(3.0 * SHARE / RULE_S)  # that may be read each three seconds
    granted = [ration.next_reading(rules, 100.0) for _ in range(3)]
    assert granted == pytest.approx([100.0 + rule_watch.COUNT_S, 103.0, 106.0])
    assert ration.next_reading(rules, 200.0) == pytest.approx(200.0 + rule_watch.COUNT_S), "what was not used is not saved"
    few = WatchRation()
    assert {few.next_reading(1, 0.0) for _ in range(4)} == {rule_watch.COUNT_S}


def test_all_switches_are_asked_for_numbers_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_watch, "COUNT_S", COUNT_S)
    ration = WatchRation()
    few = [ration.next_count(100.0) for _ in range(round(COUNT_S * SHARE / COUNTING_S))]
    assert set(few) == {102.0}
    many = [ration.next_count(100.0) for _ in range(1000)]
    assert many == sorted(many)
    assert many[-1] == 100.0 + MAX_COUNT_S
    assert MAX_COUNT_S + UNHEARD_S < 5.0


def rule(number: int, priority: int = 1, announced: bool = False) -> Rule:
    return Rule(number, 1, priority, (("eth_type", IPV4), ("metadata", number)), announced=announced)


def known(*rules: Rule) -> HeldRules:
    held = HeldRules()
    held.begin_reading()
    at_once(held.replace(rules))
    at_once(held.compare(lambda slot: None, (), 0.0))
    return held


def update(held: HeldRules, *rules: Rule) -> Deviation:
    held.begin_reading()
    return at_once(held.update(rules))


def test_an_update_finds_what_differs_and_has_nothing_else_compared() -> None:
    same, gone, changed, announced = rule(1), rule(2), rule(3), rule(4, announced=True)
    held = known(same, gone, changed, announced)
    assert update(held, same, gone, changed, announced) == Deviation()
    other = Rule(9, 1, 1, changed.match)
    assert update(held, same, other, rule(5)) == Deviation(missing=1, changed=1, unknown=1, unheard=1)
    assert {*held} == {same, other, rule(5), announced}
    asked: list[object] = []
    at_once(held.compare(asked.append, (), 0.0))
    assert asked == [other.slot, rule(5).slot, gone.slot]
    assert update(held, same, other, rule(5)) == Deviation(missing=1), "no announcement has come"
    assert announced not in {*held}


def test_what_a_switch_never_shows_as_it_was_written_is_not_written_again_and_again() -> None:
    wanted, odd = rule(1), Rule(1, 1, 1, rule(1).match, idle_s=1)
    held = known(wanted)
    for _ in range(MENDS):
        assert update(held, odd).changed == 1
        assert {*held} == {odd}
        held.put(wanted)
    assert update(held, odd).changed == 1
    assert {*held} == {wanted}, "it counts as written"
    update(held, wanted)
    update(held, odd)
    assert {*held} == {odd}, "it was shown as written in between"


def test_what_is_lost_while_it_is_read_is_not_taken_in() -> None:
    held = known(rule(1), rule(2))
    held.begin_reading()
    held.lose(rule(1).key)
    assert at_once(held.update([rule(1), rule(2)])) == Deviation()
    assert {*held} == {rule(2)}
