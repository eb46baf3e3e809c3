"""Every kind of event says what it wakes."""

from dataclasses import dataclass, fields

import pytest

import beamer.gpu.events
import beamer.network.events
from beamer.studies import events
from beamer.studies.events import Decision, Event
from beamer.studies.wakes import Wakes

LEVELS = (beamer.gpu.events, beamer.network.events)


def test_an_event_that_declares_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_KINDS", dict(events._KINDS))
    before = dict(events._KINDS)
    with pytest.raises(TypeError, match=r"Undeclared: declare what it wakes: .*wakes=\.\.\..*Wakes\.NOTHING"):

        @dataclass(frozen=True)
        class Undeclared(Event):
            pass

    assert before == events._KINDS


def test_what_events_have_in_common_may_declare_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_KINDS", dict(events._KINDS))

    @dataclass(frozen=True)
    class Undecided(Event, journaled=False):
        pass

    with pytest.raises(TypeError, match="declare what it wakes"):
        type("StillUndecided", (Undecided,), {})

    @dataclass(frozen=True)
    class Seen(Event, wakes=Wakes.TARGETS, journaled=False):
        pass

    inherited = type("SeenThere", (Seen,), {})
    assert (inherited.wakes, events._KINDS["SeenThere"]) == (Wakes.TARGETS, inherited)


def test_every_kind_of_event_has_a_declaration_of_its_own_or_of_its_base() -> None:
    assert {cls.__module__ for cls in events._KINDS.values()} >= {module.__name__ for module in LEVELS}
    for cls in events._KINDS.values():
        assert isinstance(cls.wakes, Wakes)
        assert "wakes" in vars(cls) or issubclass(cls, Decision)


def test_decisions_wake_nothing() -> None:
    decisions = [cls for cls in events._KINDS.values() if issubclass(cls, Decision)]
    assert decisions
    assert {cls.wakes for cls in decisions} == {Wakes.NOTHING}


def test_reports_name_the_trial_that_they_are_of() -> None:
    reports = [cls for cls in events._KINDS.values() if Wakes.STANDING in cls.wakes]
    assert reports
    assert all("trial" in {field.name for field in fields(cls)} for cls in reports)
