"""Replays of traces small enough to work out by hand."""

import math

import numpy as np
import pytest

from beamer.errors import InputError
from beamer.network.allocation import ALLOCATORS, Allocator, Classes, EqualSplit, Greedy, Madd, MaxMin, allocator, check_pair
from beamer.network.policies import NETWORK_POLICIES, network_policy
from beamer.sim.replay import replay
from beamer.sim.traces import Coflow, Trace
from tests.support.bounded import Bounded

RATE_BPS = 8.0  # one byte a second


def coflow(name: str, release_s: float, *flows: tuple[int, int, float]) -> Coflow:
    src, dst, size = zip(*flows, strict=True) if flows else ((), (), ())
    return Coflow(name, release_s, np.array(src, np.int64), np.array(dst, np.int64), np.array(size, np.float64))


def completions(policy: str, chosen: Allocator, *coflows: Coflow, rate_bps: float = RATE_BPS) -> list[float]:
    done: list[float] = replay(Trace(3, coflows), rate_bps, Bounded(network_policy(policy)), chosen).completion_s.tolist()
    return done


SIZED = ("scf", "lcf", "sebf", "sincronia-event")


@pytest.mark.parametrize("policy", SIZED)
def test_a_small_coflow_passes_a_large_one_as_soon_as_it_arrives(policy: str) -> None:
    large, small = coflow("large", 0.0, (0, 1, 10.0)), coflow("small", 1.0, (0, 1, 2.0))
    assert completions(policy, Greedy(), large, small) == pytest.approx([12.0, 3.0])


@pytest.mark.parametrize("policy", SIZED)
def test_a_large_coflow_that_arrives_later_waits(policy: str) -> None:
    assert completions(policy, Greedy(), coflow("a", 0.0, (0, 1, 4.0)), coflow("b", 1.0, (0, 1, 10.0))) == pytest.approx(
        [4, 14]
    )


def test_aalo_moves_a_coflow_down_once_it_has_sent_ten_megabytes() -> None:
    mb = float(2**20)
    trace = coflow("first", 0.0, (0, 1, 100 * mb)), coflow("second", 0.0, (0, 1, 5 * mb))
    first, second = completions("aalo", Greedy(), *trace, rate_bps=8 * mb)
    assert second == pytest.approx(15.0, abs=0.2)
    assert first == pytest.approx(105.0)


def test_a_coflow_that_has_become_heavy_shares_with_the_next_one_under_fifo_lm() -> None:
    trace = coflow("first", 0.0, (0, 1, 100.0)), coflow("second", 0.0, (0, 1, 10.0))
    assert completions("fifo", Classes(queues=None), *trace) == pytest.approx([100.0, 110.0])
    heavy_s = 82.0  # when it has sent more than the 80th percentile of 10 and 100 bytes
    first, second = completions("fifo-lm", Classes(queues=None), *trace)
    assert first == pytest.approx(110.0)
    assert heavy_s + 20.0 <= second < 0.97 * first, "decided now and then"


def test_fair_coflows_share() -> None:
    trace = coflow("a", 0.0, (0, 1, 3.0)), coflow("b", 0.0, (0, 1, 5.0), (2, 0, 1.0)), coflow("nothing", 2.0)
    assert completions("fair", MaxMin(), *trace) == pytest.approx([6.0, 8.0, 2.0])
    assert completions("fair", EqualSplit(), *trace) == pytest.approx([6.0, 8.0, 2.0])
    assert completions("fair", Classes(), *trace) == pytest.approx([6.0, 8.0, 2.0])


def test_flows_of_a_coflow_end_together_under_madd() -> None:
    trace = coflow("a", 0.0, (0, 1, 4.0), (0, 2, 2.0)), coflow("b", 0.0, (1, 2, 4.0))
    assert completions("fifo", Madd(), *trace) == pytest.approx([6.0, 6.0])
    assert completions("fifo", Greedy(), *trace) == pytest.approx([6.0, 4.0])


@pytest.mark.parametrize("policy", [name for name, policy in NETWORK_POLICIES.items() if not policy.needs_coflows])
def test_flows_without_bytes_are_in_nobodys_way(policy: str) -> None:
    trace = coflow("a", 0.0, (0, 1, 4.0), (2, 0, 0.0)), coflow("b", 0.0, (1, 2, 3.0)), coflow("c", 1.0, (2, 2, 0.0))
    assert completions(policy, Classes(), *trace) == pytest.approx([4.0, 3.0, 1.0])


def test_an_empty_trace() -> None:
    done = replay(Trace(3, ()), RATE_BPS, network_policy("fair"), MaxMin())
    assert (done.mean_cct_s, done.quantile_cct_s(0.95), done.decisions) == (0.0, 0.0, 0)


@pytest.mark.parametrize("rate_bps", [0.0, -1.0, math.inf, math.nan])
def test_a_rate_that_no_port_has(rate_bps: float) -> None:
    with pytest.raises(InputError, match="rate: got"):
        replay(Trace(3, ()), rate_bps, network_policy("fair"), MaxMin())


@pytest.mark.parametrize("policy", NETWORK_POLICIES)
@pytest.mark.parametrize("chosen", ALLOCATORS)
def test_pairs_that_make_no_sense_are_refused(policy: str, chosen: str) -> None:
    kind, by = network_policy(policy), allocator(chosen)
    shown = by.sees_coflows or not kind.needs_coflows
    sensible = (by.heeds_order and not kind.shares) or (by.shares and kind.shares and (by.heeds_order or policy == "fair"))
    if shown and (sensible or (by.heeds_order and by.shares)):
        check_pair(kind, by)
        return
    with pytest.raises(InputError, match=f"expected .*({kind.name}|{by.name})|got '({kind.name}|{by.name})'"):
        replay(Trace(3, ()), RATE_BPS, kind, by)


@pytest.mark.parametrize("share", [-0.1, 1.5, math.nan])
@pytest.mark.parametrize("kind", [Classes, MaxMin])
def test_a_minimum_share_that_no_link_has(kind: type[Allocator], share: float) -> None:
    trace = coflow("a", 0.0, (0, 1, 4.0)), coflow("b", 0.0, (0, 1, 4.0))
    with pytest.raises(InputError, match="minimum_share"):
        completions("fair", kind(minimum_share=share), *trace)


@pytest.mark.parametrize("queues", [None, 8])
def test_minimum_shares_that_do_not_fit(queues: int | None) -> None:
    trace = [coflow(name, 0.0, (0, 1, 4.0)) for name in "abc"]
    with pytest.raises(InputError, match=r"minimum_share: got 0\.4"):
        completions("fifo", Classes(queues=queues, minimum_share=0.4), *trace)
