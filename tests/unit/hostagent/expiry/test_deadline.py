"""The deadline: its record, when it is over, and how often the agent writes it."""

from pathlib import Path

import pytest

from hostagent.expiry import deadline as module
from hostagent.expiry.deadline import RENEWALS, HeldQueueDeadline, QueueDeadline
from hostagent.expiry.state import StateDirectory


class Clock:
    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "now", clock)
    return clock


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "h1")


def test_a_deadline_lasts_until_it_is_over_or_ended(state: StateDirectory, clock: Clock) -> None:
    deadline = QueueDeadline(state)
    assert deadline.until() is None
    assert not deadline.expired()
    deadline.renew(1005.0)
    assert QueueDeadline(state).until() == 1005.0
    assert not deadline.expired()
    clock.s = 1005.0
    assert deadline.expired()
    deadline.end()
    deadline.end()
    assert deadline.until() is None
    assert not deadline.expired()


def test_an_agent_writes_its_deadline_a_few_times_within_its_duration(state: StateDirectory, clock: Clock) -> None:
    record = QueueDeadline(state)
    held = HeldQueueDeadline(record, 20.0)
    assert not held.granted
    assert held.renew()
    assert held.granted
    assert record.until() == 1020.0
    clock.s += 0.9 * 20.0 / RENEWALS
    assert not held.renew()
    clock.s += 0.2 * 20.0 / RENEWALS
    assert held.renew()
    assert record.until() == pytest.approx(clock.s + 20.0)


def test_an_agent_continues_the_deadline_of_its_predecessor(state: StateDirectory, clock: Clock) -> None:
    QueueDeadline(state).renew(1005.0)
    held = HeldQueueDeadline(QueueDeadline(state), 20.0)
    assert held.granted
    assert not held.expired
    clock.s = 1005.0
    assert held.expired
    held.forget()
    assert not held.granted
    assert not held.expired
    assert QueueDeadline(state).until() == 1005.0, "the guard removes the queues if the agent cannot"


def test_the_agent_waits_until_a_renewal_is_due_or_the_deadline_is_over(state: StateDirectory, clock: Clock) -> None:
    held = HeldQueueDeadline(QueueDeadline(state), 20.0)
    assert held.wait_s() == 20.0 / RENEWALS
    held.renew()
    assert held.wait_s() == 20.0 / RENEWALS
    clock.s = 1019.5
    assert held.wait_s() == pytest.approx(0.5)
    clock.s = 1030.0
    assert 0 < held.wait_s() < 0.1


def test_a_deadline_that_cannot_be_written_holds_for_the_running_agent(state: StateDirectory, clock: Clock) -> None:
    held = HeldQueueDeadline(QueueDeadline(state), 20.0)
    state.path.rmdir()
    with pytest.raises(OSError, match="lease"):
        held.renew()
    assert held.granted
    assert not held.renew()


@pytest.mark.parametrize("text", ["", "soon\n", "nan\n", "inf\n", "1e999\n", "\x00\x00"])
def test_a_deadline_that_cannot_be_read_is_over(state: StateDirectory, clock: Clock, text: str) -> None:
    state.write("lease", text)
    assert QueueDeadline(state).expired()
    assert HeldQueueDeadline(QueueDeadline(state), 20.0).expired
