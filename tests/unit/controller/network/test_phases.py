from pathlib import Path

import pytest

from controller.network import phases as module
from controller.network.installation import Installation
from controller.network.phases import DecisionTimes, PhaseRecord, PlanPhase, loop_waited_s

TIMES = DecisionTimes(begun_s=10.5, decided_s=11.0, waited_s=3.0)


def test_phases_add_up_to_the_time_of_their_event() -> None:
    record = PhaseRecord()
    record.want(2, [10.0, 10.25], TIMES, 11.25)
    for phase, at_s in ((PlanPhase.JOURNAL, 11.5), (PlanPhase.RULES, 12.0), (PlanPhase.BARRIERS, 13.0)):
        record.reach(phase, 2, at_s)
    record.install(2, 15.0, 3.5)
    first, second = record.installed
    assert first.ms == {
        PlanPhase.EVENT: 500.0,
        PlanPhase.DECIDE: 500.0,
        PlanPhase.TARGETS: 250.0,
        PlanPhase.JOURNAL: 250.0,
        PlanPhase.RULES: 500.0,
        PlanPhase.BARRIERS: 1000.0,
        PlanPhase.AGENTS: 2000.0,
    }
    assert first.waited_ms == 500.0
    assert sum(second.ms.values()) == 4750.0
    assert not record.is_pending


def test_events_count_whatever_comes_of_them() -> None:
    record = PhaseRecord()
    record.call()
    record.call()
    assert record.events == 2
    assert record.installed == ()


def test_a_phase_that_was_passed_early_or_not_at_all_has_taken_no_time() -> None:
    record = PhaseRecord()
    record.want(2, [10.0], TIMES, 11.25)
    record.reach(PlanPhase.BARRIERS, 2, 11.25)
    record.reach(PlanPhase.JOURNAL, 2, 12.0)
    record.install(2, 14.0, None)
    (found,) = record.installed
    assert (found.ms[PlanPhase.RULES], found.ms[PlanPhase.BARRIERS], found.ms[PlanPhase.AGENTS]) == (0.0, 0.0, 2000.0)
    assert found.waited_ms is None
    assert record.samples()["processor"] == []


def test_a_later_generation_stands_for_those_before_it_and_not_for_those_after_it() -> None:
    record = PhaseRecord()
    for generation in (2, 3, 4):
        record.want(generation, [10.0], TIMES, 11.0)
    record.reach(PlanPhase.JOURNAL, 2, 11.5)
    record.reach(PlanPhase.JOURNAL, 3, 12.0)
    record.install(3, 13.0, None)
    assert [one.ms[PlanPhase.JOURNAL] for one in record.installed] == [500.0, 1000.0]
    assert record.is_pending
    record.install(4, 14.0, None)
    assert [one.ms[PlanPhase.JOURNAL] for one in record.installed] == [500.0, 1000.0, 0.0]


def test_an_installation_records_the_phases_of_its_events() -> None:
    installation = Installation(["s1"], ["h1"], 1, lambda: 4.0)
    installation.switch_connected("s1")
    installation.switch_installed("s1", 1, 0.0)
    installation.agent_applied("h1", 1, 0.0)
    installation.want(2, True, ["h1"], [10.0], TIMES, 11.0)
    installation.switch_installed("s1", 2, 12.0)
    installation.agent_applied("h1", 2, 14.0)
    (found,) = installation.phases.installed
    assert (found.ms[PlanPhase.BARRIERS], found.ms[PlanPhase.AGENTS], found.waited_ms) == (1000.0, 2000.0, 1000.0)
    assert installation.plan_ms == (sum(found.ms.values()),)


@pytest.mark.parametrize(("text", "expected"), [("5 2000000000 7\n", 2.0), ("0 0 0\n", None), ("", None)])
def test_waiting_is_read_where_the_kernel_counts_it(
    text: str, expected: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "schedstat").write_text(text)
    monkeypatch.setattr(module, "_SCHEDSTAT", tmp_path / "schedstat")
    assert loop_waited_s() == expected
    monkeypatch.setattr(module, "_SCHEDSTAT", tmp_path / "none")
    assert loop_waited_s() is None
