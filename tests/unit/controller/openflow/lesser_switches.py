"""What the tests of switches that can do less than four tables ask for have in common."""

import pytest

from beamer.testing.fabrics import star
from controller.openflow import held_rules, session
from controller.openflow.reports import SwitchForm
from controller.openflow.rules import JobRules
from tests.support.openflow_switch import FakeSwitch
from tests.support.switch_limits import SwitchLimits
from tests.unit.controller.openflow.test_driver import Bench

FABRIC = star(2)
ONE_TABLE = SwitchLimits(tables=1, metadata=False, rewrites=frozenset())
LEFT, RIGHT = FABRIC.hosts
BOTH_DIRECTIONS = frozenset({(LEFT.ip, 1, RIGHT.ip, 2), (RIGHT.ip, 2, LEFT.ip, 1)})


def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have drivers wait for little."""
    monkeypatch.setattr(held_rules, "SETTLE_S", 0.1)
    monkeypatch.setattr(held_rules, "LINGER_S", 0.1)
    monkeypatch.setattr(session, "FLUSH_S", 0.001)
    monkeypatch.setattr(session, "RETRY_S", 0.05)


def job(klass: int, caps: dict[str, int] | None = None, connections: int = 1) -> JobRules:
    more = frozenset((LEFT.ip, 1000 + port, RIGHT.ip, 2) for port in range(connections - 1))
    return JobRules("s/s/j", 1, 0, klass, BOTH_DIRECTIONS | more, caps or {})


def forms(b: Bench) -> list[SwitchForm]:
    return [event for event in b.events if isinstance(event, SwitchForm)]


def tables(switch: FakeSwitch) -> set[int]:
    return {table for table, _, _ in switch.entries}


async def is_settled(b: Bench, switch: FakeSwitch, at_most: int) -> None:
    """Wait until what is left of another form is gone."""
    await b.until(lambda: len(switch.entries) <= at_most and tables(switch) == {0})
