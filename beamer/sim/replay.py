"""Replays a trace of coflows on a big switch: the policies and the network are those of scenarios, each coflow a job."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from beamer.compilation import Stopwatch
from beamer.decision.core import DecisionCore
from beamer.errors import InputError
from beamer.network.allocation import Allocator, check_pair, is_asked
from beamer.network.allocation.base import Arrangement
from beamer.network.arrays import Floats, Ints
from beamer.network.decide import check_order
from beamer.network.fluid.flows import Block
from beamer.network.fluid.network import FluidEvent, FluidNetwork
from beamer.network.policy import NetworkPolicy, Order
from beamer.network.snapshot import JobColumns, RunningStudy, Snapshot
from beamer.sim.traces import Trace

# Coflows that no decision has placed yet are in this group, after any group of a policy, of which there are fewer.
LAST_GROUP = 1 << 30


@dataclass(frozen=True, eq=False)
class Replay:
    """When each coflow of a trace was complete under a policy. Times in seconds, by position in the trace.

    wall_s: how long the replay took, without compiling. decisions: how many the policy made, 0 if it is not asked.
    """

    policy: str
    allocator: str
    id: tuple[str, ...]
    release_s: Floats
    completion_s: Floats
    wall_s: float
    decisions: int

    @property
    def cct_s(self) -> Floats:
        """Coflow completion times."""
        return self.completion_s - self.release_s

    @property
    def mean_cct_s(self) -> float:
        """Mean coflow completion time."""
        return float(np.mean(self.cct_s)) if len(self.id) else 0.0

    def quantile_cct_s(self, share: float) -> float:
        """Return a quantile of the coflow completion times, `share` in [0, 1]."""
        return float(np.quantile(self.cct_s, share)) if len(self.id) else 0.0


def replay(
    trace: Trace, rate_bps: float, policy: NetworkPolicy[Any], allocator: Allocator, rng: Random | None = None
) -> Replay:
    """Run the coflows of `trace` on a switch whose ports carry `rate_bps` each way.

    Raises `InputError` if the allocator cannot carry out what the policy orders.
    """
    check_pair(policy, allocator)
    if not 0 < rate_bps < math.inf:
        raise InputError("rate", rate_bps, "a rate above 0 bit/s")
    watch = Stopwatch()
    capacity = np.full(2 * trace.ports, float(rate_bps))
    network = FluidNetwork(capacity, allocator)
    block, columns = big_switch(trace, rate_bps)
    network.add(block)
    release = columns.started_s
    completion = np.full(len(release), math.nan)
    studies = [RunningStudy(key, 1.0) for key in columns.key]
    to_come = np.argsort(release, kind="stable").tolist()[::-1]
    running: list[int] = []
    random = rng or Random(0)
    core: DecisionCore[Any, Snapshot, Order] = DecisionCore(
        policy, policy.order, check_order, None, lambda generation: random, live=False
    )
    asked = is_asked(policy, allocator)
    order: Order = ()
    wake_s = math.inf
    decisions = 0
    while to_come or running:
        until = release[to_come[-1]] if to_come else math.inf
        ended = _ended(network.run(min(until, wake_s), by_coflow=False))
        now = network.now_s
        completion[ended] = now
        running = [job for job in running if job not in ended]
        arriving = []
        while to_come and release[to_come[-1]] <= now:
            arriving.append(to_come.pop())
        if arriving:  # Arriving coflows are released after all others first, so that the policy sees them in flight.
            running += arriving
            network.start(arriving)
            network.arrange(_with_arrivals_last(network.arrangement, running, allocator))
            empty = _ended(network.run(now, by_coflow=True))
            completion[empty] = now
            running = [job for job in running if job not in empty]
        if not asked or not (ended or arriving or now >= wake_s):
            continue
        members = np.array(running, np.int64)
        jobs = columns.take(members)
        snapshot = Snapshot(
            capacity_bps=capacity,
            studies=tuple(studies[i] for i in running),
            stages=jobs.key,
            stage_weight=np.ones(len(members)),
            since_s=jobs.started_s,
            jobs=jobs,
            remaining=np.ones(len(members), np.int64),
            klass=np.full(len(members), -1),
            coflows=network.coflows(members, jobs),
        )
        proposal = core.propose(lambda: snapshot, order, now, decisions)  # noqa: B023  # The function is called at once.
        core.adopt(proposal)
        order = proposal.content
        decisions += 1
        wake_s = math.inf if proposal.wake_s is None or proposal.wake_s <= now else proposal.wake_s
        arrangement = allocator.arrange(order, snapshot)
        network.arrange(Arrangement(members[arrangement.order], arrangement.group))
    return Replay(policy.name, allocator.name, columns.key, release, completion, watch.elapsed_s, decisions)


def _ended(happened: Sequence[tuple[FluidEvent, int]]) -> list[int]:
    return [job for kind, job in happened if kind is FluidEvent.FINISHED]


def _with_arrivals_last(now: Arrangement, running: Sequence[int], allocator: Allocator) -> Arrangement:
    """Return the arrangement of the running jobs in which those that `now` does not hold come last."""
    group = dict(zip(now.order.tolist(), now.group.tolist(), strict=True))
    last = max(group.values(), default=0) if allocator.minimum_share or not allocator.heeds_order else LAST_GROUP
    still_running = set(running)
    order = [job for job in now.order.tolist() if job in still_running] + [job for job in running if job not in group]
    return Arrangement(np.array(order, np.int64), np.array([group.get(job, last) for job in order], np.int64))


def big_switch(trace: Trace, rate_bps: float) -> tuple[Block, JobColumns]:
    """Return the coflows of a trace as jobs: port p's uplink is link p, its downlink link `ports` + p."""
    ports = trace.ports
    count = len(trace.coflows)
    flows = np.array([len(c.src) for c in trace.coflows], np.int64)
    src = _joined([c.src for c in trace.coflows])
    dst = _joined([c.dst for c in trace.coflows])
    size = 8 * np.concatenate([np.zeros(0), *(c.size_bytes for c in trace.coflows)])
    owner = np.repeat(np.arange(count), flows)
    hop_link = np.stack((src, ports + dst), axis=1).ravel()
    pair, hop_load = np.unique(np.repeat(owner, 2) * (2 * ports) + hop_link, return_inverse=True)
    sends = pair % (2 * ports) < ports
    senders, receivers = (np.bincount(pair[side] // (2 * ports), minlength=count) for side in (sends, ~sends))
    seconds = np.bincount(hop_load, np.repeat(size, 2), len(pair)) / rate_bps
    loaded = seconds > 0
    hop_load = np.where(loaded, np.cumsum(loaded) - 1, -1)[hop_load]
    pair, seconds = pair[loaded], seconds[loaded]
    first = _first(np.bincount(pair // (2 * ports), minlength=count))
    gamma = np.zeros(count)
    np.maximum.at(gamma, pair // (2 * ports), seconds)
    longest = np.zeros(count)
    np.maximum.at(longest, owner, size)
    block = Block(
        hop_first=2 * np.arange(len(size) + 1),
        hop_link=hop_link,
        hop_use=np.ones(2 * len(size)),
        path=src * ports + dst,
        size=size,
        flow_job=owner,
        phase_first=_first(flows),
        job_phase=np.arange(count + 1),
        iterations=np.ones(count, np.int64),
        compute=np.zeros(count),
        overlap=np.zeros(count),
        load_first=first,
        hop_load=hop_load,
    )
    columns = JobColumns(
        key=tuple(c.id for c in trace.coflows),
        stage=np.arange(count),
        study=np.arange(count),
        started_s=np.array([c.release_s for c in trace.coflows], np.float64),
        compute_s=np.zeros(count),
        overlap=np.zeros(count),
        iteration_s=gamma,
        size_bits=np.bincount(owner, size, count).astype(np.float64),
        longest_bits=longest,
        senders=senders,
        receivers=receivers,
        sender_bps=np.full(count, float(rate_bps)),
        first=first,
        link=pair % (2 * ports),
        seconds=seconds,
    )
    return block, columns


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)


def _first(widths: Ints) -> Ints:
    return np.concatenate(([0], np.cumsum(widths))).astype(np.int64)
