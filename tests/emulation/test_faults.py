"""Controllers that are killed while Open vSwitch forwards: each fault twice, and whether what it broke would be found."""

import pytest

from eval.faults import emulated
from eval.faults.catalogue import FAULTS
from eval.faults.lab import SWITCH, EmulatedController

pytestmark = pytest.mark.emulation

SOON_S = 2.5  # after which a rule without traffic that nobody wants is gone


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "UNUSED_S", SOON_S)


@pytest.mark.parametrize(("name", "times"), [("kill-emulated", 2), ("failover-emulated", 2)])
def test_no_connection_breaks_and_no_rule_is_flushed(name: str, times: int) -> None:
    fault = FAULTS[name]
    if reason := fault.missing():
        pytest.skip(reason)
    outcome = fault.run(times, 7)
    assert outcome.is_good, outcome
    assert outcome.acknowledged
    assert (outcome.plans, len(outcome.recovery_s)) == (1, times)
    assert outcome.counts["connections"] == 2 * emulated.lab.CONNECTIONS


def test_rules_that_are_flushed_at_a_kill_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = EmulatedController.kill

    def kill(controller: EmulatedController) -> None:
        killed(controller)
        controller.run.execute("ovs-ofctl", "-O", "OpenFlow13", "del-flows", SWITCH, "table=1")

    monkeypatch.setattr(EmulatedController, "kill", kill)
    outcome = FAULTS["kill-emulated"].run(1, 7)
    assert outcome.counts["rules lost or added anew"] > 0
    assert outcome.counts["connections broken"] == 0
    assert not outcome.is_good
