"""The compatibility mode: each of CoflowSim's definitions by hand, and its figures on the trace that it is known for."""

from itertools import islice

import numpy as np
import pytest

from beamer.sim.traces import Coflow, Trace, read
from tests.compat.coflowsim import EPOCH_MS, KEYS, MIB, POLICIES, STEP_MS, completion_times_ms, java_random
from tests.support.inputs import FACEBOOK_TRACE, given
from tests.support.tiers import few

Flow = tuple[int, int, float]  # source, destination, MB


def coflow(name: str, *flows: Flow, release_ms: float = 0.0) -> Coflow:
    src, dst, megabytes = zip(*flows, strict=True)
    return Coflow(name, release_ms / 1000, np.array(src), np.array(dst), np.array(megabytes) * MIB)


def steps(policy: str, *coflows: Coflow) -> list[float]:
    """Return the coflows' completion times in steps, in which a port carries 1 MiB."""
    return list(completion_times_ms(Trace(5, coflows), policy) / STEP_MS)


@pytest.mark.parametrize("policy", few(POLICIES, KEYS))
def test_a_reducers_sizes_are_rounded_up_to_whole_mib_and_its_flows_to_one(policy: str) -> None:
    assert steps(policy, coflow("a", (0, 0, 2.25))) == [3]
    assert steps(policy, coflow("a", (0, 0, 1.25), (1, 0, 1.25))) == [3]
    assert steps(policy, coflow("a", (0, 0, 0.25), (1, 0, 0.25), (2, 0, 0.25), (3, 0, 0.25))) == [4]


@pytest.mark.parametrize("policy", POLICIES)
def test_thirds_of_a_size_are_no_more_than_the_size(policy: str) -> None:
    assert steps(policy, coflow("a", (0, 0, 5 / 3), (1, 0, 5 / 3), (2, 0, 5 / 3))) == [5]


def test_coflows_start_with_the_epoch_in_which_they_arrive() -> None:
    first = coflow("first", (0, 0, 2000))
    at_its_end = coflow("second", (0, 1, 1), release_ms=EPOCH_MS)
    after_it = coflow("second", (0, 1, 1), release_ms=EPOCH_MS + 1)
    assert steps("fifo", first, at_its_end) == [2000, 2001]
    assert steps("fifo", first, after_it) == [2000, 2001 - EPOCH_MS / STEP_MS]


def test_a_coflow_ends_with_a_step() -> None:
    assert steps("fair", coflow("a", (0, 0, 1)), coflow("b", (1, 0, 1)), coflow("c", (1, 1, 2))) == [2, 2, 3]
    assert steps("fair", *(coflow(str(i), (i, 0, 2)) for i in range(3)), coflow("d", (3, 0, 1))) == [7, 7, 7, 4]


def test_fair_gives_a_flow_its_share_of_its_fuller_port_and_nobody_the_rest() -> None:
    coflows = [coflow("a", (0, 0, 2)), coflow("b", (0, 1, 2)), coflow("c", (1, 1, 2)), coflow("d", (2, 1, 2))]
    assert steps("fair", *coflows) == [4, 6, 6, 6]  # max-min: 3, 6, 6, 6


