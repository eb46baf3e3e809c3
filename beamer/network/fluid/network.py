"""The simulated network and the jobs on it: array state for the kernels, and the few calls that a simulation needs."""

import math
from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from beamer.errors import InputError
from beamer.network.allocation.base import Allocator, Arrangement, Mode
from beamer.network.arrays import Floats, Ints, Records
from beamer.network.fluid.flows import Block
from beamer.network.kernels import fluid as kernels
from beamer.network.kernels.channels import BLOCK, NEVER, OUTDATED
from beamer.network.kernels.state import (
    CARRIER,
    CHANNEL,
    ENTRY,
    FILL,
    FLOW,
    GIVEN,
    GROUP,
    HEAP,
    HOP,
    JOB,
    LINK,
    MOTION,
    NOW,
    PHASE,
    PLACE,
    SEGMENT,
    TAKE,
    USER,
    Fill,
    World,
)
from beamer.network.snapshot import CoflowColumns, JobColumns

# The order inside a group does not matter in these modes, nor do jobs that have ended.
WITHOUT_ORDER = (Mode.SHARING, Mode.SPLIT)


class FluidEvent(IntEnum):
    """The events at which `FluidNetwork.run` stops: a coflow's release, its completion, the end of a job's last iteration."""

    RELEASED = kernels.RELEASED
    COMPLETE = kernels.COMPLETE
    FINISHED = kernels.FINISHED


