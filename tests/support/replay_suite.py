"""Checks of trace replays under any policy and allocator that go together; run each of `REPLAY_CHECKS`."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from beamer.network.allocation import Allocator
from beamer.network.allocation.base import Arrangement, Mode
from beamer.network.arrays import Floats, Ints
from beamer.network.fluid.network import FluidNetwork
from beamer.network.policies import NetworkPolicy
from beamer.network.snapshot import RunningStudy, Snapshot
from beamer.sim.replay import big_switch, replay
from beamer.sim.traces import Trace
from tests.support.bounded import Bounded
from tests.support.loads import next_s, world
from tests.support.long_runs import RUNS
from tests.support.strategies import traces, traces_without_ties

ReplayCheck = Callable[[NetworkPolicy[Any], Allocator], None]

CAPACITY_TOLERANCE = 1e-9
FULL = 1 - 1e-6


@dataclass
class Audit:
    """Observations of a replay, stepped from event to event.

    most_used: of any link at any time, as a share of its capacity. least_rate: bit/s. idle: the flow and time of every case in
    which a flow could have gone faster though the allocator promises otherwise. moved_bits: by flow, rates added up over time.
    carried_bits: by link, as the network has it. completion_s: by coflow.
    """

    most_used: float
    least_rate: float
    idle: list[tuple[int, float]]
    moved_bits: Floats
    carried_bits: Floats
    completion_s: Floats


def audit(trace: Trace, rate_bps: float, policy: NetworkPolicy[Any], allocator: Allocator) -> Audit:
    """Replay `trace` as `beamer.sim.replay` has to, once it is known which coflows are in flight, and observe every event."""
    block, columns = big_switch(trace, rate_bps)
    capacity = np.full(2 * trace.ports, rate_bps)
    network = FluidNetwork(capacity, allocator)
    network.add(block)
    seen = Audit(0.0, math.inf, [], np.zeros(len(block.size)), np.zeros(0), np.full(len(columns.key), math.nan))
    rates = np.zeros(len(block.size))
    links = block.hop_link.reshape(-1, 2)
    to_come = np.argsort(columns.started_s, kind="stable").tolist()[::-1]
    running: list[int] = []
    state, rng = policy.initial(), Random(0)
    wake_s = math.inf
    fresh = decided = False  # whether rates are those of now, and whether coflows have just changed
    while to_come or running:
        ahead = min(columns.started_s[to_come[-1]] if to_come else math.inf, wake_s, next_s(network))
        before = network.now_s
        happened = network.run(ahead if fresh else before, by_coflow=True)
        now = network.now_s
        seen.moved_bits += rates * (now - before)
        for kind, job in happened:
            if kind.name == "FINISHED":
                seen.completion_s[job] = now
                running.remove(job)
        arriving = []
        while to_come and columns.started_s[to_come[-1]] <= now:
            arriving.append(to_come.pop())
        network.start(arriving)
        running += arriving
        if arriving:  # The policy sees the release of these coflows, which comes next.
            network.arrange(Arrangement(np.array(running, np.int64), np.zeros(len(running), np.int64)))
            fresh, rates = False, np.zeros(len(block.size))
        elif happened or now >= wake_s:
            members = np.array(running, np.int64)
            jobs = columns.take(members)
            snapshot = Snapshot(
                capacity, tuple(RunningStudy(key, 1.0) for key in jobs.key), jobs.key, np.ones(len(members)),
                jobs.started_s, jobs, np.ones(len(members), np.int64), np.full(len(members), -1),
                network.coflows(members, jobs),
            )  # fmt: skip
            state, order, wake_at = policy.order(state, snapshot, now, rng)
            wake_s = math.inf if wake_at is None or wake_at <= now else wake_at
            arrangement = allocator.arrange(order, snapshot)
            network.arrange(Arrangement(members[arrangement.order], arrangement.group))
            fresh, decided = False, decided or bool(happened)
            rates = np.zeros(len(block.size))  # no time passes until they are known
        else:
            fresh, rates = True, network.rates()
            _observe(seen, network, rates, links, decided or allocator.mode in (Mode.GREEDY, Mode.SHARING))
            decided = False
    seen.carried_bits = network.carried_bits()
    return seen


def _observe(seen: Audit, network: FluidNetwork, rates: Floats, links: Ints, promised: bool) -> None:
    moving = world(network).flows["active"]
    capacity = world(network).links["capacity"]
    if not moving.any():
        return
    taken = np.bincount(links[moving].ravel(), np.repeat(rates[moving], 2), len(capacity)) / capacity
    seen.most_used = max(seen.most_used, float(taken.max()))
    seen.least_rate = min(seen.least_rate, float(rates[moving].min()))
    spare = moving & (taken[links].max(axis=1) < FULL)
    if promised:
        seen.idle += [(f, network.now_s) for f in np.flatnonzero(spare).tolist()]


def keeps_its_promises(policy: NetworkPolicy[Any], allocator: Allocator) -> None:
    """At every event no rate is negative, no link is overloaded, and no flow has spare capacity on its whole path.

    The last is checked when rates are worked out: for `MADD` when a coflow starts or ends, for `SPLIT` never. Over time, rates
    add up to the size of every flow, and flows to what links have carried.
    """

    @RUNS
    @given(traces())
    def check(drawn: tuple[Trace, float]) -> None:
        trace, rate_bps = drawn
        seen = audit(trace, rate_bps, Bounded(policy), allocator)
        assert seen.least_rate >= 0
        assert seen.most_used <= 1 + CAPACITY_TOLERANCE
        assert allocator.mode is Mode.SPLIT or not seen.idle
        block, _ = big_switch(trace, rate_bps)
        rounding = 1e-12 * rate_bps * float(np.max(seen.completion_s, initial=0.0))
        assert np.allclose(seen.moved_bits, block.size, rtol=1e-6, atol=rounding)
        by_link = np.bincount(block.hop_link, np.repeat(block.size, 2), 2 * trace.ports)
        assert np.allclose(seen.carried_bits, by_link, rtol=1e-6, atol=rounding)

    check()


def completes_every_coflow(policy: NetworkPolicy[Any], allocator: Allocator) -> None:
    """Every coflow is complete no earlier than with the switch to itself; reading its state in between changes nothing."""

    @RUNS
    @given(traces())
    def check(drawn: tuple[Trace, float]) -> None:
        trace, rate_bps = drawn
        done = replay(trace, rate_bps, Bounded(policy), allocator)
        _, columns = big_switch(trace, rate_bps)
        assert (done.cct_s >= columns.iteration_s * (1 - 1e-6) - 1e-9).all()
        seen = audit(trace, rate_bps, Bounded(policy), allocator)
        assert np.allclose(seen.completion_s, done.completion_s, rtol=1e-9, atol=1e-9)

    check()


def repeats_itself(policy: NetworkPolicy[Any], allocator: Allocator) -> None:
    """Equal traces have exactly equal completion times, whatever their coflows are called."""

    @RUNS
    @given(traces())
    def check(drawn: tuple[Trace, float]) -> None:
        trace, rate_bps = drawn
        first = replay(trace, rate_bps, Bounded(policy), allocator).completion_s
        assert (replay(trace, rate_bps, Bounded(policy), allocator).completion_s == first).all()
        renamed = Trace(trace.ports, tuple(replace(c, id=f"z{9 - i}") for i, c in enumerate(trace.coflows)))
        assert (replay(renamed, rate_bps, Bounded(policy), allocator).completion_s == first).all()

    check()


def ignores_positions(policy: NetworkPolicy[Any], allocator: Allocator) -> None:
    """Where there are no ties, the order in which a trace lists its coflows changes no completion time."""

    @RUNS
    @given(traces_without_ties(), st.randoms(use_true_random=False))
    def check(drawn: tuple[Trace, float], rng: Random) -> None:
        trace, rate_bps = drawn
        positions = list(range(len(trace.coflows)))
        rng.shuffle(positions)
        shuffled = Trace(trace.ports, tuple(trace.coflows[i] for i in positions))
        expected = replay(trace, rate_bps, Bounded(policy), allocator).completion_s
        assert np.allclose(replay(shuffled, rate_bps, Bounded(policy), allocator).completion_s, expected[positions], rtol=1e-6)

    check()


REPLAY_CHECKS: tuple[ReplayCheck, ...] = (keeps_its_promises, completes_every_coflow, repeats_itself, ignores_positions)
