"""Caps on hosts: real TCP traffic keeps to them, they are read back, and none outlives its plan."""

import subprocess
import time

import pytest

from beamer.network.protocol import Assignment
from hostagent.queues.tree import cap_ids
from tests.netns.bench import PORT, Bench, eventually, local_worker
from tests.support.tiers import long

pytestmark = pytest.mark.netns

JOB = "s/t/j"
MINOR = f"1:{cap_ids([JOB])[JOB] & 0xFFFF:x}"
TOLERANCE = 0.05
WINDOWS = 3
BUSY_S = 4.0
MAX_BITS = 8 * 2**16  # of what leaves the queue at once: the kernel segments it below
PACKETS = 40  # of that size: one more or less is half of the tolerance
SETTLE_S = 1.0  # until TCP has found its rate


def capped(bench: Bench, generation: int, worker: "subprocess.Popen[str]", cap_bps: int | None, klass: int = 0) -> Assignment:
    more = {} if cap_bps is None else {"cap_bps": cap_bps}
    return bench.assign(generation, local_worker(worker, JOB, klass, **more))


def rate_bps(bench: Bench, busy_s: float) -> tuple[float, float]:
    """Return the least and the most that may leave the host: a reading is as of some moment while `tc` runs."""
    time.sleep(SETTLE_S)
    times = [time.monotonic()]
    before = bench.classes()["1:1"]
    times.append(time.monotonic())
    time.sleep(busy_s)
    times.append(time.monotonic())
    bits = 8 * (bench.classes()["1:1"] - before)
    times.append(time.monotonic())
    return bits / (times[3] - times[0]), bits / (times[2] - times[1])


def keeps_to(bench: Bench, expected_bps: int) -> None:
    """Check that traffic never exceeds a rate, and comes to it in one of a few windows: a busy machine may stop the sender.

    What was sent before the job had its mark waits in another class, and leaves beside what is capped.
    """
    if MINOR in bench.classes():
        eventually(lambda: {minor for minor, packets in bench.waiting().items() if packets} == {MINOR})
    for _ in range(WINDOWS):
        least, most = rate_bps(bench, max(BUSY_S, PACKETS * MAX_BITS / expected_bps))
        assert least <= expected_bps * (1 + TOLERANCE)
        if most >= expected_bps * (1 - TOLERANCE):
            return
    pytest.fail(f"at most {most:.0f} bit/s instead of {expected_bps}")


@pytest.mark.parametrize("cap_bps", [5_000_000, 15_000_000, *long(1_000_000)])
def test_a_capped_job_keeps_to_its_rate(bench: Bench, cap_bps: int) -> None:
    bench.agent()
    worker, _ = bench.worker("busy", "10.77.0.2")
    bench.controller.applied(capped(bench, 1, worker, cap_bps))
    bench.marked()
    keeps_to(bench, cap_bps)


def test_a_cap_follows_the_plan_and_is_gone_with_it(bench: Bench) -> None:
    bench.agent()
    worker, _ = bench.worker("busy", "10.77.0.2")
    bench.controller.applied(capped(bench, 1, worker, 8_000_000, klass=2))
    bench.marked()
    for generation, cap_bps in ((2, 3_000_000), (3, 6_000_000)):
        assert bench.controller.applied(capped(bench, generation, worker, cap_bps, klass=2)).changes == 1, "the class alone"
        keeps_to(bench, cap_bps)
    bench.controller.applied(capped(bench, 4, worker, None, klass=2))
    assert MINOR not in bench.classes()
    keeps_to(bench, PORT.rate_bps)

    bench.controller.applied(capped(bench, 5, worker, 3_000_000, klass=2))
    assert MINOR in bench.classes()
    bench.controller.applied(bench.assign(6))  # the job has ended, as far as the plan is concerned
    assert MINOR not in bench.classes()
    keeps_to(bench, PORT.rate_bps)


def test_a_cap_that_somebody_changed_is_repaired(bench: Bench) -> None:
    bench.agent()
    worker, _ = bench.worker("busy", "10.77.0.2")
    bench.controller.applied(capped(bench, 1, worker, 3_000_000))
    bench.marked()
    more = ["parent", "1:1", "classid", MINOR, "htb", "rate", "20kbit", "ceil", "9mbit"]
    bench.here.run("tc", "class", "change", "dev", "data", *more)
    eventually(lambda: "ceil 3Mbit" in bench.here.run("tc", "class", "show", "dev", "data", "classid", MINOR))


def test_a_cap_does_not_outlive_the_lease_of_a_controller_that_has_fallen_silent(bench: Bench) -> None:
    bench.agent(expiry_s=2)
    worker, _ = bench.worker("busy", "10.77.0.2")
    bench.controller.applied(capped(bench, 1, worker, 2_000_000))
    bench.marked()
    assert MINOR in bench.classes()
    bench.controller.stop()
    eventually(lambda: not bench.classes())


def test_a_cap_does_not_outlive_an_agent_that_is_killed(bench: Bench) -> None:
    agent = bench.agent(expiry_s=2)
    worker, _ = bench.worker("busy", "10.77.0.2")
    bench.controller.applied(capped(bench, 1, worker, 2_000_000))
    bench.marked()
    agent.kill()
    agent.wait()
    eventually(lambda: not bench.classes())


def test_a_plan_that_changes_while_the_agent_is_away_takes_the_cap_off_when_it_is_back(bench: Bench) -> None:
    agent = bench.agent()
    worker, _ = bench.worker("busy", "10.77.0.2")
    bench.controller.applied(capped(bench, 1, worker, 2_000_000))
    bench.marked()
    agent.kill()
    agent.wait()
    assert MINOR in bench.classes(), "it stays while the agent may come back"
    bench.controller.assign(capped(bench, 2, worker, None))
    bench.agent()
    eventually(lambda: MINOR not in bench.classes())