class FluidNetwork:
    """Jobs that compute and synchronise on links of `capacity` bit/s, at the rates of an allocator.

    Jobs are numbered in the order in which they are added.
    """

    def __init__(self, capacity: Floats, allocator: Allocator) -> None:
        self._allocator = allocator
        self._order = np.zeros(0, np.int64)
        self._counted = np.zeros(0)  # bits of each flow that links have been credited with
        self._shared = len(capacity)  # Further links belong to one sender of a job each, and hold it to its cap.
        self._sender_first = np.zeros(1, np.int64)  # first of the senders' links, by job
        self._sender_rate = np.zeros(0)
        self._sender_most = np.zeros(0)
        links = np.zeros(len(capacity), LINK)
        links["capacity"] = capacity
        now = np.zeros(1, NOW)
        now["lists_ends"] = allocator.mode in WITHOUT_ORDER  # These allocators change many rates at once.
        self._world = _world(
            links,
            np.zeros(0, HOP),
            np.zeros(0, FLOW),
            np.zeros(0, MOTION),
            np.zeros(0, PHASE),
            np.zeros(0, JOB),
            np.zeros(0, CHANNEL),
            now,
            None,
        )

    @property
    def now_s(self) -> float:
        """The simulated time."""
        return float(self._world.now["s"][0])

    @property
    def remaining(self) -> Ints:
        """Iterations that each job has still to complete."""
        left: Ints = self._world.jobs["iterations"] - self._world.jobs["done"]
        return left

    def iteration_began_s(self, job: int) -> float:
        """Return when a running job began the iteration that it is in, or will begin its first one."""
        return float(self._world.jobs["began"][job])

    def add(self, block: Block) -> int:
        """Add jobs, which do not run yet; return the number of the first."""
        w = self._world
        hops = np.zeros(len(block.hop_link), HOP)
        hops["link"], hops["use"] = block.hop_link, block.hop_use
        pairs = int(w.jobs["load_end"][-1]) if len(w.jobs) else 0
        hops["load"] = np.where(block.hop_load >= 0, block.hop_load + pairs, -1)
        flows = np.zeros(len(block.size), FLOW)
        flows["hop_first"], flows["hop_end"] = block.hop_first[:-1] + len(w.hops), block.hop_first[1:] + len(w.hops)
        flows["moves"] = (block.size > 0) & (flows["hop_first"] < flows["hop_end"])
        motion = np.zeros(len(flows), MOTION)
        motion["path"], motion["job"], motion["size"] = block.path, block.flow_job + len(w.jobs), block.size
        motion["channel"] = motion["left"] = motion["right"] = -1
        phases = np.zeros(len(block.phase_first) - 1, PHASE)
        phases["flow_first"], phases["flow_end"] = block.phase_first[:-1] + len(w.flows), block.phase_first[1:] + len(w.flows)
        jobs = np.zeros(len(block.iterations), JOB)
        jobs["phase_first"], jobs["phase_end"] = block.job_phase[:-1] + len(w.phases), block.job_phase[1:] + len(w.phases)
        jobs["phase"] = jobs["phase_first"]
        jobs["load_first"], jobs["load_end"] = block.load_first[:-1] + pairs, block.load_first[1:] + pairs
        jobs["iterations"], jobs["compute"], jobs["overlap"] = block.iterations, block.compute, block.overlap
        channels = np.zeros(len(flows), CHANNEL)
        channels["top"] = -1
        self._world = _world(
            np.concatenate((w.links, self._senders_of(block))),
            np.concatenate((w.hops, hops)),
            np.concatenate((w.flows, flows)),
            np.concatenate((w.motion, motion)),
            np.concatenate((w.phases, phases)),
            np.concatenate((w.jobs, jobs)),
            np.concatenate((w.channels, channels)),
            w.now,
            w,
        )
        return len(w.jobs)

    def _senders_of(self, block: Block) -> Records:
        """Return the links of a block's senders, without caps."""
        count = len(block.iterations)
        first = np.zeros(count + 1, np.int64) if block.sender_first is None else block.sender_first
        rate = np.zeros(0) if block.sender_rate is None else block.sender_rate
        most = np.zeros(0) if block.sender_most is None else block.sender_most
        self._sender_first = np.concatenate((self._sender_first, first[1:] + self._sender_first[-1]))
        self._sender_rate = np.concatenate((self._sender_rate, rate))
        self._sender_most = np.concatenate((self._sender_most, most))
        links = np.zeros(len(most), LINK)
        links["capacity"] = most
        links["own"] = 1
        return links

    def start(self, jobs: Sequence[int], after_s: float = 0.0) -> None:
        """Let jobs start their first iteration so many seconds from now; an arrangement that holds them has to follow."""
        for job in jobs:
            kernels.start(self._world, job, after_s)

    def kill(self, jobs: Sequence[int]) -> None:
        """Stop jobs where they are; an arrangement without them has to follow."""
        for job in jobs:
            kernels.kill(self._world, job)

    def end_after_iteration(self, job: int) -> None:
        """Let a running job have no iteration after the one that it is in."""
        self._world.jobs["iterations"][job] = self._world.jobs["done"][job] + 1

    def arrange(self, arrangement: Arrangement) -> None:
        """Serve the running jobs, all of which it must hold, as `arrangement` says."""
        present = len(np.unique(arrangement.group))
        if self._allocator.minimum_share * present > 1:
            expected = f"0 to 1/{present}, as {present} classes are present"
            raise InputError("minimum_share", self._allocator.minimum_share, expected)
        group = self._world.jobs["group"]
        if self._allocator.mode in WITHOUT_ORDER:
            known = bool(np.isin(arrangement.order, self._order).all())
        else:
            known = np.array_equal(self._order, arrangement.order)
        same = known and np.array_equal(group[arrangement.order], arrangement.group)
        self._order = arrangement.order
        group[self._order] = arrangement.group
        if self._cap(arrangement) or not same:
            self._world.now["reordered"] = True

    def _cap(self, arrangement: Arrangement) -> bool:
        """Hold the senders of jobs to the caps of `arrangement`; return whether any changed."""
        if arrangement.cap_bps is None:
            return False
        capacity = self._world.links["capacity"]
        before = capacity.copy()
        for job, cap_bps in zip(arrangement.order.tolist(), arrangement.cap_bps.tolist(), strict=True):
            own = slice(self._sender_first[job], self._sender_first[job + 1])
            if math.isfinite(cap_bps) and own.start == own.stop:
                raise InputError("cap_bps", cap_bps, "none, as jobs were added without links of their senders")
            capacity[self._shared :][own] = np.minimum(cap_bps * self._sender_rate[own], self._sender_most[own])
        return not np.array_equal(before, capacity)

    @property
    def arrangement(self) -> Arrangement:
        """How jobs are served, those that have ended meanwhile included."""
        return Arrangement(self._order, self._world.jobs["group"][self._order])

    def next_s(self) -> float:
        """Return when the next timer or flow ends, after a run that ended without any; infinite if none will."""
        at = kernels.next_s(self._world)
        return at if at < NEVER else math.inf

    def run(self, until_s: float, by_coflow: bool) -> list[tuple[FluidEvent, int]]:
        """Run to `until_s`, or to the first instant before it at which an event occurs that is asked for.

        That is the end of a job and, with `by_coflow`, the release or completion of a coflow. Returns the events of that
        instant with their jobs. Raises `RuntimeError` if no event would ever occur and there is no limit.
        """
        capacity = 6 * len(self._world.jobs) + 8
        kinds, who = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        mode, share = int(self._allocator.mode), float(self._allocator.minimum_share)
        entries = kernels.run(self._world, mode, self._order, share, float(min(until_s, NEVER)), by_coflow, kinds, who)
        if not entries and until_s >= NEVER:
            raise RuntimeError(f"nothing will ever happen after {self.now_s} s, and jobs are not done")
        return [(FluidEvent(kind), job) for kind, job in zip(kinds[:entries].tolist(), who[:entries].tolist(), strict=True)]

    def flows_of(self, job: int) -> range:
        """Return the numbers of a job's flows."""
        w = self._world
        of = w.phases[w.jobs["phase_first"][job] : w.jobs["phase_end"][job]]
        return range(int(of["flow_first"][0]), int(of["flow_end"][-1])) if len(of) else range(0)

    def reroute(self, flow: Sequence[int], hops: Sequence[Sequence[int]], path: Sequence[int]) -> None:
        """Route flows over other links; what they have moved stays counted on the links that carried it.

        path: the number of each new path. Policies do not see it: loads remain those of the old paths, and what is in flight
        counts only on links that the new path has, too.
        """
        w = self._world
        w.links["moved"] = self._carried_bits()
        self._counted = self._moved_bits()
        split = [w.hops[a:b] for a, b in zip(w.flows["hop_first"], w.flows["hop_end"], strict=True)]
        pair = {(j, hop["link"]): hop["load"] for part, j in zip(split, w.motion["job"].tolist(), strict=True) for hop in part}
        for f, links, number in zip(flow, hops, path, strict=True):
            if w.motion["path"][f] == number:
                continue
            split[f] = np.zeros(len(links), HOP)
            split[f]["link"], split[f]["use"] = links, 1.0
            split[f]["load"] = [pair.get((w.motion["job"][f], link), -1) for link in links]
            w.motion["path"][f] = number
        ends = np.cumsum([len(part) for part in split])
        w.flows["hop_end"] = ends
        w.flows["hop_first"] = np.concatenate(([0], ends[:-1]))
        self._world = _world(
            w.links, np.concatenate([np.zeros(0, HOP), *split]), w.flows, w.motion, w.phases, w.jobs, w.channels, w.now, w
        )

    def coflows(self, numbers: Ints, columns: JobColumns) -> CoflowColumns:
        """Describe what the jobs of a snapshot have in flight. numbers: theirs, by position in `columns`."""
        count = len(numbers)
        left, sent, longest = np.empty(count), np.empty(count), np.empty(count)
        seconds, later = np.empty(len(columns.link)), np.empty(len(columns.link))
        kernels.observe(self._world, numbers, left, sent, longest, seconds, later)
        in_flight = self._world.jobs["in_flight"][numbers] > 0
        return CoflowColumns(
            in_flight=in_flight,
            released_s=np.where(in_flight, self._world.jobs["released"][numbers], columns.started_s),
            sent_bits=sent,
            left_bits=np.where(in_flight, left, columns.size_bits),
            longest_bits=np.where(in_flight, longest, columns.longest_bits),
            seconds=np.where(in_flight[columns.owner], seconds, columns.seconds),
            later=later,
        )

    def rates(self) -> Floats:
        """Return the rate of every flow in force, bit/s."""
        flows, channels = self._world.flows, self._world.channels
        rates = np.zeros(len(flows))
        active = flows["active"]
        rates[active] = channels["rate"][self._world.motion["channel"][active]]
        return rates

    def carried_bits(self) -> Floats:
        """Return what every link has carried so far."""
        return self._carried_bits()[: self._shared]

    def _carried_bits(self) -> Floats:
        w = self._world
        moved = self._moved_bits()
        moved[: len(self._counted)] -= self._counted
        by_hop = np.repeat(moved, w.flows["hop_end"] - w.flows["hop_first"]) * w.hops["use"]
        carried: Floats = w.links["moved"] + np.bincount(w.hops["link"], by_hop, len(w.links))
        return carried

    def _moved_bits(self) -> Floats:
        """Return what every flow has moved so far, but for what flows had moved that were stopped on their way."""
        w = self._world
        phase = np.repeat(np.arange(len(w.phases)), w.phases["flow_end"] - w.phases["flow_first"])
        job = w.jobs[w.motion["job"]]
        moved = (job["done"] + ((phase < job["phase"]) & (job["awaited"] > 0))) * w.motion["size"]
        for f in np.flatnonzero((phase == job["phase"]) & (job["in_flight"] > 0)).tolist():
            moved[f] += w.motion["size"][f] - (kernels.left(w, f) if w.flows["active"][f] else 0.0)
        bits: Floats = moved
        return bits


