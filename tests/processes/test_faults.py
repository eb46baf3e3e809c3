"""Every fault a few times against real processes: nothing that was acknowledged is lost, and plans are as before."""

import pytest

from eval.faults.base import Fault
from eval.faults.catalogue import FAULTS

TIMES = {
    "kill-sqlite": 3,
    "kill-compacting": 3,
    "kill-postgresql": 3,
    "garbage-openflow": 60,
    "garbage-http": 200,
    "garbage-agents": 60,
}
"""Where it is not once."""
MEASURED_ELSEWHERE = {"garbage-openflow", "garbage-http", "garbage-agents", "damaged"}
"""Nothing is written while these happen."""


@pytest.mark.timeout(300)  # each takes a quarter of a minute, and twice as long on a machine that does other things
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_nothing_that_was_acknowledged_is_lost(fault: Fault) -> None:
    if reason := fault.missing():
        pytest.skip(reason)
    outcome = fault.run(TIMES.get(fault.name, 1), 7)
    assert outcome.is_good, outcome
    assert outcome.times >= TIMES.get(fault.name, 1)
    assert bool(outcome.acknowledged) == (fault.name not in MEASURED_ELSEWHERE)