@pytest.mark.parametrize("seed", range(5))
def test_fair_equals_a_plain_loop_over_steps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    coflows = []
    for i in range(25):
        src, dst = rng.integers(0, 5, (2, rng.integers(1, 6))).tolist()
        fetched = rng.integers(1, 200, 5).tolist()  # by each reducer from each of its mappers
        flows = [(s, d, fetched[d]) for s, d in zip(src, dst, strict=True)]
        coflows.append(coflow(str(i), *flows, release_ms=float(rng.integers(0, 4 * EPOCH_MS))))
    start = np.array([max(-(-round(c.release_s * 1000) // EPOCH_MS) - 1, 0) * EPOCH_MS // STEP_MS for c in coflows])
    of = np.concatenate([np.full(c.src.size, i) for i, c in enumerate(coflows)])
    src, dst = np.concatenate([c.src for c in coflows]), np.concatenate([c.dst for c in coflows])
    left = np.concatenate([c.size_bytes for c in coflows]) / MIB
    end, now = np.zeros(25), 0
    while (left > 0).any():
        on = (left > 0) & (start[of] <= now)
        fullest = np.maximum(np.bincount(src[on], minlength=5)[src], np.bincount(dst[on], minlength=5)[dst])
        left[on] -= 1 / fullest[on]
        left[left < 1e-9] = 0.0
        now += 1
        end[of[on]] = now
    assert steps("fair", *coflows) == list(end - start)


def test_skipped_coflows_share_and_rates_wait_for_the_next_event() -> None:
    first = coflow("first", (0, 0, 4))
    second = coflow("second", (0, 1, 4), (1, 2, 1))
    third = coflow("third", (0, 3, 4), (1, 4, 12))
    # Until 4 the second and third have half of uplink 1 each, from 2 on a half idle; until 8 the third has all of it. Then it
    # misses 6 MiB there. Were rates set anew at 2, it would end at 13.
    assert steps("fifo", first, second, third) == [4, 8, 14]


def test_skipped_coflows_share_by_the_flows_that_can_be_sent() -> None:
    first = coflow("first", (0, 0, 12))
    second = coflow("second", (0, 1, 10), (0, 1, 10), (1, 1, 10))
    third = coflow("third", (0, 3, 1), (1, 2, 10))
    # Uplink 0 is full: of downlink 1's flows one counts, so the second and third halve uplink 1 until 12. Then the second
    # misses 24 MiB on downlink 1 and leaves a sixth of uplink 0. Were all three counted: 38 and 17.
    assert steps("fifo", first, second, third) == [12, 36, 18]


def test_what_is_left_goes_to_the_earliest_deadline() -> None:
    long = coflow("long", (2, 2, 4000), (1, 1, 1000))
    short = coflow("short", (0, 0, 1280), (1, 1, 320))
    later = coflow("later", (1, 4, 30), release_ms=EPOCH_MS + 1)
    # Both have a quarter of uplink 1; the short one, due before 2 500, takes the other half, not the long one, due after 3 900.
    # So the long one still needs a quarter when the later one comes: three quarters for 30 MiB. By arrival it would end in 31.
    assert steps("fifo", long, short, later) == [4000, 1280, 40]


def test_every_policy_has_its_own_order() -> None:
    mixed = coflow("mixed", (0, 3, 2), (2, 3, 2))
    wide = coflow("wide", (0, 0, 1), (1, 0, 1), (0, 1, 1), (1, 1, 1))
    long = coflow("long", (0, 2, 3))
    assert steps("fifo", mixed, wide, long) == [4, 4, 7]
    assert steps("scf", mixed, wide, long) == [4, 2, 7]
    assert steps("sebf", mixed, wide, long) == [7, 2, 5]
    assert steps("ncf", mixed, wide, long) == [4, 7, 5]
    assert steps("lcf", mixed, wide, long) == [5, 7, 3]


def test_lightest_means_what_remains_and_a_bottleneck_is_that_at_arrival() -> None:
    old, new = coflow("old", (0, 0, 2000)), coflow("new", (0, 1, 800), release_ms=EPOCH_MS + 1)
    assert steps("lcf", old, new) == [2000, 2800 - 1280]  # 720 MiB of the old one remain
    assert steps("sebf", old, new) == [2800, 800]


def test_aalo_splits_evenly_whatever_the_sizes() -> None:
    assert steps("aalo", coflow("a", (0, 0, 1), (0, 1, 3))) == [6]  # MADD: 4


def test_aalo_puts_behind_who_has_sent_more_by_queues() -> None:
    old = coflow("old", (0, 0, 3000))
    assert steps("aalo", old, coflow("new", (0, 1, 5), release_ms=EPOCH_MS + 1)) == [3005, 5]
    # By the third arrival the middle one has sent as much as the old one: it passes three queues at once to get behind it.
    middle = coflow("middle", (0, 1, 3000), release_ms=EPOCH_MS + 1)
    last = coflow("last", (0, 2, 5), release_ms=2 * EPOCH_MS + 1)
    assert steps("aalo", old, middle, last) == [4285, 6005 - 1280, 5]


def test_random_numbers_are_those_of_java() -> None:
    assert list(islice(java_random(42), 2)) == [0.7275636800328681, 0.6832234717598454]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return read(given(FACEBOOK_TRACE), "coflow-benchmark")


@pytest.mark.parametrize(
    ("policy", "mean_ms"),
    [
        ("fair", 70_592.8),
        ("sebf", 27_635.4),
        ("fifo", 87_614.7),
        ("scf", 27_853.8),
        ("ncf", 40_910.0),
        ("lcf", 30_638.5),
        ("aalo", 46_097.7),
    ],
)
def test_the_trace_gives_coflowsims_figures(trace: Trace, policy: str, mean_ms: float) -> None:
    assert completion_times_ms(trace, policy).mean() == pytest.approx(mean_ms, rel=1e-3)