def _world(
    links: Records,
    hops: Records,
    flows: Records,
    motion: Records,
    phases: Records,
    jobs: Records,
    channels: Records,
    now: Records,
    old: World | None,
) -> World:
    """Return the state of these, all allocations due; heaps keep what they held in `old`."""
    links = links.copy()
    width = np.bincount(hops["link"], minlength=len(links))
    links["first"] = np.cumsum(width) - width
    now = now.copy()
    now["reordered"] = True
    return World(
        links=links,
        hops=hops,
        flows=flows,
        motion=motion,
        entries=np.zeros(len(hops), ENTRY),
        carriers=np.zeros(len(hops), CARRIER),
        users=np.zeros(len(hops), USER),
        places=np.zeros(len(hops), PLACE),
        segments=np.zeros(len(hops), SEGMENT),
        minimum=_fill(len(hops), len(flows)),
        beyond=_fill(len(hops), len(flows)),
        groups=np.zeros(len(jobs) + 1, GROUP),
        phases=phases,
        jobs=jobs,
        channels=channels,
        ends=_heap(len(flows), old.ends if old else None),
        due=np.full(len(flows), NEVER),
        soonest=np.full(len(flows) // BLOCK + 1, OUTDATED),
        channel_of=np.zeros(int(motion["path"].max(initial=-1)) + 1, np.int64),
        path_of=np.full(len(flows), -1),
        settled=np.zeros(2 * len(flows), np.uint32),
        touched=np.zeros(len(hops), np.uint32),
        marked=np.zeros(len(hops), np.uint32),
        timers=_heap(2 * len(jobs), old.timers if old else None),
        levels=_heap(len(hops), None),
        queue=_heap(len(links) + len(flows), None),
        changed=np.zeros(4 * len(flows) + 8, np.int64),
        now=now,
    )


def _fill(entries: int, channels: int) -> Fill:
    return Fill(np.zeros(entries, TAKE), np.zeros(entries, FILL), np.zeros(channels, GIVEN))


def _heap(size: int, old: Records | None) -> Records:
    heap = np.zeros(size + 1, HEAP)
    heap["position"][:size] = -1
    if old is not None:
        heap[: len(old) - 1] = old[:-1]
        heap["position"][size] = old["position"][-1]
    return heap
