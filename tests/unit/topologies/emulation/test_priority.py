"""Which priority the processes of a run have."""

import os
import subprocess
import sys

import pytest

from topologies.emulation import priority
from topologies.emulation.priority import CONTROLLER_PRIORITY, TRAINER_PRIORITY, grants_real_time

SHOWN = "import os; print(os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, os.nice(0))"


def shown(one: priority.Priority) -> list[int]:
    command = one.command([sys.executable, "-c", SHOWN])
    return [int(word) for word in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_controllers_come_before_trainers() -> None:
    if not grants_real_time():
        pytest.skip("this machine grants no real-time priority")
    assert os.sched_getscheduler(0) == os.SCHED_OTHER, "asking changes nothing"
    controller, trainer = shown(CONTROLLER_PRIORITY), shown(TRAINER_PRIORITY)
    assert controller[0] == trainer[0] == os.SCHED_RR
    assert controller[1] > trainer[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_nice_values_are_left_where_no_real_time_priority_is_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority, "grants_real_time", lambda: False)
    controller, trainer = shown(CONTROLLER_PRIORITY), shown(TRAINER_PRIORITY)
    assert controller[:2] == trainer[:2] == [os.SCHED_OTHER, 0]
    assert controller[2] < trainer[2] == os.nice(0)
