"""Controllers that are killed while Open vSwitch forwards: connections, rules and queues stay, and what does not is found."""

from itertools import count

import pytest

from eval.faults import emulated
from eval.faults.base import FaultOutcome
from eval.faults.catalogue import FAULTS
from eval.faults.lab import CONNECTIONS, SWITCH, EmulatedController
from tests.support.tiers import long

pytestmark = [pytest.mark.emulation, pytest.mark.alone]

EACH_TIME = pytest.mark.parametrize("times", [1, *long(2)])


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "UNUSED_S", 2.5)  # after which a rule without traffic that nobody wants is gone


def outcome_of(name: str, times: int, plans: int = 1) -> FaultOutcome:
    fault = FAULTS[name]
    if reason := fault.missing():
        pytest.skip(reason)
    outcome = fault.run(times, 7)
    assert outcome.acknowledged
    assert (outcome.lost, outcome.plans, outcome.differing_plans, len(outcome.recovery_s)) == (0, plans, 0, times), outcome
    assert outcome.counts["connections"] == CONNECTIONS * len(emulated.PAIRS)
    return outcome


@EACH_TIME
def test_a_fail_over_breaks_no_connection_and_flushes_no_rule(times: int) -> None:
    outcome = outcome_of("failover-emulated", times)
    assert outcome.is_good, outcome


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_upgrade_and_then_its_way_back_put_not_a_byte_out_of_its_class() -> None:
    times = 2
    outcome = outcome_of("upgrade-emulated", times, plans=times)
    assert outcome.is_good, outcome
    assert outcome.counts["bytes in other classes"] == 0
    assert outcome.counts["bytes in the connections' classes"] > 1_000_000
    assert outcome.counts["programs replaced"] == times * (2 + 5)


@pytest.mark.long
@EACH_TIME
def test_a_link_that_goes_away_breaks_no_connection_and_changes_nothing(times: int) -> None:
    outcome = outcome_of("link-gone", times, plans=times)
    assert outcome.is_good, outcome
    assert outcome.counts["longest pause of one in ms"] > 0


@pytest.mark.long
def test_what_is_flushed_at_a_kill_is_found_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    times = 2
    killed, kills = EmulatedController.kill, count(1)

    def kill(controller: EmulatedController) -> None:
        killed(controller)
        if next(kills) == times:
            controller.run.execute("ovs-ofctl", "-O", "OpenFlow13", "del-flows", SWITCH, "table=1")

    monkeypatch.setattr(EmulatedController, "kill", kill)
    outcome = outcome_of("kill-emulated", times)
    # Without rules nothing is forwarded: connections may stand still until the next controller has added them.
    lost = [failure for failure in outcome.failures if failure != "a connection stood still"]
    assert outcome.counts["rules lost or added anew"] == len(lost) > 0
    assert all("table=1" in failure for failure in lost), outcome
